/* The manual page and docs/options.md: options.def written as roff (man(7)) or as Markdown. */

#include "inception/options/help.h"
#include "kernels/base/text.h"

typedef struct ManualPage {
    FILE *to; /* borrowed */
    bool markdown;
    bool blank; /* Markdown: an empty line was written last */
} ManualPage;

const ExitMeaning exit_meanings[] = {
    {0, "success"},
    {1, "internal error, a bug in towers"},
    {2, "invalid usage or configuration; nothing was created"},
    {3, "invalid data files"},
    {4, "unusable checkpoint or weights file"},
    {5, "device, driver or memory failure, or a feature that this build or device lacks"},
    {6, "storage failure: a file could not be written"},
    {7, "a tower ended unexpectedly or timed out in a collective operation"},
    {8, "NaN or Inf, or towers whose weights differ"},
    {0, NULL},
};

/* Write text with the special characters of roff or Markdown escaped. */
static void put_text(ManualPage *page, const char *text)
{
    for (const char *p = text; *p; p++) {
        if (page->markdown)
            fprintf(page->to, strchr("\\`*_<>[]|#", *p) ? "\\%c" : "%c", *p);
        else if (*p == '\\')
            fputs("\\e", page->to);
        else if (*p == '-')
            fputs("\\-", page->to);
        else if ((*p == '.' || *p == '\'') && p == text)
            fprintf(page->to, "\\&%c", *p);
        else
            fputc(*p, page->to);
    }
}

/* Markdown separates headings and paragraphs by exactly one empty line. */
static void put_blank(ManualPage *page)
{
    if (page->markdown && !page->blank) fputc('\n', page->to);
    page->blank = true;
}

static void put_heading(ManualPage *page, const char *title)
{
    put_blank(page);
    fprintf(page->to, page->markdown ? "## %s\n\n" : ".SH \"%s\"\n", title);
}

static void put_paragraph(ManualPage *page, const char *text)
{
    put_blank(page);
    if (!page->markdown) fputs(".PP\n", page->to);
    put_text(page, text);
    fputc('\n', page->to);
    page->blank = false;
    put_blank(page);
}

/* Write a term with its description. */
static void put_item(ManualPage *page, const char *term, const char *text)
{
    if (page->markdown) {
        fprintf(page->to, "- `%s`: ", term);
    } else {
        fputs(".TP\n.B ", page->to);
        put_text(page, term);
        fputc('\n', page->to);
    }
    put_text(page, text);
    fputc('\n', page->to);
    page->blank = false;
}

static void add_verbs(OptionId id, char *buffer, size_t bytes)
{
    Text text = text_start(buffer, bytes);
    int shown = 0, all = 0;
    for (Verb verb = VERB_NONE + 1; verb < VERB_COUNT; verb++) {
        all += !verb_info(verb)->hidden;
        if (verb_info(verb)->hidden || !option_belongs(id, verb)) continue;
        text_add(&text, "%s%s", shown++ ? ", " : " Commands: ", verb_info(verb)->name);
    }
    if (shown == all)
        buffer[0] = 0;
    else if (shown)
        text_add(&text, ".");
}

/* Whether a resumed run may change the option. */
static const char *resume_note(OptionId id)
{
    switch (option_info(id)->resume) {
    case RESUME_SAME: return " Must not change on resume.";
    case RESUME_TOTAL: return " May change on resume unless the schedule depends on it.";
    case RESUME_MADE: return " May change on resume if its effect is the same.";
    default: return "";
    }
}

static void put_option(ManualPage *page, OptionId id)
{
    char usage[USAGE_BYTES], term[USAGE_BYTES + 8], story[STORY_BYTES], text[3 * STORY_BYTES], verbs[256], aliases[256];
    const OptionInfo *info = option_info(id);
    char letter = option_info(id)->letter;
    option_usage(id, usage, sizeof usage);
    option_story(id, story, sizeof story);
    Text names = text_start(aliases, sizeof aliases);
    /* " Alias: --wd. Commands: train, bench." */
    const char *all = option_info(id)->aliases ? option_info(id)->aliases : "";
    for (const char *p = all; *p;) {
        int length = (int)strcspn(p, ",");
        text_add(&names, "%s--%.*s", p > all ? ", " : strchr(p, ',') ? " Aliases: " : " Alias: ", length, p);
        p += length + (p[length] == ',');
    }
    if (*all) text_add(&names, ".");
    add_verbs(id, verbs, sizeof verbs);
    if (letter)
        snprintf(term, sizeof term, "-%c, %s", letter, usage);
    else
        snprintf(term, sizeof term, "%s", usage);
    snprintf(text, sizeof text, "%s.%s%s%s%s%s%s%s", story, info->more ? " " : "", info->more ? info->more : "",
             aliases, verbs, resume_note(id), info->example ? " Example: " : "", info->example ? info->example : "");
    put_item(page, term, text);
}

static void put_options(ManualPage *page)
{
    put_heading(page, page->markdown ? "Options" : "OPTIONS");
    put_paragraph(page, "Dashes and underscores in flags are interchangeable. Values follow as --flag=value or --flag "
                        "value. --no-flag turns a flag off, and -- ends the options.");
    for (OptionGroup group = 0; group < GROUP_COUNT; group++) {
        put_blank(page);
        fprintf(page->to, page->markdown ? "### %s\n\n" : ".SS \"%s\"\n", group_title(group));
        for (OptionId id = 0; id < OPTION_ID_COUNT; id++)
            if (option_info(id)->group == group && option_visible(id)) put_option(page, id);
    }
}

static void put_sources(ManualPage *page)
{
    put_heading(page, page->markdown ? "Precedence of options" : "CONFIGURATION");
    put_paragraph(
        page, "Options are taken from, in decreasing order of precedence: the command line, the environment variable "
              "TOWERS_FLAG (in capitals, with underscores), the file of --config, the options given to the run that is "
              "resumed, the recipe, the model's own settings (inception_mini has a learning rate, a schedule and "
              "more), the default. --print-config prints every value and its origin in a form that --config can read.");
    put_paragraph(page, "A configuration file is flat YAML: one 'flag: value' per line, comments after #, and quotes "
                        "around text where YAML requires them. Tags, anchors, aliases, lists, nesting, tabs, unknown "
                        "keys and duplicate keys are rejected with file, line and column.");
}

void manual_print(FILE *to, bool markdown)
{
    ManualPage page = {.to = to, .markdown = markdown};
    if (markdown) {
        fputs("# Options of towers\n\nGenerated by `towers man --markdown` from `inception/options/options.def`; edit "
              "that table instead.\n",
              to);
    } else {
        fputs(".TH TOWERS 1\n.SH NAME\ntowers \\- multi\\-GPU tower\\-model trainer\n.SH SYNOPSIS\n.B towers\n"
              ".I COMMAND\n[\\fIARGUMENTS\\fR] [\\fIOPTIONS\\fR]\n.SH DESCRIPTION\n"
              "Trains one model on several towers. Each tower is a replica that processes its own share of the batch; "
              "all towers apply the same averaged gradient in every step.\n",
              to);
    }
    put_heading(&page, page.markdown ? "Commands" : "COMMANDS");
    for (Verb verb = VERB_NONE + 1; verb < VERB_COUNT; verb++) {
        char term[USAGE_BYTES];
        const VerbInfo *info = verb_info(verb);
        if (info->hidden) continue;
        snprintf(term, sizeof term, "towers %s%s%s", info->name, *info->arguments ? " " : "", info->arguments);
        put_item(&page, term, info->summary);
    }
    put_options(&page);
    put_sources(&page);
    put_heading(&page, page.markdown ? "Exit status" : "EXIT STATUS");
    for (const ExitMeaning *e = exit_meanings; e->meaning; e++) {
        char code[8];
        snprintf(code, sizeof code, "%d", e->code);
        put_item(&page, code, e->meaning);
    }
    put_item(&page, "128+n", "ended by signal n, after saving a checkpoint");
    put_heading(&page, page.markdown ? "Examples" : "EXAMPLES");
    for (const Example *example = help_examples; example->command; example++)
        if (example->verb != VERB_NONE) put_item(&page, example->command, example->comment);
}
