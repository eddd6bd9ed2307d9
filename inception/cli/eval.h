/* towers eval: output of an evaluation: accuracy, scores of each class, the list of mistakes. */
#ifndef TOWERS_INCEPTION_CLI_EVAL_H
#define TOWERS_INCEPTION_CLI_EVAL_H

#include "inception/cli/job.h"

/* Print the data to be evaluated as one line on stderr. */
void eval_introduce(const JobFiles *files);
/* `samples` [of the test set]. Results go to stdout; --errors and --class-scores to their files. */
NODISCARD Status eval_print(const Options *options, const JobFiles *files, const EvalResult *result,
                            const EvalSample *samples);

#endif
