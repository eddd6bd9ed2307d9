/* The temperature of probabilities, from their logarithms: a network that is nine times as sure has nine times the
 * temperature and the same losses, although many of its probabilities are 0 in f32. */
#include "tests/support/unit.h"
#include "towers/replica/temperature.h"

enum { CLASSES = 3, REPEATS = 6, GAPS = 10, COUNT = REPEATS * GAPS };
static const float gap[GAPS] = {0.5f, 1, 2, 3, 4, 6, 8, 12, 16, 20};

/* Samples whose class leads by a gap, right as often as such a lead says; the logarithms of their probabilities. */
static void samples_make(float factor, EvalSample *samples, float *log_prob)
{
    for (int i = 0; i < COUNT; i++) {
        int repeat = i / GAPS, at = i % GAPS, label = i % CLASSES;
        bool right = !(at <= 2 && repeat < 3 - at);
        float *x = log_prob + i * CLASSES, lead = factor * gap[at];
        double rest = log1p(2 * exp(-(double)lead));
        for (int k = 0; k < CLASSES; k++) x[k] = (float)(-(double)lead - rest);
        x[right ? label : (label + 1) % CLASSES] = (float)-rest;
        samples[i] = (EvalSample){.label = label};
    }
}

static double loss_of(double temperature, const EvalSample *samples, float *log_prob)
{
    double loss = 0;
    for (int i = 0; i < COUNT; i++) {
        float *p = log_prob + i * CLASSES;
        loss += temperature_apply_logs(temperature, p, CLASSES, samples[i].label) / COUNT;
        assert_true(fabsf(p[0] + p[1] + p[2] - 1) < 1e-6f);
    }
    return loss;
}

TEST(is_that_of_logits)
{
    EvalSample samples[COUNT];
    float log_prob[COUNT * CLASSES];
    double temperature[2], loss[2];
    for (int k = 0; k < 2; k++) {
        samples_make(k ? 9 : 1, samples, log_prob);
        if (temperature_fit(samples, log_prob, COUNT, CLASSES, &temperature[k]) != OK) fail_msg("%s", status_message());
        loss[k] = loss_of(temperature[k], samples, log_prob);
    }
    assert_true(fabs(temperature[1] / temperature[0] - 9) < 1e-5);
    assert_true(fabs(loss[1] / loss[0] - 1) < 1e-5);
    samples_make(9, samples, log_prob);
    samples[GAPS - 1].label = (samples[GAPS - 1].label + 1) % CLASSES; /* wrong by 180: e^-180 is 0 in f32 */
    double lost = temperature_apply_logs(1, log_prob + (GAPS - 1) * CLASSES, CLASSES, samples[GAPS - 1].label);
    assert_true(fabs(lost - 180) < 1e-4);
}
