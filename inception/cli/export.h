/* export: weights of a run as a file for other programs. */
#ifndef TOWERS_INCEPTION_CLI_EXPORT_H
#define TOWERS_INCEPTION_CLI_EXPORT_H

#include "inception/cli/job.h"

/* safetensors that PyTorch's load_state_dict(strict=True) takes, or ONNX (towers/store/onnx.h). Prints what was written.
 * Wants job_model first. */
NODISCARD Status export_run(const Options *options, const JobFiles *files, FILE *to);

#endif
