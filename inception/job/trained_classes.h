/* The classes that a file of weights learned, and the data that it meets: which class is which (class_match.h). */
#pragma once

#include <jansson.h>

#include "inception/job/job.h"

/* The names of the classes of a weights file (facts.h), as an array that the caller owns; NULL if they are not known, or
 * one is empty. */
json_t *trained_names(const Options *options, const char *weights);
/* How many there are, as far as the file or its names say; else 0. */
int64_t trained_count(const Options *options, const char *weights);

/* Evaluation: the labels of *data, which is replaced and NULL after an error, become the classes of `weights`. What no name
 * says becomes a note of the job. */
NODISCARD Status trained_match(const Options *options, const char *weights, JobFiles *files, Source **data);

/* --pretrained: a classifier that is kept must be one of the classes of the data in their order. ERR_ARG if names say that it
 * is not; a note of the job if none are known. */
NODISCARD Status trained_head_check(const Options *options, const char *weights, JobFiles *files);
