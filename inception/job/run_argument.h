/* A run directory or a file of weights instead of MODEL: `towers eval RUN` uses the model, the network and input
 * settings, and the weights of that run. Command line, environment and --config override them. */
#pragma once

#include "inception/options/options.h"
#include "towers/files/files.h"
#include "towers/files/json.h"
#include "towers/graph/model.h"

/* For a model, only applies what the file of --weights says about its input (facts.h). */
NODISCARD Status run_argument_apply(Options *options);

/* run_settings.c: the model of a run, from RUN/env.json. ERR_ARG if the folder is not that of a run. */
NODISCARD Status run_model(const char *run, const Model **model);
/* RUN/args.yaml, whose path becomes `path`, if it is whole; the caller frees the text. */
NODISCARD Status run_settings_load(const char *run, char path[PATH_BYTES], char **text, size_t *bytes);
/* What options mean that a run's version had not yet, where that is not their default: before its own settings are applied. */
NODISCARD Status run_settings_before(Options *options, const char *text, OptionOrigin origin, const char *path);
/* The settings of an earlier run for a run that resumes it: those given by its user, and those of a recipe that it got by
 * default. Command line, environment and --config override them; models and recipes that the user chose are applied anew. Does
 * nothing if there is no args.yaml. *text receives what was applied, as options_apply_bytes takes it; owned by the caller, NULL if
 * nothing was. */
NODISCARD Status run_settings_apply(Options *options, const char *run, char **text, size_t *bytes);
