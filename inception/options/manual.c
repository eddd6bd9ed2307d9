/* Manual pages as roff (man(7)): towers(1) for the program, towers-COMMAND(1) for a command with all its options. */
#include "inception/options/help.h"
#include "kernels/base/text.h"

/* Write text with the special characters of roff escaped. */
static void put_text(FILE *to, const char *text)
{
    for (const char *p = text; *p; p++) {
        if (*p == '\\')
            fputs("\\e", to);
        else if (*p == '-')
            fputs("\\-", to);
        else if ((*p == '.' || *p == '\'') && p == text)
            fprintf(to, "\\&%c", *p);
        else
            fputc(*p, to);
    }
}

static void put_paragraph(FILE *to, const char *macro, const char *text)
{
    if (!*text) return;
    fprintf(to, "%s\n", macro);
    put_text(to, text);
    fputc('\n', to);
}

/* Write a term with its description. */
static void put_item(FILE *to, const char *term, const char *text)
{
    fputs(".TP\n.B ", to);
    put_text(to, term);
    fputc('\n', to);
    put_text(to, text);
    fputc('\n', to);
}

/* ---- options */

static void put_values(FILE *to, OptionId id)
{
    ValueWords value;
    if (!option_value_words(id, 0, &value)) return;
    fputs(".RS\n", to);
    for (int k = 0; option_value_words(id, k, &value); k++) put_item(to, value.name, value.about);
    fputs(".RE\n", to);
}

static void put_option(FILE *to, Verb verb, OptionId id)
{
    OptionWords words;
    const OptionInfo *info = option_info(id);
    option_describe(id, verb, &words);
    put_item(to, words.term, words.story);
    put_values(to, id);
    if (info->more) put_paragraph(to, ".IP", info->more);
    put_paragraph(to, ".IP", words.condition);
    put_paragraph(to, ".IP", words.facts);
    if (info->example) put_paragraph(to, ".IP", info->example);
}

static void put_options(FILE *to, Verb verb)
{
    fputs(".SH OPTIONS\n", to);
    put_text(
        to,
        "Dashes and underscores in flags are interchangeable. Values follow as --flag=value or --flag value. --no-flag "
        "turns a flag off, and -- ends the options.");
    fputc('\n', to);
    for (OptionGroup group = 0; group < GROUP_COUNT; group++) {
        bool any = false;
        for (OptionId id = 0; id < OPTION_ID_COUNT; id++) {
            if (option_info(id)->group != group || !option_belongs(id, verb)) continue;
            if (!any) fprintf(to, ".SS \"%s\"\n", group_title(group));
            any = true;
            put_option(to, verb, id);
        }
    }
}

/* ---- sections */

static void put_exits(FILE *to, Verb verb)
{
    fputs(".SH \"EXIT STATUS\"\n", to);
    for (int code = 0; exit_meaning(code); code++) {
        char term[2] = {(char)('0' + code), 0};
        if (verb == VERB_NONE || verb_exits(verb, code)) put_item(to, term, exit_meaning(code));
    }
    if (verb == VERB_NONE || verb_exits_by_signal(verb)) put_item(to, "128+n", exit_by_signal);
}

static void put_examples(FILE *to, Verb verb)
{
    fputs(".SH EXAMPLES\n", to);
    for (const Example *example = help_examples; example->command; example++)
        if (example->verb == verb) put_item(to, example->command, example->comment);
}

static void put_commands(FILE *to)
{
    fputs(".SH COMMANDS\n", to);
    for (Verb verb = VERB_NONE + 1; verb < VERB_COUNT; verb++) {
        char usage[USAGE_BYTES], text[2 * USAGE_BYTES];
        if (verb_info(verb)->hidden) continue;
        verb_usage(verb, usage, sizeof usage);
        snprintf(text, sizeof text, "%s: towers-%s(1)", verb_info(verb)->summary, verb_info(verb)->name);
        put_item(to, usage, text);
    }
}

static void program_print(FILE *to)
{
    fputs(".TH TOWERS 1\n.SH NAME\ntowers \\- multi\\-GPU tower\\-model trainer\n.SH SYNOPSIS\n.B towers\n"
          ".I COMMAND\n[\\fIARGUMENTS\\fR] [\\fIOPTIONS\\fR]\n.SH DESCRIPTION\n"
          "Trains one model on several towers. Each tower is a replica that processes its own share of the batch; "
          "all towers apply the same averaged gradient in every step.\n",
          to);
    put_commands(to);
    fputs(".SH OPTIONS\n", to);
    put_text(to, "Those of a command are in its page, towers-COMMAND(1). 'towers help OPTION' explains one of them.");
    fputc('\n', to);
    for (OptionId id = 0; id < OPTION_ID_COUNT; id++)
        if (option_belongs(id, VERB_NONE)) put_option(to, VERB_NONE, id);
    fputs(".SH CONFIGURATION\n", to);
    for (int k = 0; configuration_words[k]; k++) put_paragraph(to, ".PP", configuration_words[k]);
    put_exits(to, VERB_NONE);
    put_examples(to, VERB_NONE);
}

static void command_print(FILE *to, Verb verb)
{
    char usage[USAGE_BYTES], name[USAGE_BYTES];
    snprintf(name, sizeof name, "towers-%s", verb_info(verb)->name);
    verb_usage(verb, usage, sizeof usage);
    fprintf(to, ".TH \"%s\" 1\n.SH NAME\n", name);
    put_text(to, name);
    fputs(" \\- ", to);
    put_text(to, verb_info(verb)->summary);
    put_paragraph(to, "\n.SH SYNOPSIS", usage);
    fputs("[\\fIOPTIONS\\fR]\n", to);
    put_examples(to, verb);
    put_options(to, verb);
    put_exits(to, verb);
    fputs(".SH \"SEE ALSO\"\n", to);
    put_text(
        to,
        "towers(1), for the order in which options from the command line, the environment, files and recipes count.");
    fprintf(to, "\nPages with more examples: docs/commands/%s.md among the documents of the program.\n",
            verb_info(verb)->name);
}

void manual_print(FILE *to, Verb verb)
{
    if (verb == VERB_NONE)
        program_print(to);
    else
        command_print(to, verb);
}
