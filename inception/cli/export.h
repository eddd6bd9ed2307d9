/* export: write the weights of a run for use by other programs. */
#ifndef TOWERS_INCEPTION_CLI_EXPORT_H
#define TOWERS_INCEPTION_CLI_EXPORT_H

#include "inception/cli/job.h"

/* Writes safetensors that PyTorch's load_state_dict(strict=True) accepts, or ONNX (towers/store/onnx.h), and prints
 * what it wrote. job_model must have been called. */
NODISCARD Status export_run(const Options *options, const JobFiles *files, FILE *to);

#endif
