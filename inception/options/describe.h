/* What is said about an option: by --help, `towers help OPTION`, man pages and docs/commands/ alike, all of it made from
 * options.def, optimizers.def and the titles of recipes. */
#pragma once

#include "inception/options/options.h"

enum { STORY_BYTES = 768, USAGE_BYTES = 96, FACTS_BYTES = 640 };

typedef struct OptionWords {
    char term[USAGE_BYTES];      /* "-b, --batch-size N|max" */
    char story[STORY_BYTES];     /* what it is, with choices and default, as one phrase */
    char condition[FACTS_BYTES]; /* "Only with --augment.", or "" */
    char facts
        [FACTS_BYTES]; /* its commands, aliases, options that exclude it, and whether a resumed run may change it */
    char related[FACTS_BYTES]; /* options that have an effect only with it: "--crop, --flip"; or "" */
} OptionWords;

typedef struct ValueWords { /* one of the values that an option chooses from */
    char name[64];
    char about[STORY_BYTES]; /* what it is, and when to use it */
} ValueWords;

/* For one command, or for all that have it (VERB_NONE). */
void option_describe(OptionId id, Verb verb, OptionWords *words);
/* The value number k; false behind the last one. */
bool option_value_words(OptionId id, int k, ValueWords *words);

/* The usage of an option: "--batch-size N", "--[no-]aux", "--opt NAME". */
void option_usage(OptionId id, char *text, size_t bytes);
/* Help text with choices and default, as one phrase. */
void option_story(OptionId id, char *text, size_t bytes);
/* The default as text, "" if there is none that can be shown. */
void option_usual(OptionId id, char *text, size_t bytes);
/* True if the option is documented; false if only hidden commands have it. */
bool option_visible(OptionId id);
/* The command whose page explains the option: the first that has it. VERB_NONE for --version alone. */
Verb option_home(OptionId id);

/* "towers train MODEL" */
void verb_usage(Verb verb, char *text, size_t bytes);
/* Whether the command may end with this code (0 to 8), and what the code means; NULL for other codes. */
bool verb_exits(Verb verb, int code);
const char *exit_meaning(int code);
/* Whether it may end with 128 + the number of a signal that it has taken, and what that means. */
bool verb_exits_by_signal(Verb verb);
extern const char exit_by_signal[];
/* Where values come from: paragraphs, the last is NULL. */
extern const char *const configuration_words[];
