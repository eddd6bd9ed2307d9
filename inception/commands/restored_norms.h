/* The values of batch norms that --norms restore has put behind convolutions: mean and variance of what each convolution computes
 * from images of the training data, prepared as for an evaluation, and the scale and shift that undo them. */
#pragma once

#include "inception/job/job.h"

/* Only the first program of a job measures, and only for a run that begins with the values of its network's file; else nothing is
 * done. The images are up to 512, evenly spaced in the order of the data; the processor computes, so that the values are
 * the same for any towers and devices. Errors: those of reading data and weights. */
NODISCARD Status restored_norms_measure(const Options *options, JobFiles *files);
