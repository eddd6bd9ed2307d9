/* A run directory instead of MODEL: `towers eval RUN` uses the model, the network and input settings, and the weights
 * of that run. Command line, environment and --config override them. */
#ifndef TOWERS_INCEPTION_CLI_RUN_ARGUMENT_H
#define TOWERS_INCEPTION_CLI_RUN_ARGUMENT_H

#include <jansson.h>

#include "inception/options/options.h"

/* Does nothing if the first argument is a model or not a folder. */
NODISCARD Status run_argument_apply(Options *options);
/* The names of the classes, from env.json beside a weights file, as an array that the caller owns; NULL if it has none. */
json_t *run_class_names(const char *weights);

#endif
