/* Help: all documentation of the command line, generated from options.def and commands.def.
 *
 * --help is one screen with examples and the common options; --help-all lists the others too, in groups; --help-debug
 * even those that serve only to compare and to search for errors. The manual page, its Markdown version
 * (docs/options.md) and the completion scripts of three shells come from the same tables. All functions only write to a
 * FILE. */
#pragma once

#include "inception/options/options.h"
#include "towers/graph/model.h"

/* Columns of the terminal: COLUMNS, else the width of the terminal on standard output, else 80; limited to 40..160. */
int help_width(void);
/* VERB_NONE: an overview of all commands. `model` (NULL: a classifier) decides which of the options that only some models
 * have are shown. */
void help_print(FILE *to, Verb verb, const Model *model, OptionLevel level, int width);

void manual_print(FILE *to, bool markdown);
NODISCARD Status manual_json(FILE *to); /* the tables for other programs; manual_json.c describes the object */

/* ERR_ARG for a shell that is not bash, zsh or fish, or NULL. */
NODISCARD Status completion_print(FILE *to, const char *shell);

/* The usage of an option: "--batch-size N", "--[no-]aux", "--opt NAME". */
void option_usage(OptionId id, char *text, size_t bytes);
/* Help text with choices and default, as one sentence. */
void option_story(OptionId id, char *text, size_t bytes);
/* True if the option is documented; false if only hidden commands have it. */
bool option_visible(OptionId id);

enum { STORY_BYTES = 768, USAGE_BYTES = 96 };

typedef struct Example {
    Verb verb; /* VERB_NONE: shown in the overview */
    const char *command, *comment;
} Example;
extern const Example help_examples[]; /* all EXAMPLE rows; the last has no command */

typedef struct ExitMeaning {
    int code;
    const char *meaning;
} ExitMeaning;
extern const ExitMeaning exit_meanings[]; /* the last has no meaning */
