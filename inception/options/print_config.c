/* --print-config: the options of a verb as flat YAML that config.c reads back to the same values.
 *
 * Texts are double-quoted with every byte outside of printable ASCII escaped (YAML 1.1, section 5.6). A text that is not
 * UTF-8 cannot be written in YAML and becomes a comment. The word off is quoted, too: alone it means false. Numbers have
 * a point before their exponent, without which they are texts (YAML 1.1, tag float). */

#include "inception/options/options.h"
#include "towers/files/utf8.h"

enum { COMMENT_COLUMN = 40 };

static const char *const origin_names[] = {
    [ORIGIN_DEFAULT] = "default",
    [ORIGIN_MODEL] = "model",
    [ORIGIN_DEFAULT_RECIPE] = "default recipe",
    [ORIGIN_RECIPE] = "recipe",
    [ORIGIN_RUN] = "run",
    [ORIGIN_CONFIG] = "file",
    [ORIGIN_ENVIRONMENT] = "environment",
    [ORIGIN_COMMAND_LINE] = "command line",
};

/* Returns the columns written. */
static int print_text(const char *text, FILE *to)
{
    int columns = fprintf(to, "\"");
    const unsigned char *p = (const unsigned char *)text;
    for (int32_t point; (point = utf8_point(&p)) >= 0;) {
        if (point == '"' || point == '\\')
            columns += fprintf(to, "\\%c", (int)point);
        else if (point >= 0x20 && point < 0x7f)
            columns += fprintf(to, "%c", (int)point);
        else
            columns += fprintf(to, point < 0x10000 ? "\\u%04X" : "\\U%08X", (unsigned)point);
    }
    return columns + fprintf(to, "\"");
}

/* Returns the columns written. */
static int print_value(const OptionInfo *info, const char *value, FILE *to)
{
    if (info->type == OPTION_IS_TEXT || !strcmp(value, "off")) return print_text(value, to);
    size_t digits = strcspn(value, ".e");
    if (info->type != OPTION_IS_REAL || value[digits] != 'e') return fprintf(to, "%s", value);
    return fprintf(to, "%.*s.0%s", (int)digits, value, value + digits);
}

static void print_option(const Options *options, OptionId id, FILE *to)
{
    char buffer[OPTION_FORMAT_BYTES];
    const OptionInfo *info = option_info(id);
    const char *value = option_format(options, id, buffer, sizeof buffer);
    if (!*value) {
        fprintf(to, "# %s: not set\n", info->flag);
        return;
    }
    OptionId other = option_replaced_by(options, id);
    if (other < OPTION_ID_COUNT) {
        fprintf(to, "# %s: replaced by --%s\n", info->flag, option_info(other)->flag);
        return;
    }
    if (info->type == OPTION_IS_TEXT && !utf8_valid(value)) {
        fprintf(to, "# %s: not valid UTF-8, so it cannot be written as YAML\n", info->flag);
        return;
    }
    int columns = fprintf(to, "%s: ", info->flag);
    columns += print_value(info, value, to);
    fprintf(to, "%*s# from %s", columns < COMMENT_COLUMN ? COMMENT_COLUMN - columns : 1, "",
            origin_names[options->origin[id]]);
    if (options->where[id]) {
        fputc(' ', to);
        print_text(options->where[id], to);
    }
    fputc('\n', to);
}

void options_print_config(const Options *options, FILE *to)
{
    fprintf(to, "# towers %s\n", verb_info(options->verb)->name);
    for (OptionId id = 0; id < OPTION_ID_COUNT; id++) {
        if (option_info(id)->verbs & (OPTION_NOT_IN_CONFIG | OPTION_ONLY_TYPED)) continue;
        if (option_belongs(id, options->verb)) print_option(options, id, to);
    }
}
