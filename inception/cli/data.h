/* towers data: looks at, checks, measures, shows and shrinks a data set of images. */
#ifndef TOWERS_INCEPTION_CLI_DATA_H
#define TOWERS_INCEPTION_CLI_DATA_H

#include "inception/cli/options.h"
#include "towers/data/source.h"

/* ERR_FORMAT from `check` if an image is damaged, after all have been named. */
NODISCARD Status data_run(const Options *options, FILE *to);
/* data_convert.c: `convert SRC DST`; what is there already is left alone, so that a broken-off run can be continued. */
NODISCARD Status data_convert(const Options *options, FILE *to);
/* data_survey.c */
NODISCARD Status data_info(const Options *options, FILE *to);
NODISCARD Status data_check(const Options *options, FILE *to);
int data_threads(const Options *options);
void data_progress(int64_t done, int64_t all);
/* Opens PATH's split; for sets without one for evaluation also with --val-split 0: then all of it is for training, and
 * *made is NULL for the other. */
NODISCARD Status data_open(const Options *options, const char *path, Split split, Source **made);

#endif
