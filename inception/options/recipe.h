/* Recipes: published settings as YAML files, embedded in the binary. A recipe overrides the model's defaults and is
 * overridden by everything that the user sets. */
#pragma once

#include "inception/options/options.h"

typedef struct Recipe {
    const char *name, *text; /* "tf2016"; its first line is a comment with its title */
} Recipe;

extern const Recipe recipes[]; /* the last has a NULL name */

/* Apply --recipe, the name of a built-in recipe or a file's path (contains '/' or '.'). ERR_ARG if there is none. The
 * warm-up of a recipe that was chosen is at most a third of the run, whose length is the user's. */
NODISCARD Status recipe_apply(Options *options);
/* Choose a built-in recipe that the user has not asked for, and apply it. */
NODISCARD Status recipe_choose(Options *options, const char *name);
bool recipe_is_built_in(const char *name);
void recipes_print(FILE *to);
/* For --dry-run: the line "not reproduced ..." of a built-in recipe whose opening comment has the sentence "Not
 * reproduced: ...". */
void recipe_gaps_print(const Options *options, FILE *to);
