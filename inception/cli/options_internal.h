/* What the files of options.h share: options_table.c (names and rows), options_value.c (text to value and back) and
 * options.c (origins). Nobody else includes this. */
#ifndef TOWERS_INCEPTION_CLI_OPTIONS_INTERNAL_H
#define TOWERS_INCEPTION_CLI_OPTIONS_INTERNAL_H

#include "inception/cli/options.h"

enum { NAME_BYTES = 64, LABEL_BYTES = 512 };

typedef union OptionValue {
    int64_t integer;
    double real;
    bool flag;
    int choice;
    IntList list;
    const char *text; /* borrowed */
} OptionValue;

extern const Options option_defaults;

/* Equal up to dashes and underscores; `b` has `bytes` characters. */
bool same_name(const char *a, const char *b, size_t bytes);
/* The k-th option that excludes this one; OPTION_ID_COUNT behind the last. */
OptionId option_rival(OptionId id, int k);
/* "; did you mean --batch-size?", or "". `dashes` is "--" or "". */
void suggest_option(Verb verb, const char *typed, const char *dashes, char *text, size_t bytes);
/* The verbs that have it: "train, bench". */
void list_verbs(OptionId id, char *text, size_t bytes);

/* ERR_ARG for what the option's type and range do not allow; `label` opens the message. A text is borrowed. */
NODISCARD Status read_value(const OptionInfo *info, const char *text, const char *label, OptionValue *value);

#endif
