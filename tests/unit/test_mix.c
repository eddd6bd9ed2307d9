/* Mixing: the distributions of shares and rectangles, and targets that give PyTorch's losses and gradients. */
#include "towers/data/images/mix.h"

#include "kernels/backend.h"
#include "tests/support/tower_run.h"
#include "tests/support/unit.h"
#include "tests/unit/golden_targets.h"

enum { DRAWS = 8000, SIDE = 299 };

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* ---- shares: one-sample Kolmogorov-Smirnov against Beta(alpha, alpha) */

/* The distribution function by Simpson's rule with x = u^(1 / alpha), which is smooth at 0; symmetric around 1/2. */
static double beta_part(double alpha, double x)
{
    enum { PARTS = 400 };
    double end = pow(x, alpha), sum = 0;
    for (int i = 0; i <= PARTS; i++) {
        double u = end * i / PARTS;
        sum += (i == 0 || i == PARTS ? 1 : i % 2 ? 4 : 2) * pow(1 - pow(u, 1 / alpha), alpha - 1);
    }
    return sum * end / (3 * PARTS);
}

static double beta_cdf(double alpha, double x)
{
    double half = 2 * beta_part(alpha, 0.5);
    return x <= 0.5 ? beta_part(alpha, x) / half : 1 - beta_part(alpha, 1 - x) / half;
}

TEST(test_shares_are_beta)
{
    static const double alphas[] = {0.2, 0.4, 0.5, 0.8, 1, 2, 8};
    static double shares[DRAWS];
    for (size_t a = 0; a < sizeof alphas / sizeof *alphas; a++) {
        double worst = 0;
        for (int i = 0; i < DRAWS; i++) {
            Mix mix = mix_plan(&(MixRule){.mixup = alphas[a]}, 5, i, SIDE);
            shares[i] = mix.label;
            assert_true(mix.cut.h == 0 && mix.share >= 0 && mix.share <= IMAGE_SHARE_ONE);
            assert_true(mix.label == (double)mix.share / IMAGE_SHARE_ONE);
        }
        qsort(shares, DRAWS, sizeof *shares, by_value);
        for (int i = 0; i < DRAWS; i += 16) {
            double wanted = beta_cdf(alphas[a], shares[i]), low = wanted - (double)i / DRAWS,
                   high = (double)(i + 1) / DRAWS - wanted;
            if (low > worst) worst = low;
            if (high > worst) worst = high;
        }
        if (worst > 1.95 / sqrt(DRAWS)) /* p = 0.001 */
            fail_msg("alpha %g: the shares are off by %g", alphas[a], worst);
    }
}

/* ---- rectangles: two-sample Kolmogorov-Smirnov against torchvision's formula with another generator */

static int32_t within(int32_t at)
{
    return at < 0 ? 0 : at > SIDE ? SIDE : at;
}

static double area_drawn(double alpha)
{
    double lambda = alpha == 1 ? drand48() : pow(sin(M_PI_2 * drand48()), 2); /* Beta(1, 1), Beta(1/2, 1/2) */
    int32_t half = (int32_t)(0.5 * sqrt(1 - lambda) * SIDE), x = (int32_t)(drand48() * SIDE),
            y = (int32_t)(drand48() * SIDE);
    return (double)(within(x + half) - within(x - half)) * (within(y + half) - within(y - half)) / (SIDE * SIDE);
}

TEST(test_areas)
{
    static double ours[DRAWS], theirs[DRAWS];
    srand48(1);
    for (int k = 0; k < 2; k++) {
        double alpha = k ? 0.5 : 1, worst = 0, middle = 0;
        for (int i = 0; i < DRAWS; i++) {
            Mix mix = mix_plan(&(MixRule){.cutmix = alpha}, 5, i, SIDE);
            assert_true(mix.share == 0 && mix.cut.y >= 0 && mix.cut.x >= 0 && mix.cut.y + mix.cut.h <= SIDE &&
                        mix.cut.x + mix.cut.w <= SIDE);
            assert_true(mix.label == (double)mix.cut.h * mix.cut.w / (SIDE * SIDE));
            ours[i] = mix.label;
            theirs[i] = area_drawn(alpha);
            middle += (mix.cut.x + mix.cut.w / 2.0) / SIDE / DRAWS;
        }
        assert_true(middle > 0.49 && middle < 0.51);
        qsort(ours, DRAWS, sizeof *ours, by_value);
        qsort(theirs, DRAWS, sizeof *theirs, by_value);
        for (int i = 0, j = 0; i < DRAWS && j < DRAWS;) {
            double at = ours[i] < theirs[j] ? ours[i] : theirs[j];
            while (i < DRAWS && ours[i] <= at) i++;
            while (j < DRAWS && theirs[j] <= at) j++;
            worst = fmax(worst, fabs((double)(i - j) / DRAWS));
        }
        if (worst > 1.95 * sqrt(2.0 / DRAWS)) fail_msg("alpha %g: the areas are off by %g", alpha, worst);
    }
}

/* ---- one of the two for each batch, and the same again for the same batch */

TEST(test_choice)
{
    MixRule both = {0.4, 1};
    int cuts = 0, same = 0;
    Mix none = mix_plan(&(MixRule){0}, 5, 7, SIDE);
    assert_true(none.label == 0 && none.share == 0 && none.cut.h == 0);
    for (int i = 0; i < DRAWS; i++) {
        Mix mix = mix_plan(&both, 5, i, SIDE), again = mix_plan(&both, 5, i, SIDE), other = mix_plan(&both, 6, i, SIDE);
        Mix mixup = mix_plan(&(MixRule){.mixup = 0.4}, 5, i, SIDE),
            cutmix = mix_plan(&(MixRule){.cutmix = 1}, 5, i, SIDE);
        assert_true(mix.label == again.label && mix.share == again.share && mix.cut.y == again.cut.y);
        bool cut = mix.share == 0 && mix.label == cutmix.label && mix.cut.x == cutmix.cut.x;
        assert_true(cut || (mix.label == mixup.label && mix.cut.h == 0));
        same += mix.label == other.label;
        cuts += cut;
    }
    assert_true(cuts > DRAWS / 2 - 180 && cuts < DRAWS / 2 + 180); /* four standard deviations */
    assert_true(same < DRAWS / 100);
}

/* ---- targets */

static void op_run(Device *device, OpCall *call)
{
    const OpKernel *kernel = device->backend->kernels[call->kind];
    if (kernel->prepare && kernel->prepare(device, call) != OK) fail_msg("%s", status_message());
    void *workspace = calloc(1, call->workspace_bytes + 64);
    call->workspace = workspace;
    assert_int_equal(kernel->launch(device, call), OK);
    if (kernel->discard) kernel->discard(device, call);
    free(workspace);
}

static Tensor row_of(float *data, int32_t count)
{
    return (Tensor){data, {1, count, 1, 1}, DTYPE_F32, count};
}

/* The loss of a sample and its gradient. */
static double loss_run(Device *device, OpCall *forward, OpCall *back, float *z, int32_t *label, float *targets,
                       float *gradient)
{
    float prob[GOLDEN_CLASSES], loss, one = 1, hits[2];
    forward->in[0] = row_of(z, GOLDEN_CLASSES);
    forward->in[1] = back->in[1] = (Tensor){label, {1, 1, 1, 1}, DTYPE_I32, 1};
    forward->in[2] = back->in[3] = row_of(targets, GOLDEN_CLASSES);
    forward->out[0] = row_of(&loss, 1);
    forward->out[1] = back->in[0] = row_of(prob, GOLDEN_CLASSES);
    forward->out[2] = row_of(hits, 2);
    back->in[2] = row_of(&one, 1);
    back->out[0] = row_of(gradient, GOLDEN_CLASSES);
    op_run(device, forward);
    op_run(device, back);
    return (double)loss;
}

/* As if towers had taken them one by one: sums of losses and weights, and gradients divided by the weights at the end. */
TEST(test_targets_are_those_of_pytorch)
{
    Device device;
    const Backend *cpu;
    if (backend_find("cpu", &cpu, NULL, 0) != OK) skip("no CPU backend here: %s", status_message());
    assert_int_equal(cpu->open(&(DeviceConfig){DEVICE_USUAL, .threads = 1}, &device), OK);
    float weights[GOLDEN_CLASSES];
    for (int k = 0; k < GOLDEN_CLASSES; k++) weights[k] = (float)(0.5 + 0.75 * k);
    for (size_t row = 0; row < sizeof golden_targets / sizeof *golden_targets; row++) {
        __typeof__(&golden_targets[0]) golden = &golden_targets[row];
        TargetRule rule = {GOLDEN_CLASSES, (float)golden->smoothing, golden->weighted ? weights : NULL};
        double sum = 0, weight = 0;
        float gradient[GOLDEN_N * GOLDEN_CLASSES];
        for (int n = 0; n < GOLDEN_N; n++) {
            float z[GOLDEN_CLASSES], targets[GOLDEN_CLASSES];
            int32_t label = golden_labels[n], partner = golden_labels[(n + GOLDEN_N - 1) % GOLDEN_N];
            for (int k = 0; k < GOLDEN_CLASSES; k++) z[k] = (float)(2 * sin(1.7 * n + 0.9 * k * k));
            target_fill(&rule, label, partner, golden->share, targets);
            weight += target_weight(&rule, label, partner, golden->share);
            OpCall forward = {.kind = OP_SOFTMAX_LOSS, .name = "loss", .in_count = 3, .out_count = 3},
                   back = {.kind = OP_SOFTMAX_LOSS_DX, .name = "loss", .in_count = 4, .out_count = 1};
            sum += loss_run(&device, &forward, &back, z, &label, targets, gradient + n * GOLDEN_CLASSES);
        }
        if (!(fabs(sum / weight - golden->loss) < 2e-6))
            fail_msg("row %zu: loss %.9g, not %.9g", row, sum / weight, golden->loss);
        for (int i = 0; i < GOLDEN_N * GOLDEN_CLASSES; i++)
            if (!(fabs((double)gradient[i] / weight - golden->gradient[i]) < 1e-6))
                fail_msg("row %zu: gradient %d is %.9g, not %.9g", row, i, (double)gradient[i] / weight,
                         golden->gradient[i]);
    }
    cpu->close(&device);
}

/* Sums over samples taken one by one; the loss of a sample is the mean over its classes. */
TEST(test_bce_is_that_of_pytorch)
{
    Device device;
    const Backend *cpu;
    if (backend_find("cpu", &cpu, NULL, 0) != OK) skip("no CPU backend here: %s", status_message());
    assert_int_equal(cpu->open(&(DeviceConfig){DEVICE_USUAL, .threads = 1}, &device), OK);
    float weights[GOLDEN_CLASSES];
    for (int k = 0; k < GOLDEN_CLASSES; k++) weights[k] = (float)(0.5 + 0.75 * k);
    for (size_t row = 0; row < sizeof golden_bce / sizeof *golden_bce; row++) {
        __typeof__(&golden_bce[0]) golden = &golden_bce[row];
        double sum = 0;
        float gradient[GOLDEN_N * GOLDEN_CLASSES];
        for (int n = 0; n < GOLDEN_N; n++) {
            float z[GOLDEN_CLASSES], targets[GOLDEN_CLASSES];
            int32_t label = 0;
            for (int k = 0; k < GOLDEN_CLASSES; k++) z[k] = (float)(6 * sin(1.7 * n + 0.9 * k * k));
            for (int k = 0; k < GOLDEN_CLASSES; k++) targets[k] = (float)golden->target[n * GOLDEN_CLASSES + k];
            OpAttr attr = {.loss.multi_label = true};
            OpCall forward = {.kind = OP_SIGMOID_LOSS, .name = "loss", .attr = attr, .in_count = 4, .out_count = 3},
                   back = {.kind = OP_SIGMOID_LOSS_DX, .name = "loss", .attr = attr, .in_count = 5, .out_count = 1};
            if (golden->weighted) forward.in[3] = back.in[4] = row_of(weights, GOLDEN_CLASSES);
            sum += loss_run(&device, &forward, &back, z, &label, targets, gradient + n * GOLDEN_CLASSES);
        }
        if (!(fabs(sum / GOLDEN_N - golden->loss) < 2e-6))
            fail_msg("row %zu: loss %.9g, not %.9g", row, sum / GOLDEN_N, golden->loss);
        for (int i = 0; i < GOLDEN_N * GOLDEN_CLASSES; i++)
            if (!(fabs((double)gradient[i] / GOLDEN_N - golden->gradient[i]) < 1e-7))
                fail_msg("row %zu: gradient %d is %.9g, not %.9g", row, i, (double)gradient[i] / GOLDEN_N,
                         golden->gradient[i]);
    }
    cpu->close(&device);
}

TEST(test_targets_of_several_classes)
{
    const int32_t own[] = {0, 3}, partner[] = {1, 3};
    TargetRule rule = {.classes = 5, .multi_label = true};
    float targets[5];
    target_fill_multi_label(&rule, (LabelSet){own, 2}, (LabelSet){partner, 2}, 0.25, targets);
    assert_true(targets[0] == 0.75f && targets[1] == 0.25f && targets[2] == 0 && targets[3] == 1 && targets[4] == 0);
    rule.smoothing = 0.5f;
    target_fill_multi_label(&rule, (LabelSet){own, 2}, (LabelSet){NULL, 0}, 0, targets);
    assert_true(targets[0] == 0.75f && targets[1] == 0.25f && targets[3] == 0.75f && targets[4] == 0.25f);
    target_fill_multi_label(&rule, (LabelSet){NULL, 0}, (LabelSet){partner, 2}, 0.25, targets);
    assert_true(targets[0] == 0.25f && targets[1] == 0.375f && targets[3] == 0.375f);
}

TEST(test_sample_that_does_not_count)
{
    const float weights[2] = {2, 3};
    TargetRule rule = {2, 0.1f, weights};
    float targets[2] = {9, 9};
    target_fill(&rule, LABEL_NONE, 1, 0.25, targets);
    assert_true(targets[0] == 0 && targets[1] == 0 && target_weight(&rule, LABEL_NONE, 1, 0.25) == 0);
    assert_true(target_weight(&rule, 0, 1, 0.25) == 2.25 && target_weight(&rule, 1, LABEL_NONE, 0) == 3);
}

/* ---- auxiliary heads get the targets, too */

enum { TWIN_STEPS = 12 };
static double main_sum[TWIN_STEPS + 1], aux_sum[TWIN_STEPS + 1], loss_sum[TWIN_STEPS + 1];

/* An auxiliary head with the logits of the main one, so that both must have the same loss. */
static void build_twins(Graph *g, const ModelOptions *options, const void *networks, Value x, ModelHeads *heads)
{
    (void)networks;
    static const Init he = {.kind = INIT_HE_NORMAL};
    graph_canonical(g, 28);
    heads->logits = heads->aux[0] = dense(g, x, "head", options->classes, false, he);
    heads->aux_count = 1;
}

static const Model twins = {.name = "twins",
                            .title = "",
                            .paper = "",
                            .side = 28,
                            .min_side = 28,
                            .channels = 1,
                            .classes = 10,
                            .std = {1, 1, 1},
                            .build = build_twins};

static void see_losses(void *context, Ledger *ledger, int64_t step, double seconds, double loss)
{
    if (step > TWIN_STEPS) return;
    main_sum[step] = aux_sum[step] = loss_sum[step] = 0;
    for (int t = 0; t < ledger->towers; t++) {
        const LedgerRow *row = ledger_row(ledger, t, step);
        main_sum[step] += row->loss.term[0];
        aux_sum[step] += row->loss.term[1];
        loss_sum[step] += row->loss.sum;
    }
}

TEST(test_auxiliary_heads)
{
    double plain = 0;
    const Backend *cpu;
    if (backend_find("cpu", &cpu, NULL, 0) != OK) skip("no CPU backend here: %s", status_message());
    for (int mixes = 0; mixes < 2; mixes++) {
        TowerRun run;
        tower_run_open(&run, cpu, &twins, 2);
        run.job.on_step = see_losses;
        run.job.program.aux_weight = 0.5f;
        run.job.program.mixes = run.job.program.targets = mixes;
        if (mixes) run.job.data.mix = (MixRule){.mixup = 1};
        tower_run_live(&run);
        tower_run_close(&run);
        if (run.status != OK) fail_msg("%s", status_message());
        for (int s = 1; s <= TWIN_STEPS; s++) {
            assert_true(main_sum[s] > 0 && main_sum[s] == aux_sum[s]);
            assert_true(fabs(loss_sum[s] - 1.5 * main_sum[s]) < 1e-5 * main_sum[s]);
        }
        assert_true(main_sum[1] != plain); /* mixed images and targets have another loss */
        plain = main_sum[1];
    }
}
