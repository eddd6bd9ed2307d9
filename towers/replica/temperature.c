/* With b = 1 / T and l = ln p, the loss of a sample is ln(sum of exp(b l[k])) - b l[label]: convex in b, with the mean of l
 * under the scaled probabilities minus l[label] as its slope, and the variance of l as its curvature. Newton's method
 * inside a bracket finds the minimum. */
#include "towers/replica/temperature.h"

#include <float.h>

static double log_of(float prob)
{
    return log((double)(prob < FLT_MIN ? FLT_MIN : prob)); /* NaN stays NaN */
}

static double greatest(const float *x, int64_t count)
{
    float most = x[0];
    for (int64_t k = 1; k < count; k++) most = x[k] > most ? x[k] : most;
    return (double)most;
}

void temperature_apply(double temperature, float *prob, int64_t classes)
{
    double sum = 0, top = log_of((float)greatest(prob, classes));
    for (int64_t k = 0; k < classes; k++) sum += exp((log_of(prob[k]) - top) / temperature);
    for (int64_t k = 0; k < classes; k++) prob[k] = (float)(exp((log_of(prob[k]) - top) / temperature) / sum);
}

double temperature_apply_logs(double temperature, float *log_prob, int64_t classes, int32_t label)
{
    double sum = 0, top = greatest(log_prob, classes), away = (top - (double)log_prob[label]) / temperature;
    for (int64_t k = 0; k < classes; k++) sum += exp(((double)log_prob[k] - top) / temperature);
    for (int64_t k = 0; k < classes; k++) log_prob[k] = (float)(exp(((double)log_prob[k] - top) / temperature) / sum);
    return away + log(sum);
}

/* Adds the slope and the curvature of a sample's loss. */
static void sample_add(const float *log_prob, int64_t classes, int32_t label, double b, double *slope,
                       double *curvature)
{
    double sum = 0, first = 0, second = 0, top = greatest(log_prob, classes);
    for (int64_t k = 0; k < classes; k++) {
        double l = (double)log_prob[k] - top, mass = exp(b * l);
        sum += mass;
        first += mass * l;
        second += mass * l * l;
    }
    *slope += first / sum - ((double)log_prob[label] - top);
    *curvature += second / sum - first / sum * (first / sum);
}

Status temperature_fit(const EvalSample *samples, const float *log_prob, int64_t count, int64_t classes,
                       double *temperature)
{
    enum { ROUNDS = 100 };
    double low = 1 / TEMPERATURE_MOST, high = 1 / TEMPERATURE_LEAST, b = 1, moved = 1;
    for (int round = 0; round < ROUNDS && fabs(moved) > 1e-12 * b; round++) {
        double slope = 0, curvature = 0;
        for (int64_t i = 0; i < count; i++)
            if (samples[i].label != LABEL_NONE)
                sample_add(log_prob + i * classes, classes, samples[i].label, b, &slope, &curvature);
        if (!isfinite(slope)) return FAIL(ERR_ARG, "no temperature fits: some logits are not finite");
        *(slope > 0 ? &high : &low) = b;
        double next = b - slope / curvature;
        if (!(next > low && next < high) && slope != 0) next = (low + high) / 2;
        moved = slope != 0 ? next - b : 0;
        b += moved;
    }
    if (b * TEMPERATURE_MOST < 1.001 || b * TEMPERATURE_LEAST > 0.999)
        return FAIL(ERR_ARG,
                    "no temperature from %g to %g fits: the network %s of these images; evaluate more images that were "
                    "not trained on",
                    TEMPERATURE_LEAST, TEMPERATURE_MOST,
                    b < 1 ? "predicts no better than chance the classes" : "is right about all, or nearly all,");
    *temperature = 1 / b;
    return OK;
}
