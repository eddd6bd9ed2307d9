/* A run directory or a file of weights instead of MODEL: `towers eval RUN` uses the model, the network and input
 * settings, and the weights of that run. Command line, environment and --config override them. */
#pragma once

#include <jansson.h>

#include "inception/options/options.h"

/* For a model, only applies what the file of --weights says about its input (facts.h). */
NODISCARD Status run_argument_apply(Options *options);
/* The names of the classes of a weights file (facts.h), as an array that the caller owns; NULL if they are not known, or
 * one is empty. */
json_t *run_class_names(const Options *options, const char *weights);
