/* A run in the place of MODEL: `towers eval RUN` means the model, the settings that decide what the network is and what
 * it reads, and the weights of that run. The command line, the environment and --config win over them. */
#ifndef TOWERS_INCEPTION_CLI_RUN_ARGUMENT_H
#define TOWERS_INCEPTION_CLI_RUN_ARGUMENT_H

#include "inception/cli/options.h"

/* Nothing if the first argument is a model, or no folder. */
NODISCARD Status run_argument_apply(Options *options);

#endif
