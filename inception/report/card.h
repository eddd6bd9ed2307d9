/* A model card in Markdown (Mitchell et al., "Model Cards for Model Reporting", 2019): what a run was trained on and
 * with which settings, how well it does on each class, what it was not tested on, and how to make it again. Made from
 * the records of the run alone; what they do not have is said to be missing. */
#pragma once

#include "kernels/status.h"

/* Errors: those of run_read; ERR_ARG for a folder without records. */
NODISCARD Status card_print(const char *run_dir, FILE *to);
