/* The settings of an earlier run, for one that goes on from it: what its user gave, read back from RUN/args.yaml. What is
 * typed, set in the environment or in a file wins over them; models and recipes apply anew. */
#ifndef TOWERS_INCEPTION_CLI_RUN_SETTINGS_H
#define TOWERS_INCEPTION_CLI_RUN_SETTINGS_H

#include "inception/cli/options.h"
#include "towers/graph/model.h"

/* The model of a run, from RUN/env.json. ERR_ARG if the folder is none of a run. */
NODISCARD Status run_model(const char *run, const Model **model);
/* Nothing where there is no args.yaml. */
NODISCARD Status run_settings_apply(Options *options, const char *run);

#endif
