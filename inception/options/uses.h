/* Options that have no effect because of another one: an error when given on the command line. From a file, a recipe or
 * a model they are accepted, because those serve several commands. */
#ifndef TOWERS_INCEPTION_CLI_USES_H
#define TOWERS_INCEPTION_CLI_USES_H

#include "inception/options/options.h"
#include "towers/graph/model.h"

/* ERR_ARG naming the option and what it applies to. */
NODISCARD Status uses_check(const Options *options);
/* The same for a subcommand of towers data. */
NODISCARD Status uses_of_data_check(const Options *options, const char *subcommand);
/* The same for options of another kind of model; and ERR_UNSUPPORTED, wherever it was set, for what this one cannot do. */
NODISCARD Status uses_of_model_check(const Options *options, const Model *model);

#endif
