/* Reading of a labels file; see label_file.h. Fields are decoded where they are in the text; a label is first the
 * pointer to its name, then its class. */
#include "towers/data/classes/label_file.h"

#include "kernels/base/array.h"
#include "towers/data/classes/class_match.h"
#include "towers/data/listing/endings.h"
#include "towers/files/files.h"
#include "towers/files/utf8.h"

enum { FILE_LIMIT = 1 << 30 /* bytes */, COLUMNS_MAX = LABEL_CLASSES_MAX + 1 };

typedef struct Reader {
    const char *path;
    char *at; /* the next field */
    int64_t line;
    bool more;         /* fields on this line */
    const char *group; /* name of the column that is no class; NULL: none */
    int group_column, columns;
    unsigned marks; /* that decide the separator */
} Reader;

#define LINE_FAIL_AT(r, number, format, ...)                                                                           \
    FAIL(ERR_FORMAT, "'%s', line %" PRId64 ": " format, (r)->path, number, ##__VA_ARGS__)
#define LINE_FAIL(r, ...) LINE_FAIL_AT(r, (r)->line, __VA_ARGS__)

/* ---- CSV */

/* Take the next field of the line, as a string in place. Quotes are removed, and blanks around a field without quotes. */
static Status field_next(Reader *r, char **field)
{
    char *from = r->at, *to;
    while (*from == ' ' || *from == '\t') from++;
    if (*from != '"') {
        to = from + strcspn(from, ",\n");
        r->at = to;
        *field = from;
        r->more = *to == ',';
        if (*to) r->at++;
        if (to > from && to[-1] == '\r') to--;
        while (to > from && (to[-1] == ' ' || to[-1] == '\t')) to--;
        *to = 0;
        return memchr(from, '"', (size_t)(to - from)) ? LINE_FAIL(r, "a quote inside of a field: '%.60s'", from) : OK;
    }
    *field = to = ++from;
    for (; *from && *from != '\n' && (*from != '"' || from[1] == '"'); from++) {
        from += *from == '"';
        *to++ = *from;
    }
    if (*from != '"') return LINE_FAIL(r, "a quoted field does not end on its line");
    for (from++; *from == ' ' || *from == '\t' || *from == '\r'; from++) continue;
    if (*from && *from != ',' && *from != '\n') return LINE_FAIL(r, "a quoted field goes on after its end");
    r->more = *from == ',';
    r->at = *from ? from + 1 : from;
    *to = 0;
    return OK;
}

/* Move to the next line with fields; false at the end. */
static bool line_next(Reader *r)
{
    for (;;) {
        r->line++;
        size_t blank = strspn(r->at, " \t\r");
        if (!r->at[blank]) return false;
        if (r->at[blank] != '\n') return true;
        r->at += blank + 1;
    }
}

/* ---- one row */

/* Names of files lie below the folder of the labels file. */
static Status name_check(const Reader *r, const char *name)
{
    bool leaves = *name == '/';
    for (const char *part = name; part; part = strchr(part, '/') ? strchr(part, '/') + 1 : NULL)
        leaves = leaves || (part[0] == '.' && part[1] == '.' && (!part[2] || part[2] == '/'));
    if (leaves) return LINE_FAIL(r, "'%.200s': expected a file below the folder of the labels file", name);
    return OK;
}

/* In place, so that a file has one name: without "./" and "//". */
static void name_tidy(char *name)
{
    char *to = name;
    for (const char *part = name; *part;) {
        size_t bytes = strcspn(part, "/"), step = bytes + (part[bytes] == '/');
        bool here = bytes == 0 || (bytes == 1 && *part == '.');
        if (!here) {
            memmove(to, part, step);
            to += step;
        }
        part += step;
    }
    *to = 0;
}

static Status row_add(LabelFile *f, const Reader *r, char *name)
{
    TRY(name_check(r, name));
    name_tidy(name);
    if (!*name) return LINE_FAIL(r, "expected the name of a file");
    return ARRAY_ADD(f->rows, f->rows_count, "the rows of a labels file",
                     (LabelRow){.name = name, .line = r->line, .first = f->labels_count});
}

static Status label_add(LabelFile *f, int32_t class)
{
    TRY(ARRAY_ADD(f->labels, f->labels_count, "the labels of images", class));
    f->rows[f->rows_count - 1].count++;
    return OK;
}

/* Take the field of a column of the last row, after its name. The group of the row is kept. */
static Status column_next(LabelFile *f, Reader *r, int column, char **field)
{
    if (!r->more) return LINE_FAIL(r, "%d of the %d columns of the header", column, r->columns);
    TRY(field_next(r, field));
    if (column == r->group_column) f->rows[f->rows_count - 1].group = *field;
    return OK;
}

/* ---- a column for each class */

typedef struct Flags {
    int64_t zero, minus; /* the first lines with 0 and with -1 */
} Flags;

static Status flag_read(const Reader *r, const char *text, Flags *flags, bool *has)
{
    size_t digits = strlen(text);
    if (digits > 2 && !strcmp(text + digits - 2, ".0")) digits -= 2;
    bool minus = digits == 2 && !strncmp(text, "-1", 2), zero = digits == 1 && *text == '0';
    *has = digits == 1 && *text == '1';
    if (!*has && !minus && !zero)
        return LINE_FAIL(
            r,
            "expected 1, 0 or -1 for each class, found '%.60s' (a list of labels takes two columns: file and "
            "labels)",
            text);
    if (minus && !flags->minus) flags->minus = r->line;
    if (zero && !flags->zero) flags->zero = r->line;
    if (flags->minus && flags->zero)
        return LINE_FAIL(r,
                         "0 and -1 in one file (0 in line %" PRId64 ", -1 in line %" PRId64 "): expected 1 and 0, or 1 "
                         "and -1; a class that is not known to be there or not is not supported",
                         flags->zero, flags->minus);
    return OK;
}

static Status flags_read(LabelFile *f, Reader *r)
{
    Flags flags = {0};
    char *field;
    while (line_next(r)) {
        TRY(field_next(r, &field));
        TRY(row_add(f, r, field));
        int32_t number = 0;
        for (int column = 1; column < r->columns; column++) {
            bool has;
            TRY(column_next(f, r, column, &field));
            if (column == r->group_column) continue;
            TRY(flag_read(r, field, &flags, &has));
            if (has) TRY(label_add(f, number));
            number++;
        }
        if (r->more) return LINE_FAIL(r, "more columns than the header, which has %d", r->columns);
    }
    return OK;
}

/* ---- a list of labels */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int by_number(const void *a, const void *b)
{
    return (*(const int32_t *)a > *(const int32_t *)b) - (*(const int32_t *)a < *(const int32_t *)b);
}

const char *label_separator(unsigned marks)
{
    return marks & LABEL_SEMICOLON ? ";" : marks & LABEL_BAR ? "|" : marks & LABEL_COMMA ? "," : " \t";
}

static unsigned marks_of(const char *cell)
{
    return (strchr(cell, ';') ? LABEL_SEMICOLON : 0u) | (strchr(cell, '|') ? LABEL_BAR : 0u) |
           (strchr(cell, ',') ? LABEL_COMMA : 0u);
}

/* A list as Python or JSON writes it, whose brackets and quotes are no part of a label. */
static Status brackets_refuse(const Reader *r, const char *cell)
{
    size_t from = strspn(cell, " \t"), bytes = strlen(cell);
    while (bytes > from && (cell[bytes - 1] == ' ' || cell[bytes - 1] == '\t')) bytes--;
    char first = cell[from], last = bytes > from ? cell[bytes - 1] : 0;
    bool list = (first == '[' && last == ']') || (first == '{' && last == '}') ||
                (first == '(' && last == ')' && strpbrk(cell, "'\","));
    return list
               ? LINE_FAIL(r,
                           "a list in brackets: %.60s: expected labels alone, separated by ';', '|', ',' or blanks; in "
                           "pandas: tags.map(';'.join)",
                           cell)
               : OK;
}

/* The next label of a cell, in place; NULL at its end. */
static char *label_next(char **cell, const char *separators)
{
    while (**cell && (strchr(separators, **cell) || **cell == ' ' || **cell == '\t')) (*cell)++;
    if (!**cell) return NULL;
    char *label = *cell, *end = label + strcspn(label, separators);
    *cell = *end ? end + 1 : end;
    while (end > label && (end[-1] == ' ' || end[-1] == '\t')) end--;
    *end = 0;
    return label;
}

/* The class of a name among sorted ones; -1: none. */
static int class_of(const LabelFile *f, const char *name)
{
    const char **found =
        f->classes_count ? bsearch(&name, f->classes, (size_t)f->classes_count, sizeof *f->classes, by_text) : NULL;
    return found ? (int)(found - f->classes) : -1;
}

/* `labels`: the names of all labels, row by row, as many as f->labels; they become the classes and the numbers. */
static Status labels_number(LabelFile *f, const Reader *r, char **labels)
{
    size_t count = (size_t)f->labels_count;
    f->classes = malloc((count + 1) * sizeof *f->classes);
    if (!f->classes) return FAIL(ERR_MEMORY, "no memory for the classes of '%s'", r->path);
    for (size_t i = 0; i < count; i++) f->classes[i] = labels[i];
    qsort(f->classes, count, sizeof *f->classes, by_text);
    int64_t classes = 0;
    for (size_t i = 0; i < count; i++)
        if (i == 0 || strcmp(f->classes[i], f->classes[classes - 1]) != 0) f->classes[classes++] = f->classes[i];
    if (classes > LABEL_CLASSES_MAX)
        return FAIL(ERR_FORMAT, "'%s' has %" PRId64 " different labels; at most %d are supported", r->path, classes,
                    LABEL_CLASSES_MAX);
    f->classes_count = (int)classes;
    for (size_t i = 0; i < count; i++) f->labels[i] = class_of(f, labels[i]);
    for (int64_t i = 0; i < f->rows_count; i++) {
        int32_t *own = f->labels + f->rows[i].first;
        if (f->rows[i].count > 1) qsort(own, (size_t)f->rows[i].count, sizeof *own, by_number);
        for (int32_t k = 1; k < f->rows[i].count; k++)
            if (own[k] == own[k - 1])
                return LINE_FAIL_AT(r, f->rows[i].line, "the label '%s' twice", f->classes[own[k]]);
    }
    return OK;
}

/* The cells, row by row, in `cells`, and the marks in them. */
static Status cells_read(LabelFile *f, Reader *r, char ***cells, unsigned *marks)
{
    char *field;
    while (line_next(r)) {
        TRY(field_next(r, &field));
        TRY(row_add(f, r, field));
        TRY(array_grow(cells, f->rows_count - 1, sizeof **cells, "the rows of a labels file"));
        char **cell = &(*cells)[f->rows_count - 1];
        for (int column = 1; column < r->columns; column++) {
            TRY(column_next(f, r, column, &field));
            if (column != r->group_column) *cell = field;
        }
        if (r->more)
            return LINE_FAIL(r,
                             "more columns than the header, which has %d: expected labels separated by blanks, ';' or "
                             "'|', or by ',' in quotes",
                             r->columns);
        TRY(brackets_refuse(r, *cell));
        *marks |= marks_of(*cell);
    }
    return OK;
}

static bool is_quoted(const char *label)
{
    size_t bytes = strlen(label);
    return bytes > 1 && (*label == '\'' || *label == '"') && label[bytes - 1] == *label;
}

/* The same name of a class in two encodings would be two classes. Names of files are bytes, as those of the disk. */
static Status text_refuse(const Reader *r, int64_t line, const char *name)
{
    char shown[256];
    if (utf8_valid(name)) return OK;
    utf8_escape(shown, sizeof shown, name);
    return LINE_FAIL_AT(r, line,
                        "'%s' is not UTF-8: save the file as UTF-8 (iconv -f WINDOWS-1252 -t UTF-8, or \"CSV UTF-8\" "
                        "in Excel)",
                        shown);
}

static bool is_word_of(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (!strcmp(text, *words)) return true;
    return false;
}

bool label_is_missing(const char *cell)
{
    static const char *const words[] = {"NaN", "nan",  "-NaN", "-nan", "NA",   "N/A",  "n/a",
                                        "#NA", "#N/A", "<NA>", "NULL", "null", "None", NULL};
    return is_word_of(cell, words);
}

static Status missing_refuse(const Reader *r, int64_t line, const char *label)
{
    return LINE_FAIL_AT(
        r, line,
        "'%s' is what programs write for a missing value: leave the cell empty if the image has none of "
        "the classes, or the line out if they are not known (a class needs another name)",
        label);
}

static Status lists_read(LabelFile *f, Reader *r)
{
    Status st = OK;
    char **cells = NULL, **labels = NULL, *label;
    TRY_OUT(cells_read(f, r, &cells, &r->marks));
    const char *separators = label_separator(r->marks);
    int64_t rows = f->rows_count;
    for (f->rows_count = 0; f->rows_count < rows;) {
        LabelRow *row = &f->rows[f->rows_count];
        char *cell = cells[f->rows_count++];
        row->first = f->labels_count;
        while ((label = label_next(&cell, separators))) {
            if (strlen(label) > LABEL_NAME_MAX)
                TRY_OUT(LINE_FAIL_AT(r, row->line, "a label of more than %d bytes: '%.40s...'", LABEL_NAME_MAX, label));
            TRY_OUT(text_refuse(r, row->line, label));
            if (is_quoted(label))
                TRY_OUT(LINE_FAIL_AT(r, row->line, "a label in quotes: %.60s: expected its name alone", label));
            TRY_OUT(array_grow(&labels, f->labels_count, sizeof *labels, "the labels of images"));
            labels[f->labels_count] = label;
            TRY_OUT(label_add(f, 0));
        }
        if (row->count == 1 && label_is_missing(labels[row->first]))
            TRY_OUT(missing_refuse(r, row->line, labels[row->first]));
    }
    if (f->labels_count == 0) TRY_OUT(FAIL(ERR_FORMAT, "'%s': no image has a label", r->path));
    st = labels_number(f, r, labels);
out:
    free(cells);
    free(labels);
    return st;
}

/* ---- the file */

/* The first line names columns: an image, or the values of columns, are the first row of a file without a header, which
 * would be lost. A column of this name shows that there is one (`group`). */
static Status header_check(const LabelFile *f, const Reader *r)
{
    bool flags = true;
    for (int c = 0; c < f->classes_count; c++) {
        const char *name = f->classes[c] + (*f->classes[c] == '-');
        size_t digits = strspn(name, "0123456789");
        bool number = digits && (!name[digits] || !strcmp(name + digits, ".0"));
        flags = flags && number && (f->classes_count == 1 || (digits == 1 && *name <= '1'));
    }
    if (r->group || (!flags && !ending_is_image(f->first))) return OK;
    return LINE_FAIL(r,
                     "expected a header, found %s '%.200s': give the columns names in a first line, for example "
                     "\"file,labels\" (or \"file\" and the names of the classes)",
                     flags ? "the values" : "the image", flags ? f->classes[0] : f->first);
}

static Status header_read(LabelFile *f, Reader *r)
{
    char *field;
    if (!line_next(r)) return FAIL(ERR_FORMAT, "'%s' is empty: expected a header and a line for each image", r->path);
    TRY(field_next(r, &field));
    f->first = field;
    for (r->columns = 1; r->more; r->columns++) {
        TRY(field_next(r, &field));
        if (!*field || strlen(field) > LABEL_NAME_MAX)
            return LINE_FAIL(r, "the name of column %d has %zu bytes: expected 1 to %d", r->columns + 1, strlen(field),
                             LABEL_NAME_MAX);
        TRY(text_refuse(r, r->line, field));
        if (r->group && !strcmp(field, r->group)) {
            if (r->group_column) return LINE_FAIL(r, "two columns with the name '%s'", field);
            r->group_column = r->columns;
            continue;
        }
        if (f->classes_count == LABEL_CLASSES_MAX) return LINE_FAIL(r, "more than %d columns", COLUMNS_MAX);
        TRY(ARRAY_ADD(f->classes, f->classes_count, "the classes of a labels file", field));
    }
    if (r->group && !r->group_column)
        return FAIL(ERR_ARG, "--fold-group %s: '%s' has no such column; a number means a folder, 1: that of the image",
                    r->group, r->path);
    if (!f->classes_count)
        return LINE_FAIL(r,
                         "expected a header of two columns or more, separated by commas: file and labels, or file and "
                         "classes");
    return header_check(f, r);
}

static Status columns_check(const LabelFile *f, const Reader *r)
{
    const char **sorted = malloc((size_t)f->classes_count * sizeof *sorted), *twice = NULL;
    if (!sorted) return FAIL(ERR_MEMORY, "no memory for the classes of '%s'", r->path);
    memcpy(sorted, f->classes, (size_t)f->classes_count * sizeof *sorted);
    qsort(sorted, (size_t)f->classes_count, sizeof *sorted, by_text);
    for (int c = 1; c < f->classes_count; c++)
        if (!strcmp(sorted[c], sorted[c - 1])) twice = sorted[c];
    free(sorted);
    return twice ? LINE_FAIL(r, "two columns with the name '%s'", twice) : OK;
}

static int by_name(const void *a, const void *b)
{
    const LabelRow *x = *(const LabelRow *const *)a, *y = *(const LabelRow *const *)b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x->line > y->line) - (x->line < y->line);
}

static Status names_check(const LabelFile *f, const Reader *r)
{
    Status st = OK;
    const LabelRow **sorted = malloc(((size_t)f->rows_count + 1) * sizeof *sorted);
    if (!sorted) return FAIL(ERR_MEMORY, "no memory for the rows of '%s'", r->path);
    for (int64_t i = 0; i < f->rows_count; i++) sorted[i] = &f->rows[i];
    qsort(sorted, (size_t)f->rows_count, sizeof *sorted, by_name);
    for (int64_t i = 1; st == OK && i < f->rows_count; i++)
        if (!strcmp(sorted[i]->name, sorted[i - 1]->name))
            st = LINE_FAIL_AT(r, sorted[i]->line, "'%.200s' is listed already, in line %" PRId64, sorted[i]->name,
                              sorted[i - 1]->line);
    free(sorted);
    return st;
}

static Status file_fill(LabelFile *f, Reader *r)
{
    TRY(array_grow(&f->labels, 0, sizeof *f->labels, "the labels of images")); /* there may be none */
    TRY(header_read(f, r));
    if (f->classes_count == 1) {
        free(f->classes);
        f->classes = NULL;
        f->classes_count = 0;
        TRY(lists_read(f, r));
    } else {
        f->columns = true;
        TRY(columns_check(f, r));
        TRY(flags_read(f, r));
    }
    if (!f->rows_count) return FAIL(ERR_FORMAT, "'%s' lists no image", r->path);
    return names_check(f, r);
}

static Status text_check(const char *path, const char *text, size_t count)
{
    if (strlen(text) != count)
        return FAIL(ERR_FORMAT, "'%s' has a byte 0 at offset %zu: expected CSV in UTF-8", path, strlen(text));
    const char *lone = strchr(text, '\r');
    if (lone && !strchr(text, '\n'))
        return FAIL(ERR_FORMAT, "'%s' ends its lines by CR alone: expected LF or CR LF (tr '\\r' '\\n')", path);
    return OK;
}

/* Takes over `text`, which ends with a NUL. */
static Status text_parse(const char *path, const char *group, unsigned marks, char *text, size_t count, LabelFile *file)
{
    *file = (LabelFile){.text = text};
    Reader r = {.path = path, .at = text + utf8_mark(text), .group = group, .marks = marks};
    Status st = text_check(path, text, count);
    if (st == OK) st = file_fill(file, &r);
    if (st != OK) label_file_free(file);
    return st;
}

Status label_file_read(const char *path, const char *group, unsigned marks, LabelFile *file)
{
    char *text;
    size_t count;
    TRY(file_load(path, OF_USER, ERR_ARG, FILE_LIMIT, &text, &count));
    return text_parse(path, group, marks, text, count, file);
}

Status label_file_marks(const char *path, const char *group, unsigned *marks)
{
    Status st = OK;
    size_t count;
    LabelFile file = {0};
    char **cells = NULL;
    TRY(file_load(path, OF_USER, ERR_ARG, FILE_LIMIT, &file.text, &count));
    Reader r = {.path = path, .at = file.text + utf8_mark(file.text), .group = group};
    TRY_OUT(text_check(path, file.text, count));
    TRY_OUT(header_read(&file, &r));
    if (file.classes_count == 1) TRY_OUT(cells_read(&file, &r, &cells, marks));
out:
    free(cells);
    label_file_free(&file);
    return st;
}

Status label_file_parse(const char *path, const char *bytes, size_t count, LabelFile *file)
{
    char *text = malloc(count + 1);
    if (!text) return FAIL(ERR_MEMORY, "no memory for '%s'", path);
    if (count) memcpy(text, bytes, count);
    text[count] = 0;
    return text_parse(path, NULL, 0, text, count, file);
}

Status label_file_answers_refuse(const LabelFile *file, const char *path)
{
    static const char *const words[] = {"0",    "1",    "0.0",   "1.0",   "-1",    "-1.0", "true",
                                        "True", "TRUE", "false", "False", "FALSE", NULL};
    bool answers = !file->columns;
    for (int c = 0; answers && c < file->classes_count; c++) answers = is_word_of(file->classes[c], words);
    return answers
               ? FAIL(ERR_FORMAT,
                      "'%s' has one column behind the file, and only '%s'%s%s%s in it: if it says which images have a "
                      "class, write the name of the class in their cells and leave the others empty; if these are "
                      "two classes, write their names",
                      path, file->classes[0], file->classes_count > 1 ? " and '" : "",
                      file->classes_count > 1 ? file->classes[1] : "", file->classes_count > 1 ? "'" : "")
               : OK;
}

/* Whether a name is two labels of the file or more, and nothing else, with one of `marks` between them. */
static bool is_labels(const LabelFile *f, const char *name, const char *marks)
{
    char part[LABEL_NAME_MAX + 1];
    int parts = 0;
    for (const char *at = name; *at; at += strspn(at, marks)) {
        size_t bytes = strcspn(at, marks), first = strspn(at, " \t");
        const char *text = at + (first < bytes ? first : bytes);
        at += bytes;
        size_t end = (size_t)(at - text);
        while (end && (text[end - 1] == ' ' || text[end - 1] == '\t')) end--;
        if (!end) continue;
        snprintf(part, sizeof part, "%.*s", (int)end, text);
        if (class_of(f, part) < 0) return false;
        parts++;
    }
    return parts > 1;
}

/* What separates the labels of which a name consists, if it is not the separator of the file. */
typedef enum Mixed { MIXED_BY_NOTHING, MIXED_BY_A_MARK, MIXED_BY_BLANKS } Mixed;

static Mixed mixed_by(const LabelFile *f, const char *name, char separator)
{
    static const char *const marks[] = {";", "|", ","};
    for (size_t k = 0; k < sizeof marks / sizeof *marks; k++)
        if (*marks[k] != separator && is_labels(f, name, marks[k])) return MIXED_BY_A_MARK;
    return separator != ' ' && is_labels(f, name, " \t") ? MIXED_BY_BLANKS : MIXED_BY_NOTHING;
}

Status label_file_mixed_refuse(const LabelFile *file, const char *path, unsigned marks)
{
    const char *separator = label_separator(marks);
    Mixed *mixed = calloc((size_t)file->classes_count + 1, sizeof *mixed);
    Status st = mixed ? OK : FAIL(ERR_MEMORY, "no memory for the classes of '%s'", path);
    for (int c = 0; st == OK && c < file->classes_count; c++) mixed[c] = mixed_by(file, file->classes[c], *separator);
    for (int64_t i = 0; st == OK && i < file->rows_count; i++)
        for (int32_t k = 0; k < file->rows[i].count && file->rows[i].count > 1; k++) {
            Mixed *of = &mixed[file->labels[file->rows[i].first + k]];
            if (*of == MIXED_BY_BLANKS) *of = MIXED_BY_NOTHING; /* it stands beside another: it is one label */
        }
    for (int64_t i = 0; st == OK && !file->columns && i < file->rows_count; i++)
        for (int32_t k = 0; st == OK && k < file->rows[i].count; k++) {
            int32_t class = file->labels[file->rows[i].first + k];
            if (mixed[class] != MIXED_BY_NOTHING)
                st = FAIL(ERR_FORMAT,
                          "'%s', line %" PRId64 ": '%.200s' is one label, as '%s' separates labels in other "
                          "lines, but its parts are labels as well: write '%s' between them or, if it is one, "
                          "another character (ice-cream)",
                          path, file->rows[i].line, file->classes[class], separator, separator);
        }
    free(mixed);
    return st;
}

Status label_file_match(LabelFile *file, const char *path, const LabelFile *train, const char *train_path)
{
    Status st = OK;
    char own[PATH_BYTES + 2], other[PATH_BYTES + 2];
    int32_t *number = malloc((size_t)file->classes_count * sizeof *number);
    bool *has = calloc((size_t)train->classes_count, sizeof *has);
    if (!number || !has) TRY_OUT(FAIL(ERR_MEMORY, "no memory for the classes of '%s'", path));
    snprintf(own, sizeof own, "'%s'", path);
    snprintf(other, sizeof other, "'%s'", train_path);
    const ClassList of = {.whose = own, .names = file->classes, .count = file->classes_count},
                    among = {.whose = other, .names = train->classes, .count = train->classes_count};
    TRY_OUT(class_match(&of, &among, CLASSES_SPELLED, number, NULL));
    for (int c = 0; c < file->classes_count; c++) has[number[c]] = true;
    for (int c = 0; file->columns && c < train->classes_count; c++)
        if (!has[c])
            TRY_OUT(FAIL(ERR_FORMAT, "'%s' has no column '%s', a class of '%s'", path, train->classes[c], train_path));
    for (int64_t i = 0; i < file->rows_count; i++) {
        int32_t *labels = file->labels + file->rows[i].first;
        for (int32_t k = 0; k < file->rows[i].count; k++) labels[k] = number[labels[k]];
        if (file->rows[i].count > 1) qsort(labels, (size_t)file->rows[i].count, sizeof *labels, by_number);
    }
    file->classes_count = 0; /* they are the other's now */
out:
    free(number);
    free(has);
    return st;
}

void label_file_free(LabelFile *file)
{
    free(file->text);
    free(file->classes);
    free(file->rows);
    free(file->labels);
    memset(file, 0, sizeof *file);
}
