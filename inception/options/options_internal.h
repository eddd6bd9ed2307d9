/* Shared by the files behind options.h: options_table.c (names and rows), options_value.c (text to value and back) and
 * options.c (origins). Not for other files. */
#pragma once

#include "inception/options/options.h"

enum { NAME_BYTES = 64, LABEL_BYTES = 512 };

typedef union OptionValue {
    int64_t integer;
    double real;
    bool flag;
    int choice;
    IntList list;
    const char *text; /* borrowed */
} OptionValue;

/* Compare names, treating dashes and underscores as equal; `b` has `bytes` characters. */
bool same_name(const char *a, const char *b, size_t bytes);
/* Whether `aliases` (NULL: none), separated by commas, have this name. */
bool has_alias(const char *name, const char *aliases);
/* The k-th option that excludes this one; OPTION_ID_COUNT after the last. */
OptionId option_rival(OptionId id, int k);
/* "; did you mean --batch-size?", or "". `dashes` is "--" or "". */
void suggest_option(Verb verb, const char *typed, const char *dashes, char *text, size_t bytes);
/* "; did you mean 'towers help sched'?", or options whose names contain the word, or "". */
void words_near(const char *word, char *text, size_t bytes);
/* The commands that have this option: "train, bench". */
void list_verbs(OptionId id, char *text, size_t bytes);

/* A copy that lives as long as the options. */
NODISCARD Status keep_text(Options *options, const char *text, const char **kept);
/* ERR_ARG for SCHEME://..., which is no path: a folder named "s3:" would be made. */
NODISCARD Status address_check(const char *text, const char *label);
/* ERR_ARG if the text does not fit the option's type and range; `label` starts the message. Texts are borrowed. */
NODISCARD Status read_value(const OptionInfo *info, const char *text, const char *label, OptionValue *value);
