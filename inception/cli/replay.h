/* replay: one tower's bad step again, from its capsule, op by op. */
#ifndef TOWERS_INCEPTION_CLI_REPLAY_H
#define TOWERS_INCEPTION_CLI_REPLAY_H

#include "inception/cli/options.h"

/* A line for every output of every op, up to the first that is not finite. OK if there is none; ERR_NUMERIC
 * names it. */
NODISCARD Status replay_run(const Options *options, const char *path, FILE *to);

#endif
