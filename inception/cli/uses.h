/* Options that another one leaves without any use: typed, they are refused rather than ignored. Those that come from a
 * file, a recipe or a model are left alone, for these serve several commands. */
#ifndef TOWERS_INCEPTION_CLI_USES_H
#define TOWERS_INCEPTION_CLI_USES_H

#include "inception/cli/options.h"

/* ERR_ARG with the option, and what it is of. */
NODISCARD Status uses_check(const Options *options);

#endif
