/* Critic and generator phases; see wasserstein.h. */
#include "inception/models/wasserstein.h"

enum { KERNEL = 5, STRIDE = 2, TAPS = KERNEL * KERNEL };
static const float root_epsilon = 1e-12f;
static const Init glorot = {.kind = INIT_GLOROT_UNIFORM};

/* ---- convolutions with TensorFlow's "same" padding */

/* The window over a side that becomes side / 2, rounded up: `pad` before and `pad` + `more` behind. */
static Window halving_window(int32_t side, int32_t *more)
{
    int32_t half = (side + 1) / 2, all = (half - 1) * STRIDE + KERNEL - side, before = all / 2;
    *more = all - 2 * before;
    return (Window){
        .kh = KERNEL, .kw = KERNEL, .stride_h = STRIDE, .stride_w = STRIDE, .pad_h = before, .pad_w = before};
}

/* Each output of a transposed convolution is the sum of a quarter of the filter. */
static Init filter_init(double inputs, double outputs)
{
    return (Init){INIT_UNIFORM, (float)(sqrt(3) * sqrt(4 / (inputs + outputs)))};
}

Value halving_conv(Graph *g, Value x, const char *name, int32_t out, Init init)
{
    Shape s = graph_shape(g, x);
    int32_t more;
    Window window = halving_window(s.h, &more);
    if (init.kind == INIT_ZERO) init = filter_init(s.c * TAPS, (double)out * TAPS / (STRIDE * STRIDE));
    return conv_window_bias(g, pad(g, x, 0, more, 0, more), name, out, window, false, init);
}

Value doubling_conv(Graph *g, Value x, const char *name, int32_t out, int32_t side, bool relu)
{
    int32_t more;
    Window window = halving_window(side, &more);
    Init init = filter_init((double)graph_shape(g, x).c * TAPS / (STRIDE * STRIDE), out * TAPS);
    Value y = conv_transposed(g, x, name, out, side + more, window, init);
    return bias(g, pad(g, y, 0, -more, 0, -more), name, relu);
}

int32_t generator_width(const ModelOptions *options)
{
    return options->width > 0 ? options->width : GENERATOR_WIDTH;
}

/* ---- phases */

static Value noise(Graph *g, const PhaseInputs *inputs, const Adversaries *of)
{
    return random_normal(g, inputs->counter, (Shape){inputs->n, of->latent, 1, 1});
}

static Value generated(Graph *g, const ModelOptions *options, const Adversaries *of, Value z)
{
    graph_scope(g, "generator");
    Value images = of->generator(g, options, z);
    graph_scope(g, "");
    return images;
}

/* D of every image: {n, 1, 1, 1}. */
static Value scores(Graph *g, const ModelOptions *options, const Adversaries *of, Value images, const char *reading)
{
    graph_scope_shared(g, "critic", reading);
    Value score = dense(g, of->features(g, options, images), "score", 1, false, glorot);
    graph_scope(g, "");
    return score;
}

/* The scores of real and of generated images from one pass over both, because layers take a large batch faster than two
 * small ones. */
static void scores_together(Graph *g, const ModelOptions *options, const Adversaries *of, const Value images[2],
                            Value score[2])
{
    Shape one = graph_shape(g, images[0]), both = one, flat = {1, (int32_t)shape_count(one), 1, 1};
    both.n *= 2;
    Value pair = CONCAT(g, reshape(g, images[0], flat), reshape(g, images[1], flat));
    Value all = scores(g, options, of, reshape(g, pair, both), "both"), row = reshape(g, all, (Shape){1, both.n, 1, 1});
    for (int i = 0; i < 2; i++) score[i] = reshape(g, slice(g, row, i * one.n, one.n), (Shape){one.n, 1, 1, 1});
}

static void scores_of(Graph *g, const ModelOptions *options, const Adversaries *of, const Value images[2],
                      Value score[2])
{
    static const char *const readings[] = {"real", "fake"};
    if (of->one_batch && 2 * shape_count(graph_shape(g, images[0])) <= INT32_MAX) {
        scores_together(g, options, of, images, score);
        return;
    }
    for (int i = 0; i < 2; i++) score[i] = scores(g, options, of, images[i], readings[i]);
}

/* The norm of dD/dx for every sample. The gradient of the score by the features is the weight of the last layer, so the
 * score itself is not computed. */
static Value slopes(Graph *g, const ModelOptions *options, const Adversaries *of, Value x)
{
    Shape sample = {graph_shape(g, x).n, 1, 1, 1};
    Value dx;
    graph_scope_shared(g, "critic", "between");
    Value features = of->features(g, options, x);
    Shape shape = graph_shape(g, features), row = {1, shape.c, shape.h, shape.w};
    Value weight = graph_param(g, "score.weight", row, glorot, true);
    graph_grad(g, features, spread_to(g, weight, shape), &x, 1, &dx);
    graph_scope(g, "penalty");
    Value square = sum_to(g, mul(g, dx, dx), sample);
    Value slope = power(g, affine(g, square, 1, root_epsilon), 0.5f);
    graph_scope(g, "");
    return slope;
}

static bool is_f32(Graph *g)
{
    if (graph_options(g)->compute == DTYPE_F32) return true;
    graph_fail(g, ERR_UNSUPPORTED, "a gradient penalty is computed in f32 only, not in %s; leave --amp away",
               dtype_name(graph_options(g)->compute));
    return false;
}

static PhaseTerm *term(Graph *g, PhaseOutputs *outputs, const char *name, Value of_samples)
{
    PhaseTerm *made = &outputs->term[outputs->term_count++];
    *made = (PhaseTerm){name, total(g, of_samples)};
    return made;
}

void wasserstein_critic(Graph *g, const ModelOptions *options, const void *networks, const PhaseInputs *inputs,
                        PhaseOutputs *outputs)
{
    const Adversaries *of = networks;
    if (!is_f32(g)) return;
    float weight = options->penalty_weight < 0 ? of->penalty_weight : options->penalty_weight;
    Value real = inputs->image, fake = generated(g, options, of, noise(g, inputs, of));
    Value score[2];
    scores_of(g, options, of, (const Value[]){real, fake}, score);
    Value real_score = score[0], fake_score = score[1];

    Value alpha = random_uniform(g, inputs->counter, (Shape){inputs->n, 1, 1, 1});
    Value part = mul(g, spread_to(g, alpha, graph_shape(g, real)), sub(g, fake, real));
    Value slope = slopes(g, options, of, add(g, real, part));
    Value excess = affine(g, slope, 1, -1), penalty = mul(g, excess, excess);

    Value loss = add(g, sub(g, fake_score, real_score), affine(g, penalty, weight, 0));
    outputs->loss = total(g, loss);
    term(g, outputs, "wasserstein", sub(g, real_score, fake_score))->shown = true;
    term(g, outputs, "critic_real", real_score);
    term(g, outputs, "critic_fake", fake_score);
    term(g, outputs, "penalty", penalty)->shown = true;
    term(g, outputs, "slope", slope)->shown = true;
    term(g, outputs, "slope_spread", mul(g, slope, slope))->spread = true;
}

void wasserstein_generator(Graph *g, const ModelOptions *options, const void *networks, const PhaseInputs *inputs,
                           PhaseOutputs *outputs)
{
    const Adversaries *of = networks;
    if (!is_f32(g)) return;
    Value fake = generated(g, options, of, noise(g, inputs, of));
    outputs->loss = total(g, affine(g, scores(g, options, of, fake, "fake"), -1, 0));
}

void wasserstein_generate(Graph *g, const ModelOptions *options, const void *networks, Value z, Value *images)
{
    *images = generated(g, options, networks, z);
}
