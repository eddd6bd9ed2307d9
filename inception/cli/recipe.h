/* Recipes: published settings as YAML files, inside the binary. A recipe is applied over the model's defaults and under
 * everything that the user says. */
#ifndef TOWERS_INCEPTION_CLI_RECIPE_H
#define TOWERS_INCEPTION_CLI_RECIPE_H

#include "inception/cli/options.h"

typedef struct Recipe {
    const char *name, *text; /* "tf2016"; its first line is a comment that says what it is */
} Recipe;

extern const Recipe recipes[]; /* ended by a NULL name */

/* What --recipe names: one of the table, or the path of a file (a name with '/' or '.'). ERR_ARG if there is none. */
NODISCARD Status recipe_apply(Options *options);
void recipes_print(FILE *to);

#endif
