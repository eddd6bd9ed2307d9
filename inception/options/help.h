/* Help: all documentation of the command line, generated from options.def and commands.def.
 *
 * --help is one screen with examples and the common options; --help-all lists the others too, in groups; --help-debug
 * even those that serve only to compare and to search for errors; `towers help OPTION` says all that is known of one.
 * Manual pages, docs/options.md, the generated parts of docs/commands/ and the completion scripts of three shells have
 * the same words (describe.h). All functions only write to a FILE. */
#pragma once

#include "inception/options/describe.h"
#include "towers/graph/model.h"

/* Columns of the terminal: COLUMNS, else the width of the terminal on standard output, else 80; limited to 40..160. */
int help_width(void);
/* VERB_NONE: an overview of all commands. `model` (NULL: a classifier) decides which of the options that only some models
 * have are shown. */
void help_print(FILE *to, Verb verb, const Model *model, OptionLevel level, int width);

/* Everything about the options that this word, with or without dashes, may mean: a name, an alias, a letter. ERR_ARG with
 * what is near for any other word. */
NODISCARD Status help_option_print(FILE *to, const char *word, int width);

/* The manual page of a command, or of the program (VERB_NONE), as roff (man(7)). */
void manual_print(FILE *to, Verb verb);
/* As Markdown: the generated parts of the command's page in docs/commands/, each between its marks; or docs/options.md. */
void pages_print(FILE *to, Verb verb);
NODISCARD Status manual_json(FILE *to); /* the tables for other programs; manual_json.c describes the object */

/* ERR_ARG for a shell that is not bash, zsh or fish, or NULL. */
NODISCARD Status completion_print(FILE *to, const char *shell);

typedef struct Example {
    Verb verb; /* VERB_NONE: shown in the overview */
    const char *command, *comment;
} Example;
extern const Example help_examples[]; /* all EXAMPLE rows; the last has no command */
