/* Help: everything that people and shells read about the command line, written from options.def.
 *
 * --help is one screen of the usual options with examples first, --help-all has all of them in groups; the manual page,
 * its Markdown twin (docs/options.md) and the completions of three shells are the same table in other clothes. All
 * write to a FILE and touch nothing else. */
#ifndef TOWERS_INCEPTION_CLI_HELP_H
#define TOWERS_INCEPTION_CLI_HELP_H

#include "inception/cli/options.h"

/* Columns of the terminal: COLUMNS, else the terminal of standard output, else 80; kept within 40..160. */
int help_width(void);
/* VERB_NONE: the overview with all commands. */
void help_print(FILE *to, Verb verb, bool all, int width);

void manual_print(FILE *to, bool markdown);

/* ERR_ARG for a shell that is not bash, zsh or fish, or NULL. */
NODISCARD Status completion_print(FILE *to, const char *shell);

/* "--batch-size N", "--[no-]aux", "--opt NAME": how an option is typed. */
void option_usage(OptionId id, char *text, size_t bytes);
/* Its help, its choices and its default in one sentence. */
void option_story(OptionId id, char *text, size_t bytes);
/* May this option be shown to people for this verb? (Not what only hidden verbs have.) */
bool option_visible(OptionId id);

enum { STORY_BYTES = 768, USAGE_BYTES = 96 };

typedef struct Example {
    Verb verb; /* VERB_NONE: of the overview */
    const char *command, *comment;
} Example;
/* All rows of EXAMPLE, ended by one without a command. */
const Example *help_examples(void);

#endif
