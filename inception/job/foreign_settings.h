/* The settings of a run that comes from a store. Others may have written them, and they may name commands to run and files of this machine; the
 * column `.brought` of options.def says which do. */
#pragma once

#include "inception/options/options.h"

/* Comment out in RUN/args.yaml what names such, so that no later resume of it takes them, either; and report each that this call does not give,
 * and that is left out. Errors: ERR_ARG if one is not left out, but has to be given by this call; ERR_FORMAT if one is written in a way in
 * which this program writes none. */
NODISCARD Status foreign_settings_close(const Options *call, const char *run,
                                        void (*report)(void *context, const char *flag, const char *value),
                                        void *context);

/* ERR_ARG if RUN, a copy of a run in the store that was here before, has a command that this call does not give: a tool of the store may have
 * brought it. */
NODISCARD Status foreign_commands_refuse(const Options *call, const char *run);
