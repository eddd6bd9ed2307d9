/* The settings of an earlier run for a run that resumes it: those given by its user, and those of a recipe that it got by
 * default, read from RUN/args.yaml. Command line, environment and --config override them; models and recipes that the
 * user chose are applied anew. */
#pragma once

#include "inception/options/options.h"
#include "towers/files/files.h"
#include "towers/graph/model.h"

/* The model of a run, from RUN/env.json. ERR_ARG if the folder is not that of a run. */
NODISCARD Status run_model(const char *run, const Model **model);
/* RUN/args.yaml, whose path becomes `path`, if it is whole; the caller frees the text. */
NODISCARD Status run_settings_load(const char *run, char path[PATH_BYTES], char **text, size_t *bytes);
/* Does nothing if there is no args.yaml. *text receives what was applied, as options_apply_bytes takes it; owned by the
 * caller, NULL if nothing was. */
NODISCARD Status run_settings_apply(Options *options, const char *run, char **text, size_t *bytes);
