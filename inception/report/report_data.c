/* Sections of data, damaged samples, restarts, sheets of images, and generated images. */
#include "inception/report/report_data.h"

#include "inception/report/page/svg.h"
#include "towers/data/loading/sheet.h"
#include "towers/files/csv.h"
#include "towers/files/files.h"
#include "towers/files/json.h"
#include "towers/files/utf8.h"
#include "towers/supervisor/restart.h"
#include "towers/train/mistakes.h"
#include "towers/train/samples_log.h"
#include "towers/train/summary.h"

enum { LIST_BYTES = 1 << 20, SHEET_BYTES = 1 << 20, BAD_ROWS = 40, RESTART_ROWS = 40, CAPTION = 512 };
enum { STAGES = 8 /* grids of generated images on the page */, STAGES_MAX = 8192 };

void section_open(FILE *to, const char *title)
{
    fprintf(to, "<section class=\"table\"><h3>%s</h3>", title);
}

void cell_write(FILE *to, const char *classes, const char *text)
{
    svg_printf(to, "<td class=\"%s\">%s</td>", classes, text);
}

/* At most `limit` bytes of a file of the run, the rest is left; NULL if there is none. */
static char *file_start(const Run *run, const char *name, size_t limit, size_t *count)
{
    char path[PATH_BYTES], *text;
    int fd = -1;
    uint64_t size = 0;
    ssize_t got = 1;
    *count = 0;
    if (path_join(path, run->path, name) != OK) return NULL;
    if (file_open(path, OF_RUN, ERR_FORMAT, UINT64_MAX, &fd, &size) != OK) return NULL;
    text = malloc(limit + 1);
    while (text && *count < limit && (got = read(fd, text + *count, limit - *count)) > 0) *count += (size_t)got;
    close(fd);
    if (text) text[*count] = 0;
    if (got >= 0) return text;
    free(text);
    return NULL;
}

/* The next whole line; NULL at the end. A last line without its end is left out. */
static char *line_take(char **rest)
{
    char *line = *rest, *end = strchr(line, '\n');
    if (!end) return NULL;
    *end = 0;
    *rest = end + 1;
    return line;
}

/* Names may be any bytes of any length. */
static void caption_write(const char *text, FILE *to)
{
    char cut[CAPTION];
    utf8_escape(cut, sizeof cut, text);
    svg_text(to, cut);
}

/* ---- waiting, and what the loader did */

/* The share of the run's time in which the slowest tower waited for its batch; NaN if it is not known. */
static double waiting_share(const Run *run)
{
    double waited = 0, all = 0;
    for (int64_t i = 0; i < run->steps; i++) {
        const RunStep *s = &run->step[i];
        double most = 0, us = (double)s->images / s->images_per_sec * 1e6;
        for (int t = 0; t < run->towers; t++)
            if (isfinite(s->data_us[t])) most = fmax(most, s->data_us[t]);
        if (!isfinite(us)) continue;
        waited += fmin(most, us);
        all += us;
    }
    return all > 0 ? waited / all : ABSENT;
}

static void stage_row(const json_t *data, const char *key, const char *name, FILE *to)
{
    fprintf(to, "<tr><th>%s</th><td>%.1f &micro;s per image and thread</td></tr>", name,
            (double)json_whole(data, key) / (double)json_whole(data, "images") / 1e3);
}

/* "12 images": nothing if there are none. */
static void count_row(const json_t *data, const char *key, const char *name, const char *what, FILE *to)
{
    int64_t count = json_whole(data, key);
    if (count) fprintf(to, "<tr><th>%s</th><td>%" PRId64 " %s</td></tr>", name, count, what);
}

static void loader_html(const Run *run, FILE *to)
{
    json_t *data = json_of_run(run->path, DATA_SUMMARY);
    if (json_whole(data, "images") <= 0) {
        json_decref(data);
        return;
    }
    double share = waiting_share(run);
    const char *cause = json_word(data, "cause");
    section_open(to, "Loading");
    fputs("<table>", to);
    if (isfinite(share)) {
        fprintf(to, "<tr><th>data-wait</th><td>%.1f %% of the steps' time", 100 * share);
        if (cause && *cause) {
            fputs("; the loader spent most of its time on: ", to);
            caption_write(cause, to);
        }
        fputs("</td></tr>", to);
    }
    fprintf(to, "<tr><th>images read</th><td>%" PRId64 ", for steps %" PRId64 " to %" PRId64 "</td></tr>",
            json_whole(data, "images"), json_whole(data, "first_step"), json_whole(data, "last_step"));
    stage_row(data, "read_ns", "read", to);
    stage_row(data, "decode_ns", "decode", to);
    stage_row(data, "resize_ns", "resize", to);
    stage_row(data, "augment_ns", "augment", to);
    count_row(data, "warnings", "minor damage", "images, decoded in spite of it", to);
    count_row(data, "rotated", "stored rotated",
              json_is_true(json_object_get(data, "exif"))
                  ? "images (EXIF orientation), rotated upright"
                  : "images (EXIF orientation), used as stored; --exif rotates them",
              to);
    count_row(data, "bad_samples", "skipped", "samples that could not be decoded", to);
    fputs("</table></section>\n", to);
    json_decref(data);
}

/* ---- the survey before the first step */

static void survey_html(const Run *run, FILE *to)
{
    enum { NAMED = 5 };
    size_t i, k;
    json_t *row, *file, *root = json_of_run(run->path, SURVEY_FILE), *findings = json_object_get(root, "findings");
    if (!json_is_array(findings)) {
        json_decref(root);
        return;
    }
    section_open(to, "Survey of the images");
    fprintf(to, "<p>%" PRId64 " of %" PRId64 " images were looked at before the first step.%s</p><ul>",
            json_whole(root, "looked"), json_whole(root, "images"),
            json_array_size(findings) ? "" : " Nothing is conspicuous.");
    json_array_foreach(findings, i, row)
    {
        fputs("<li>", to);
        caption_write(json_word_or_empty(row, "text"), to);
        json_array_foreach(json_object_get(row, "files"), k, file)
        {
            if (k == NAMED || !json_string_value(file) || json_is_true(json_object_get(row, "left_out"))) break;
            fputs(k ? ", " : ": ", to);
            caption_write(json_string_value(file), to);
        }
        fputs(json_array_size(json_object_get(row, "files")) > NAMED ? " ...</li>" : "</li>", to);
    }
    fputs("</ul></section>\n", to);
    json_decref(root);
}

/* ---- damaged samples */

typedef struct BadRow {
    const char *why;
    int64_t id, times;
    bool training;
} BadRow;

/* A sample is met again in every epoch: `rows` [BAD_ROWS] holds each once. Returns the number of all that were found, of
 * which those beyond the room are counted a line each. */
static int64_t bad_rows_read(char *text, BadRow *rows, int *count)
{
    int64_t found = 0;
    *count = 0;
    for (char *line; (line = line_take(&text));) {
        const char *when = csv_take(&line), *tower = csv_take(&line), *id = csv_take(&line), *why = csv_take(&line);
        if (!tower || !why) continue;
        BadRow one = {.why = why, .id = strtoll(id, NULL, 10), .times = 1, .training = strcmp(when, "evaluation") != 0};
        int k = 0;
        while (k < *count && (rows[k].id != one.id || rows[k].training != one.training)) k++;
        if (k < *count) {
            rows[k].times++;
            continue;
        }
        found++;
        if (k < BAD_ROWS) rows[(*count)++] = one;
    }
    return found;
}

static void bad_samples_html(const Run *run, FILE *to)
{
    BadRow rows[BAD_ROWS];
    int count;
    size_t bytes;
    char *text = file_start(run, BAD_SAMPLES_FILE, LIST_BYTES, &bytes);
    if (!text) return;
    int64_t found = bad_rows_read(text, rows, &count);
    if (count) {
        section_open(to, "Damaged samples, which were skipped");
        fputs("<table><tr><th>number</th><td class=\"o\">file and reason</td><td class=\"n o\">times</td></tr>", to);
        for (int i = 0; i < count; i++) {
            fprintf(to, "<tr><th>%s %" PRId64 "</th><td>", rows[i].training ? "training" : "evaluation", rows[i].id);
            caption_write(rows[i].why, to);
            fprintf(to, "</td><td class=\"n\">%" PRId64 "</td></tr>", rows[i].times);
        }
        fputs("</table>", to);
        if (found > count || bytes == LIST_BYTES) fputs("<p>and more: " BAD_SAMPLES_FILE " lists all of them</p>", to);
        fputs("</section>\n", to);
    }
    free(text);
}

/* ---- restarts */

void restarts_html(const Run *run, FILE *to)
{
    size_t bytes;
    int64_t count = 0;
    char *text = file_start(run, RESTARTS_FILE, LIST_BYTES, &bytes), *rest = text;
    for (char *line; text && (line = line_take(&rest));) {
        json_t *row = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        const char *cause = json_word(row, "cause");
        if (cause && count++ == 0) {
            section_open(to, "Restarts after crashes");
            fputs("<table><tr><th>after step</th><td class=\"o\">cause</td><td class=\"n o\">processes</td></tr>", to);
        }
        if (cause && count <= RESTART_ROWS) {
            fprintf(to, "<tr><th>%" PRId64 "</th><td>", json_whole(row, "step"));
            caption_write(cause, to);
            fprintf(to, "</td><td class=\"n\">%" PRId64 "</td></tr>", json_whole(row, "processes"));
        }
        json_decref(row);
    }
    if (count) fprintf(to, "</table><p>%" PRId64 " restart%s", count, count == 1 ? "" : "s");
    if (count > RESTART_ROWS || (count && bytes == LIST_BYTES)) fputs("; " RESTARTS_FILE " lists all of them", to);
    if (count) fputs("</p></section>\n", to);
    free(text);
}

/* ---- sheets of images */

static void base64_write(const char *bytes, size_t count, FILE *to)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < count; i += 3) {
        uint32_t three = 0;
        for (size_t k = 0; k < 3; k++) three = three << 8 | (i + k < count ? (uint8_t)bytes[i + k] : 0);
        for (size_t k = 0; k < 4; k++) fputc(i + k <= count ? digits[three >> (18 - 6 * k) & 63] : '=', to);
    }
}

static int rows_read(char *text, char *rows[SHEET_IMAGES])
{
    int count = 0;
    if (!line_take(&text)) return 0; /* the header */
    while (count < SHEET_IMAGES && (rows[count] = line_take(&text))) count++;
    return count;
}

/* Rows are "sample,file,label" or, of mistakes, "sample,file,label,predicted,probability,loss". */
static void file_write(char **row, FILE *to)
{
    csv_take(row);
    const char *file = csv_take(row);
    caption_write(file ? file : "?", to);
}

static void classes_write(char **row, bool mistakes, FILE *to)
{
    const char *label = *row ? csv_take(row) : "?", *predicted = mistakes ? csv_take(row) : NULL,
               *probability = predicted ? csv_take(row) : NULL;
    if (predicted) {
        caption_write(predicted, to);
        if (probability) fprintf(to, " %.1f %%", 100 * strtod(probability, NULL));
        fputs(", is ", to);
    }
    caption_write(label, to);
}

static void sample_write(char *row, int place, int rows, bool mistakes, FILE *to)
{
    double x = 100.0 * (place % SHEET_COLUMNS) / (SHEET_COLUMNS - 1);
    double y = rows > 1 ? 100.0 * (place / SHEET_COLUMNS) / (rows - 1) : 0;
    csv_take(&row);
    const char *file = csv_take(&row), *name = file ? strrchr(file, '/') : NULL;
    fputs("<div title=\"", to);
    caption_write(file ? file : "?", to);
    fprintf(to, "\"><i style=\"background-position:%.4f%% %.4f%%\"></i>", x, y);
    classes_write(&row, mistakes, to);
    fputs("<small>", to);
    caption_write(name ? name + 1 : file ? file : "?", to);
    fputs("</small></div>", to);
}

/* One image holds all cells; a cell shows its part of it. */
static void sheet_html(const Run *run, const char *csv, const char *jpeg, bool mistakes, const char *title,
                       const char *note, FILE *to)
{
    char *row[SHEET_IMAGES];
    size_t text_bytes, bytes;
    char *text = file_start(run, csv, LIST_BYTES, &text_bytes), *image = file_start(run, jpeg, SHEET_BYTES, &bytes);
    int count = text ? rows_read(text, row) : 0, rows = (count + SHEET_COLUMNS - 1) / SHEET_COLUMNS;
    if (count && image && bytes > 3 && bytes < SHEET_BYTES && !memcmp(image, "\xff\xd8\xff", 3)) {
        section_open(to, title);
        fprintf(to, "<p>%s</p><div class=\"sheet\" style=\"--size:%d%% %d%%;--sheet:url(data:image/jpeg;base64,", note,
                100 * SHEET_COLUMNS, 100 * rows);
        base64_write(image, bytes, to);
        fputs(")\">", to);
        for (int i = 0; i < count; i++) sample_write(row[i], i, rows, mistakes, to);
        fputs("</div></section>\n", to);
    }
    free(text);
    free(image);
}

/* Begins a cell with an image, if the file is a PNG of the run. */
static bool png_write(const Run *run, const char *name, const char *alt, FILE *to)
{
    size_t bytes;
    char *image = file_start(run, name, SHEET_BYTES, &bytes);
    bool good = image && bytes > 8 && bytes < SHEET_BYTES && !memcmp(image, "\x89PNG\r\n\x1a\n", 8);
    if (good) {
        fprintf(to, "<div><img alt=\"%s\" src=\"data:image/png;base64,", alt);
        base64_write(image, bytes, to);
        fputs("\">", to);
    }
    free(image);
    return good;
}

/* What towers eval --cam RUN/cam has written (inception/commands/commands.h). */
static void maps_html(const Run *run, FILE *to)
{
    char *row[SHEET_IMAGES], name[64];
    size_t bytes;
    char *text = file_start(run, "cam/" MISTAKE_MAPS_CSV, LIST_BYTES, &bytes);
    int count = text ? rows_read(text, row) : 0;
    if (count) {
        section_open(to, "Where the network looked");
        fputs("<p>Class activation maps of the most confident mistakes: of the predicted class, and of the right "
              "one.</p><div class=\"strip\">",
              to);
        for (int i = 0; i < count && i < MISTAKE_MAPS; i++) {
            snprintf(name, sizeof name, "cam/%06d-" MISTAKE_MAP ".png", i);
            if (!png_write(run, name, "two class activation maps", to)) continue;
            file_write(&row[i], to);
            fputs("<br>", to);
            classes_write(&row[i], true, to);
            fputs("</div>", to);
        }
        fputs("</div></section>\n", to);
    }
    free(text);
}

void mistakes_html(const Run *run, FILE *to)
{
    sheet_html(run, MISTAKES_CSV, MISTAKES_SHEET, true, "Most confident mistakes",
               "Of the last evaluation: what the network took the image for, with its probability, and what it is.",
               to);
    maps_html(run, to);
}

/* ---- generated images */

typedef struct Stage {
    int64_t step;
    double kid; /* NaN: not measured */
} Stage;

static int stages_read(char *text, Stage *stages)
{
    int count = 0;
    for (char *line; count < STAGES_MAX && (line = line_take(&text));) {
        json_t *row = json_loads(line, JSON_REJECT_DUPLICATES, NULL), *kid = json_object_get(row, "kid");
        int64_t step = json_is_integer(json_object_get(row, "step")) ? json_whole(row, "step") : -1;
        if (step >= 0) stages[count++] = (Stage){step, json_is_number(kid) ? json_number_value(kid) : ABSENT};
        json_decref(row);
    }
    return count;
}

/* The file's name follows from the step; the record's own entry is not trusted. */
static void stage_write(const Run *run, const Stage *stage, FILE *to)
{
    char name[64], alt[64];
    snprintf(name, sizeof name, "generated/step-%010" PRId64 ".png", stage->step);
    snprintf(alt, sizeof alt, "images after step %" PRId64, stage->step);
    if (!png_write(run, name, alt, to)) return;
    fprintf(to, "step %" PRId64, stage->step);
    if (isfinite(stage->kid)) fprintf(to, ", KID %.4g", stage->kid);
    fputs("</div>", to);
}

void generated_html(const Run *run, FILE *to)
{
    size_t bytes;
    Stage *stages = calloc(STAGES_MAX, sizeof *stages);
    char *text = file_start(run, "generated.jsonl", LIST_BYTES, &bytes);
    int count = text && stages ? stages_read(text, stages) : 0, shown = count < STAGES ? count : STAGES;
    if (count) {
        section_open(to, "Generated images");
        fputs("<p>Of the same noise at every stage.</p><div class=\"strip\">", to);
        for (int i = 0; i < shown; i++)
            stage_write(run, &stages[shown > 1 ? (int64_t)i * (count - 1) / (shown - 1) : 0], to);
        fputs("</div></section>\n", to);
    }
    free(text);
    free(stages);
}

void data_html(const Run *run, FILE *to)
{
    sheet_html(run, FIRST_BATCH_CSV, FIRST_BATCH_SHEET, false, "First training batch",
               "As the network saw it: cropped, mirrored and augmented, with its labels.", to);
    survey_html(run, to);
    loader_html(run, to);
    bad_samples_html(run, to);
}
