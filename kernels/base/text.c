/* Bounded texts; see text.h. */
#include "kernels/base/text.h"

Text text_start(char *buffer, size_t bytes)
{
    if (bytes) buffer[0] = 0;
    return (Text){.at = buffer, .bytes = bytes};
}

Text text_behind(char *buffer, size_t bytes)
{
    size_t used = strnlen(buffer, bytes);
    if (used && used == bytes) buffer[--used] = 0;
    return (Text){.at = buffer, .bytes = bytes, .used = used};
}

void text_vadd(Text *text, const char *format, va_list args)
{
    size_t left = text->bytes - text->used;
    if (text->truncated || left == 0) {
        text->truncated = true;
        return;
    }
    int count = vsnprintf(text->at + text->used, left, format, args);
    if (count < 0) {
        text->at[text->used] = 0;
        text->truncated = true;
    } else if ((size_t)count < left) {
        text->used += (size_t)count;
    } else {
        text->used = text->bytes - 1;
        text->truncated = true;
    }
}

void text_add(Text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    text_vadd(text, format, args);
    va_end(args);
}

void text_hex(Text *text, const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) text_add(text, "%02x", bytes[i]);
}

void text_real(double value, char *text, size_t bytes)
{
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, bytes, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
}

/* The bytes of the control character that begins at `at`, in UTF-8; 0: it is none. */
static int control_bytes(const unsigned char *at)
{
    if (at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0) return 2; /* U+0080 to U+009F */
    return *at < 0x20 || *at == 0x7f;
}

/* Control characters but those of `kept` become \xHH, and those of `quoted` get a backslash. */
static void escaped_put(FILE *to, const char *text, const char *kept, const char *quoted)
{
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        int bytes = strchr(kept, *p) ? 0 : control_bytes(p);
        if (strchr(quoted, *p)) fputc('\\', to);
        if (!bytes) fputc(*p, to);
        for (int i = 0; i < bytes; i++) fprintf(to, "\\x%02x", p[i]);
        if (bytes == 2) p++;
    }
}

void text_escape(char *text, size_t bytes, const char *from)
{
    Text to = text_start(text, bytes);
    for (const unsigned char *p = (const unsigned char *)from; *p; p++) {
        int control = *p == '\n' && p[1] == ' ' && p[2] == ' ' ? 0 : control_bytes(p);
        if (!control) text_add(&to, "%c", *p);
        for (int i = 0; i < control; i++) text_add(&to, "\\x%02x", p[i]);
        if (control == 2) p++;
    }
}

void text_print(FILE *to, const char *text)
{
    escaped_put(to, text, "\n\t", "");
}

static void line_put(FILE *to, const char *text)
{
    escaped_put(to, text, "", "");
}

/* How many columns of a terminal the character that begins at `at` takes, in UTF-8: none if the byte continues a
 * character or combines with the one before it, two for characters of East Asia and emoji. */
static int byte_columns(const unsigned char *at)
{
    if ((*at & 0xc0) == 0x80 || *at == 0xcc || (*at == 0xcd && at[1] < 0xb0)) return 0;
    bool wide = (*at >= 0xe3 && *at <= 0xed) || (*at == 0xef && at[1] == 0xbc) || (*at >= 0xf0 && at[1] >= 0x9f);
    return wide ? 2 : 1;
}

int text_columns(const char *text)
{
    int columns = 0;
    for (const char *at = text; *at; at++) columns += byte_columns((const unsigned char *)at);
    return columns;
}

/* The cell of a table, of `width` columns; `most`: cut behind so many. */
static char *cell_text(const char *text, int width, int most, bool left)
{
    char *cell;
    int bytes = 0, columns = 0;
    for (int more; text[bytes] && columns + (more = byte_columns((const unsigned char *)text + bytes)) <= most; bytes++)
        columns += more;
    int gap = width > columns ? width - columns : 0;
    return asprintf(&cell, "%*s%.*s%*s", left ? 0 : gap, "", bytes, text, left ? gap : 0, "") < 0 ? NULL : cell;
}

/* One conversion, `spec`, whose width and precision are in its text by now. */
static void conversion_print(FILE *to, TextPut *put, const char *spec, va_list *args)
{
    size_t end = strlen(spec) - 1;
    char *piece = NULL, *point = strchr(spec, '.');
    bool left = spec[1] == '-';
    int width = atoi(spec + 1 + left), most = point ? atoi(point + 1) : INT32_MAX;
    int length = 0; /* -1: h, 1: l, 2: ll, z or t */
    for (const char *at = spec; *at; at++)
        length += *at == 'l' ? 1 : *at == 'z' || *at == 't' ? 2 : *at == 'h' ? -1 : 0;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    switch (spec[end]) {
    case 'd':
    case 'i':
    case 'u':
    case 'x':
        if (length <= 0)
            fprintf(to, spec, va_arg(*args, int));
        else if (length == 1)
            fprintf(to, spec, va_arg(*args, long));
        else
            fprintf(to, spec, va_arg(*args, long long));
        break;
    case 'e':
    case 'f':
    case 'g': fprintf(to, spec, va_arg(*args, double)); break;
    case 'c': fprintf(to, spec, va_arg(*args, int)); break;
    case 'p': fprintf(to, spec, va_arg(*args, void *)); break;
    case '%': fputc('%', to); break;
    case 's':
        if (width)
            piece = cell_text(va_arg(*args, const char *), width, most, left);
        else if (asprintf(&piece, spec, va_arg(*args, const char *)) < 0)
            piece = NULL;
        put(to, piece ? piece : "(no memory)");
        free(piece);
        break;
    default: abort();
    }
#pragma GCC diagnostic pop
}

void text_vput(FILE *to, TextPut *put, const char *format, va_list given)
{
    va_list args; /* its address can be passed on, that of a parameter cannot */
    va_copy(args, given);
    while (*format) {
        char bytes[64];
        size_t plain = strcspn(format, "%");
        fwrite(format, 1, plain, to);
        format += plain;
        if (!*format) break;
        Text spec = text_start(bytes, sizeof bytes);
        text_add(&spec, "%%");
        do {
            format++;
            if (*format == '*')
                text_add(&spec, "%d", va_arg(args, int));
            else
                text_add(&spec, "%c", *format);
        } while (*format && !strchr("diuxcspefg%", *format));
        if (!*format || spec.truncated) abort();
        format++;
        conversion_print(to, put, bytes, &args);
    }
    va_end(args);
}

void text_vprintf(FILE *to, const char *format, va_list args)
{
    flockfile(to); /* the pieces of other threads would come between */
    text_vput(to, line_put, format, args);
    funlockfile(to);
}

void text_printf(FILE *to, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    text_vprintf(to, format, args);
    va_end(args);
}

void text_shell(FILE *to, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+./=:,@%";
    if (*word && !word[strspn(word, plain)]) {
        fputs(word, to);
        return;
    }
    const unsigned char *at = (const unsigned char *)word;
    while (*at && !control_bytes(at)) at++;
    fputs(*at ? "$'" : "'", to);
    if (*at)
        escaped_put(to, word, "", "'\\");
    else
        for (; *word; word++) fprintf(to, *word == '\'' ? "'\\''" : "%c", *word);
    fputc('\'', to);
}

const char *signal_text(int number, char text[SIGNAL_TEXT_BYTES])
{
    const char *name = sigabbrev_np(number);
    if (name)
        snprintf(text, SIGNAL_TEXT_BYTES, "SIG%s", name);
    else
        snprintf(text, SIGNAL_TEXT_BYTES, "signal %d", number);
    return text;
}

const char *duration_text(double seconds, char text[DURATION_TEXT])
{
    double minutes = seconds / 60, hours = minutes / 60, days = hours / 24;
    if (seconds < 100)
        snprintf(text, DURATION_TEXT, "%.0f second%s", ceil(seconds), seconds <= 1 ? "" : "s");
    else if (minutes < 100)
        snprintf(text, DURATION_TEXT, "%.0f minutes", minutes);
    else if (hours < 48)
        snprintf(text, DURATION_TEXT, "%.1f hours", hours);
    else
        snprintf(text, DURATION_TEXT, "%.1f days", days);
    return text;
}
