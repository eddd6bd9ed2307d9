/* Temperature scaling (Guo et al., "On Calibration of Modern Neural Networks", 2017): logits are divided by one number T
 * before softmax, so that probabilities are those of being right; the most probable class stays the same. From
 * probabilities p it is p[k]^(1/T) / sum of p[i]^(1/T), because logits are ln p but for a constant. */
#pragma once

#include "kernels/base/status.h"
#include "towers/replica/ledger.h"

/* Every temperature that is fitted or read lies between them. */
#define TEMPERATURE_LEAST 0.05
#define TEMPERATURE_MOST 20.0

/* In place, in double precision; a probability below the least normal f32 counts as that. */
void temperature_apply(double temperature, float *prob, int64_t classes);
/* The same from logarithms of probabilities, which are finite where those are 0 in f32. Returns the loss of `label`. */
double temperature_apply_logs(double temperature, float *log_prob, int64_t classes, int32_t label);

/* The temperature of the least mean negative log-likelihood of the samples' labels. `log_prob` [count][classes]; samples
 * with LABEL_NONE are left out. ERR_ARG if there is no minimum in the range above. */
NODISCARD Status temperature_fit(const EvalSample *samples, const float *log_prob, int64_t count, int64_t classes,
                                 double *temperature);
