/* towers fid RUN|FOLDER --features CLASSIFIER: KID and FID of generated images, beside those of the test set (the floor)
 * and of noise (the ceiling), the classes that they fall into, and their nearest training images. */
#ifndef TOWERS_INCEPTION_CLI_FID_H
#define TOWERS_INCEPTION_CLI_FID_H

#include "inception/cli/job.h"

NODISCARD Status fid_run(Options *options, JobFiles *files, FILE *to);

#endif
