/* replay: run a refused step of one tower again, op by op, from its capsule. */
#ifndef TOWERS_INCEPTION_CLI_REPLAY_H
#define TOWERS_INCEPTION_CLI_REPLAY_H

#include "inception/cli/options.h"

/* Prints a line for every output of every op, up to the first that is not finite, which ERR_NUMERIC names. */
NODISCARD Status replay_run(const Options *options, const char *path, FILE *to);

#endif
