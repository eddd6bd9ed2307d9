/* --help and --help-all: examples first, then options in two columns, wrapped to the terminal's width. */
#include "inception/options/help.h"
#include "inception/models/models.h"
#include "inception/options/conditions.h"
#include "inception/options/options_internal.h"
#include "kernels/base/text.h"

#include <sys/ioctl.h>
#include <unistd.h>

enum { LEAST_WIDTH = 40, MOST_WIDTH = 160, USUAL_WIDTH = 80, TEXT_COLUMN = 26, NARROW_COLUMN = 12, NARROW_WIDTH = 64 };

const Example help_examples[] = {
#define EXAMPLE(verb, command, comment) {VERB_##verb, command, comment},
#include "inception/options/commands.def"
    {VERB_NONE, NULL, NULL},
};

int help_width(void)
{
    const char *columns = getenv("COLUMNS");
    struct winsize size = {0};
    long width = columns ? strtol(columns, NULL, 10) : 0;
    if (width <= 0 && !ioctl(STDOUT_FILENO, TIOCGWINSZ, &size)) width = size.ws_col;
    if (width <= 0) width = USUAL_WIDTH;
    return width < LEAST_WIDTH ? LEAST_WIDTH : width > MOST_WIDTH ? MOST_WIDTH : (int)width;
}

/* ---- two columns */

/* Print `text` from `column` on, wrapped at blanks, with the cursor at column `at`; ends the line. */
static void print_wrapped(FILE *to, const char *text, int at, int column, int width)
{
    fprintf(to, "%*s", column - at, "");
    at = column;
    for (const char *word = text; *word;) {
        int bytes = (int)strcspn(word, " ");
        if (at > column && at + 1 + bytes > width) {
            fprintf(to, "\n%*s", column, "");
            at = column;
        }
        at += fprintf(to, "%s%.*s", at > column ? " " : "", bytes, word);
        word += bytes;
        while (*word == ' ') word++;
    }
    fputc('\n', to);
}

static int text_column(int width)
{
    return width < NARROW_WIDTH ? NARROW_COLUMN : TEXT_COLUMN;
}

static void print_row(FILE *to, const char *left, const char *right, int column, int width)
{
    int at = fprintf(to, "%s", left);
    if (at + 2 > column) {
        fputc('\n', to);
        at = 0;
    }
    print_wrapped(to, right, at, column, width);
}

static void print_option(FILE *to, OptionId id, int width)
{
    char usage[USAGE_BYTES], left[USAGE_BYTES + 8], story[STORY_BYTES];
    char letter = option_info(id)->letter;
    option_usage(id, usage, sizeof usage);
    option_story(id, story, sizeof story);
    if (letter)
        snprintf(left, sizeof left, "  -%c, %s", letter, usage);
    else
        snprintf(left, sizeof left, "      %s", usage);
    print_row(to, left, story, text_column(width), width);
}

/* The options of a command up to a level. */
static void print_options(FILE *to, Verb verb, const Model *model, OptionLevel most, int width)
{
    OptionGroup group = GROUP_COUNT;
    bool any = verb == VERB_GENERATE || verb == VERB_FID || verb == VERB_EXPORT; /* of generators */
    if (most == LEVEL_BASIC) fputs("\nOptions:\n", to);
    for (OptionId id = 0; id < OPTION_ID_COUNT; id++) {
        OptionLevel level = option_info(id)->level;
        if (!option_belongs(id, verb) || (!any && !option_concerns(id, model))) continue;
        if ((level != LEVEL_BASIC && most == LEVEL_BASIC) || (level == LEVEL_DEBUG && most != LEVEL_DEBUG)) continue;
        if (most != LEVEL_BASIC && option_info(id)->group != group)
            fprintf(to, "\n%s:\n", group_title(option_info(id)->group));
        group = option_info(id)->group;
        print_option(to, id, width);
    }
}

static void print_verbs(FILE *to, int width)
{
    fputs("\nCommands:\n", to);
    for (Verb verb = VERB_NONE + 1; verb < VERB_COUNT; verb++) {
        char left[USAGE_BYTES];
        const VerbInfo *info = verb_info(verb);
        if (info->hidden) continue;
        snprintf(left, sizeof left, "  %s %s", info->name, info->arguments);
        print_row(to, left, info->summary, text_column(width), width);
    }
}

/* Comments that fit on the lines of their commands stand in one column if they have room there. */
static void print_examples(FILE *to, Verb verb, int width)
{
    int column = 0;
    for (const Example *e = help_examples; e->command; e++) {
        int command = (int)strlen(e->command), comment = (int)strlen(e->comment);
        if (e->verb == verb && command > column && command + comment + 6 <= width) column = command;
    }
    bool first = true;
    for (const Example *e = help_examples; e->command; e++) {
        int command = (int)strlen(e->command), comment = (int)strlen(e->comment);
        if (e->verb != verb) continue;
        fprintf(to, "%s  %s", first ? "\nExamples:\n" : "", e->command);
        first = false;
        if (command + comment + 6 <= width)
            fprintf(to, "%*s  # %s", column + comment + 6 <= width ? column - command : 0, "", e->comment);
        fputc('\n', to);
    }
}

void help_print(FILE *to, Verb verb, const Model *model, OptionLevel level, int width)
{
    const VerbInfo *info = verb_info(verb);
    char usage[USAGE_BYTES], title[2 * USAGE_BYTES];
    snprintf(usage, sizeof usage, "%s%s%s", info->name, *info->arguments ? " " : "", info->arguments);
    snprintf(title, sizeof title, "towers %s [OPTIONS]: %s", verb == VERB_NONE ? "COMMAND" : usage,
             verb == VERB_NONE ? "train convolutional networks on one or more towers (model replicas)" : info->summary);
    print_wrapped(to, title, 0, 0, width);
    print_examples(to, verb, width);
    if (verb == VERB_NONE) print_verbs(to, width);
    print_options(to, verb, model, level, width);
    fputc('\n', to);
    if (verb == VERB_NONE)
        print_wrapped(to, "See also: 'towers help COMMAND', 'towers help OPTION', 'man towers'.", 0, 0, width);
    else if (option_belongs(OPTION_ID_config, verb))
        print_wrapped(
            to,
            "'towers help OPTION' explains one. All can be set in --config FILE ('flag: value') or as TOWERS_FLAG. "
            "Precedence: command line, environment, file, recipe.",
            0, 0, width);
    else
        print_wrapped(
            to,
            "'towers help OPTION' explains one. Options can also be set in the environment (TOWERS_FLAG); the "
            "command line overrides it.",
            0, 0, width);
}

/* ---- one option */

static void print_values(FILE *to, OptionId id, int width)
{
    ValueWords value;
    char left[sizeof value.name + 4];
    int column = 0;
    for (int k = 0; option_value_words(id, k, &value); k++)
        column = (int)strlen(value.name) + 4 > column ? (int)strlen(value.name) + 4 : column;
    if (column) fputc('\n', to);
    for (int k = 0; option_value_words(id, k, &value); k++) {
        snprintf(left, sizeof left, "  %s", value.name);
        print_row(to, left, value.about, column, width);
    }
}

static void print_paragraph(FILE *to, const char *before, const char *text, int width)
{
    if (!*text) return;
    fprintf(to, "\n%s", before);
    print_wrapped(to, text, (int)strlen(before), (int)strlen(before), width);
}

static void print_explained(FILE *to, OptionId id, int width)
{
    OptionWords words;
    const OptionInfo *info = option_info(id);
    char line[sizeof words.term + sizeof words.story + 4];
    option_describe(id, VERB_NONE, &words);
    snprintf(line, sizeof line, "%s: %s", words.term, words.story);
    print_wrapped(to, line, 0, 0, width);
    print_values(to, id, width);
    if (info->more) print_paragraph(to, "", info->more, width);
    print_paragraph(to, "", words.condition, width);
    print_paragraph(to, "", words.facts, width);
    print_paragraph(to, "Goes with it: ", words.related, width);
    if (info->example) fprintf(to, "\nExample:\n  %s\n", info->example);
}

/* The option of which the word is a value: "cosine". */
static OptionId option_of_value(const char *word)
{
    for (OptionId id = 0; id < OPTION_ID_COUNT; id++) {
        ValueWords value;
        for (int k = 0; option_visible(id) && option_value_words(id, k, &value); k++)
            if (!strcmp(value.name, word)) return id;
    }
    return OPTION_ID_COUNT;
}

static Status refuse_word(const char *word)
{
    char near[FACTS_BYTES];
    const Model *model;
    OptionId of = option_of_value(word);
    words_near(word, near, sizeof near);
    if (of != OPTION_ID_COUNT)
        return FAIL(ERR_ARG, "'%s' is a value of --%s; 'towers help %s' explains it", word, option_info(of)->flag,
                    option_info(of)->flag);
    if (model_find(word, &model) == OK)
        return FAIL(ERR_ARG, "'%s' is a model; 'towers info %s' describes it", word, word);
    return FAIL(ERR_ARG,
                "'%s' is neither a command nor an option%s ('towers help' lists the commands, 'towers COMMAND "
                "--help-all' their options)",
                word, near);
}

Status help_option_print(FILE *to, const char *word, int width)
{
    const char *name = word + strspn(word, "-");
    bool negated, any = false;
    OptionId found = option_find(name, &negated);
    for (OptionId id = 0; id < OPTION_ID_COUNT; id++) {
        bool letter = *name && !name[1] && option_info(id)->letter == *name;
        if (!option_visible(id) || (id != found && !letter)) continue;
        if (any) fputs("\n", to);
        print_explained(to, id, width);
        any = true;
    }
    return any ? OK : refuse_word(word);
}
