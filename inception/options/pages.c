/* Markdown: docs/options.md, and the generated parts of docs/commands/COMMAND.md, "head" and "options", between the marks by
 * which scripts/pages/command_pages.sh finds them.
 *
 * An option is explained on the page of the first command that has it; pages of other commands link there. */
#include "inception/options/help.h"
#include "kernels/base/text.h"

#include <ctype.h>

/* Write text with the special characters of Markdown escaped. */
static void put_text(FILE *to, const char *text)
{
    for (const char *p = text; *p; p++) fprintf(to, strchr("\\`*_<>[]|#", *p) ? "\\%c" : "%c", *p);
}

/* Code in the cell of a table, where a bar would end the cell. */
static void put_cell_code(FILE *to, const char *text)
{
    fputc('`', to);
    for (const char *p = text; *p; p++) fprintf(to, *p == '|' ? "\\%c" : "%c", *p);
    fputc('`', to);
}

static void put_sentence(FILE *to, const char *text)
{
    if (*text) fprintf(to, "%c", toupper((unsigned char)*text));
    if (*text) put_text(to, text + 1);
}

static void put_paragraph(FILE *to, const char *text)
{
    if (!*text) return;
    put_text(to, text);
    fputs("\n\n", to);
}

/* ---- one option */

static void put_values(FILE *to, OptionId id)
{
    ValueWords value;
    for (int k = 0; option_value_words(id, k, &value); k++) {
        fprintf(to, "- `%s`: ", value.name);
        put_text(to, value.about);
        fputc('\n', to);
    }
    if (option_value_words(id, 0, &value)) fputc('\n', to);
}

static void put_option(FILE *to, OptionId id)
{
    OptionWords words;
    const OptionInfo *info = option_info(id);
    option_describe(id, VERB_NONE, &words);
    fprintf(to, "#### `--%s`\n\n`%s`: ", info->flag, words.term);
    put_text(to, words.story);
    fputs("\n\n", to);
    put_values(to, id);
    if (info->more) put_paragraph(to, info->more);
    put_paragraph(to, words.condition);
    put_paragraph(to, words.facts);
    if (*words.related) {
        fputs("Goes with it: ", to);
        put_paragraph(to, words.related);
    }
    if (info->example) fprintf(to, "```sh\n%s\n```\n\n", info->example);
}

/* ---- the page of a command */

static void put_examples(FILE *to, Verb verb)
{
    int column = 0;
    for (const Example *e = help_examples; e->command; e++)
        if (e->verb == verb && (int)strlen(e->command) > column) column = (int)strlen(e->command);
    fputs("```sh\n", to);
    for (const Example *e = help_examples; e->command; e++)
        if (e->verb == verb) fprintf(to, "%-*s   # %s\n", column, e->command, e->comment);
    fputs("```\n\n", to);
}

/* A row: the option with a link to its explanation, its default, what it is. */
static void put_row(FILE *to, Verb verb, OptionId id)
{
    OptionWords words;
    char usual[OPTION_FORMAT_BYTES];
    Verb home = option_home(id);
    option_describe(id, verb, &words);
    option_usual(id, usual, sizeof usual);
    fputs("| [", to);
    put_cell_code(to, words.term);
    fprintf(to, "](%s%s#--%s) | ", home == verb ? "" : verb_info(home)->name, home == verb ? "" : ".md",
            option_info(id)->flag);
    put_text(to, usual);
    fputs(" | ", to);
    put_text(to, option_info(id)->help);
    if (*words.condition) {
        fputs(". ", to);
        put_text(to, words.condition);
    }
    fputs(" |\n", to);
}

static void put_exits(FILE *to, Verb verb)
{
    fputs("Exit codes: ", to);
    for (int code = 0; exit_meaning(code); code++)
        if (verb_exits(verb, code)) fprintf(to, "%s**%d** %s", code ? "; " : "", code, exit_meaning(code));
    if (verb_exits_by_signal(verb)) fprintf(to, "; **128+n** %s", exit_by_signal);
    fputs(" ([more](../exit-codes.md)).\n", to);
}

static void head_print(FILE *to, Verb verb)
{
    char usage[USAGE_BYTES];
    verb_usage(verb, usage, sizeof usage);
    fprintf(to, "<!-- head: begin -->\n\n```\n%s [OPTIONS]\n```\n\n", usage);
    put_sentence(to, verb_info(verb)->summary);
    fputs(".\n\n", to);
    put_examples(to, verb);
    fputs("| common options | default | |\n|---|---|---|\n", to);
    for (OptionId id = 0; id < OPTION_ID_COUNT; id++)
        if (option_belongs(id, verb) && !option_belongs(id, VERB_NONE) && option_info(id)->level == LEVEL_BASIC)
            put_row(to, verb, id);
    fprintf(to,
            "\n`towers %s --help-all` lists all options; [the index](../options.md) says where each is explained.\n\n",
            verb_info(verb)->name);
    put_exits(to, verb);
    fputs("\n<!-- head: end -->\n", to);
}

static bool explains(Verb verb, OptionId id)
{
    return option_home(id) == verb && option_belongs(id, verb);
}

static void options_print(FILE *to, Verb verb)
{
    OptionGroup group = GROUP_COUNT;
    fputs("<!-- options: begin -->\n\n", to);
    for (OptionId id = 0; id < OPTION_ID_COUNT; id++) {
        if (!explains(verb, id)) continue;
        if (group == GROUP_COUNT) fputs("## Options explained\n\n", to);
        if (group != option_info(id)->group) fprintf(to, "### %s\n\n", group_title(option_info(id)->group));
        group = option_info(id)->group;
        put_option(to, id);
    }
    fputs("<!-- options: end -->\n", to);
}

/* ---- docs/options.md */

/* Up to the first sign behind which there is a blank, or the end: others stand in numbers and addresses. */
static size_t clause_bytes(const char *text)
{
    size_t bytes = strcspn(text, ";:,");
    while (text[bytes] && text[bytes + 1] != ' ') bytes += 1 + strcspn(text + bytes + 1, ";:,");
    return bytes;
}

static void put_index_row(FILE *to, OptionId id)
{
    OptionWords words;
    Verb home = option_home(id);
    option_describe(id, VERB_NONE, &words);
    fputs("| ", to);
    if (home != VERB_NONE) fputc('[', to);
    put_cell_code(to, words.term);
    if (home != VERB_NONE) fprintf(to, "](commands/%s.md#--%s)", verb_info(home)->name, option_info(id)->flag);
    fputs(" | ", to);
    fprintf(to, "%.*s | ", (int)clause_bytes(option_info(id)->help), option_info(id)->help);
    for (Verb verb = VERB_NONE + 1, k = 0; verb < VERB_COUNT && !option_belongs(id, VERB_NONE); verb++)
        if (option_belongs(id, verb)) fprintf(to, "%s%s", k++ ? ", " : "", verb_info(verb)->name);
    fputs(option_belongs(id, VERB_NONE) ? "all |\n" : " |\n", to);
}

static void index_print(FILE *to)
{
    fputs("# Commands and options\n\nWritten by `scripts/pages/command_pages.sh` from `inception/options/`. `towers "
          "help OPTION` says in a terminal what the pages say here. Dashes and underscores in flags are "
          "interchangeable; `--no-FLAG` turns a flag off, and `--` ends the options.\n\n| command | |\n|---|---|\n",
          to);
    for (Verb verb = VERB_NONE + 1; verb < VERB_COUNT; verb++) {
        char usage[USAGE_BYTES];
        verb_usage(verb, usage, sizeof usage);
        fputs("| [", to);
        put_cell_code(to, usage);
        fprintf(to, "](commands/%s.md) | %s |\n", verb_info(verb)->name, verb_info(verb)->summary);
    }
    fputs("\n## Precedence\n\n", to);
    for (int k = 0; configuration_words[k]; k++) put_paragraph(to, configuration_words[k]);
    fputs("## All options\n", to);
    for (OptionGroup group = 0; group < GROUP_COUNT; group++) {
        fprintf(to, "\n### %s\n\n| option | | commands |\n|---|---|---|\n", group_title(group));
        for (OptionId id = 0; id < OPTION_ID_COUNT; id++)
            if (option_info(id)->group == group) put_index_row(to, id);
    }
}

void pages_print(FILE *to, Verb verb)
{
    if (verb == VERB_NONE) {
        index_print(to);
        return;
    }
    head_print(to, verb);
    options_print(to, verb);
}
