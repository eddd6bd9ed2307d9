/* Options that have no effect because of another one: an error when given on the command line. From a file, a recipe or
 * a model they are accepted, because those serve several commands. */
#ifndef TOWERS_INCEPTION_CLI_USES_H
#define TOWERS_INCEPTION_CLI_USES_H

#include "inception/cli/options.h"

/* ERR_ARG naming the option and what it applies to. */
NODISCARD Status uses_check(const Options *options);

#endif
