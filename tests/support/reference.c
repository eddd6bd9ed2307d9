/* The op kinds as naive loops; see reference.h. Row order is that of kernels/ops.def. */
#include "tests/support/reference.h"

#include "kernels/philox.h"

#define UNUSED __attribute__((unused))
#define REFERENCE(name)                                                                                                \
    static void reference_##name(const OpAttr *attr UNUSED, const RefTensor *in UNUSED, RefTensor *out UNUSED)

typedef struct Place {
    int n, c, h, w;
} Place;

static int64_t index_of(Shape s, int n, int c, int h, int w)
{
    return (((int64_t)n * s.h + h) * s.w + w) * s.c + c;
}

static Place place_of(Shape s, int64_t i)
{
    Place p = {.c = (int)(i % s.c), .w = (int)(i / s.c % s.w), .h = (int)(i / s.c / s.w % s.h)};
    p.n = (int)(i / s.c / s.w / s.h);
    return p;
}

static double relu_if(bool on, double v)
{
    return on && v < 0 ? 0 : v;
}

static double channel_value(const RefTensor *t, int64_t c, double otherwise)
{
    return t->data ? t->data[c] : otherwise;
}

RefTensor ref_create(Shape shape)
{
    RefTensor t = {shape, calloc((size_t)shape_count(shape), sizeof(double))};
    if (!t.data) abort();
    return t;
}

void ref_destroy(RefTensor *t)
{
    free(t->data);
    t->data = NULL;
}

static void ref_zero(RefTensor *t)
{
    memset(t->data, 0, (size_t)shape_count(t->shape) * sizeof(double));
}

/* `t` = acc, or zero if there is none. */
static void ref_start(RefTensor *t, const RefTensor *acc)
{
    ref_zero(t);
    if (acc->data) memcpy(t->data, acc->data, (size_t)shape_count(t->shape) * sizeof(double));
}

/* ---- input */

/* The value of one image alone at a place; p.n is the image. */
static double image_value(const OpAttr *attr, const RefTensor *in, Shape s, Place p)
{
    Shape from = in[0].shape;
    int oy = (from.h - s.h) / 2, ox = (from.w - s.w) / 2, flip = 0;
    bool erased = false;
    if (in[1].data) {
        const double *row = in[1].data + (int64_t)p.n * IMAGE_RECORD;
        oy = (int)row[IMAGE_OY], ox = (int)row[IMAGE_OX], flip = (int)row[IMAGE_FLIP];
        erased = p.h >= row[IMAGE_ERASE_Y] && p.h < row[IMAGE_ERASE_Y] + row[IMAGE_ERASE_H] &&
                 p.w >= row[IMAGE_ERASE_X] && p.w < row[IMAGE_ERASE_X] + row[IMAGE_ERASE_W];
    }
    int x = ox + (flip ? s.w - 1 - p.w : p.w);
    double pixel = in[0].data[index_of(from, p.n, from.c == 1 ? 0 : p.c, p.h + oy, x)];
    return erased ? 0 : (pixel / 255 - (double)attr->image.mean[p.c]) / (double)attr->image.std[p.c];
}

REFERENCE(image)
{
    Shape s = out[0].shape;
    for (int64_t i = 0; i < shape_count(s); i++) {
        Place p = place_of(s, i);
        out[0].data[i] = image_value(attr, in, s, p);
        const double *row = in[1].data ? in[1].data + (int64_t)p.n * IMAGE_RECORD : NULL;
        if (!row || row[IMAGE_PARTNER] == 0) continue;
        bool cut = p.h >= row[IMAGE_CUT_Y] && p.h < row[IMAGE_CUT_Y] + row[IMAGE_CUT_H] && p.w >= row[IMAGE_CUT_X] &&
                   p.w < row[IMAGE_CUT_X] + row[IMAGE_CUT_W];
        double share = cut ? 1 : row[IMAGE_SHARE] / IMAGE_SHARE_ONE;
        p.n = (int)row[IMAGE_PARTNER] - 1;
        out[0].data[i] = (1 - share) * out[0].data[i] + share * image_value(attr, in, s, p);
    }
}

/* ---- convolution: one sum of products x * w * y, of which each kind solves for one factor */

/* The products of one y with its row of channels in x and w. */
typedef void Term(double *x, double *w, double *y, int channels);

static void conv_terms(Window k, RefTensor x, RefTensor w, RefTensor y, Term *term)
{
    int groups = conv_groups(x.shape, w.shape);
    for (int64_t pixel = 0; pixel < shape_pixels(y.shape); pixel++) {
        Place p = place_of(y.shape, pixel * y.shape.c);
        for (int kh = 0; kh < w.shape.h; kh++)
            for (int kw = 0; kw < w.shape.w; kw++) {
                int h = p.h * k.stride_h - k.pad_h + kh * (k.dilate_h + 1),
                    v = p.w * k.stride_w - k.pad_w + kw * (k.dilate_w + 1);
                if (h < 0 || v < 0 || h >= x.shape.h || v >= x.shape.w) continue;
                for (int o = 0; o < w.shape.n; o++)
                    term(&x.data[index_of(x.shape, p.n, o / (w.shape.n / groups) * w.shape.c, h, v)],
                         &w.data[index_of(w.shape, o, 0, kh, kw)], &y.data[pixel * y.shape.c + o], w.shape.c);
            }
    }
}

static void term_y(double *x, double *w, double *y, int channels)
{
    double sums[4] = {0}; /* that a processor can add side by side */
    int c = 0;
    for (; c + 4 <= channels; c += 4)
        for (int i = 0; i < 4; i++) sums[i] += x[c + i] * w[c + i];
    for (; c < channels; c++) sums[0] += x[c] * w[c];
    *y += (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

static void term_x(double *x, double *w, double *y, int channels)
{
    for (int c = 0; c < channels; c++) x[c] += w[c] * *y;
}

static void term_w(double *x, double *w, double *y, int channels)
{
    for (int c = 0; c < channels; c++) w[c] += x[c] * *y;
}

static void add_bias_relu(RefTensor *y, const RefTensor *b, bool relu)
{
    for (int64_t i = 0; i < shape_count(y->shape); i++) {
        double v = y->data[i] + (b->data ? b->data[i % y->shape.c] : 0);
        y->data[i] = relu_if(relu, v);
    }
}

REFERENCE(conv)
{
    ref_zero(&out[0]);
    conv_terms(attr->conv.window, in[0], in[1], out[0], term_y);
    add_bias_relu(&out[0], &in[2], attr->conv.relu);
}

REFERENCE(conv_dx)
{
    ref_start(&out[0], &in[2]);
    conv_terms(attr->conv.window, out[0], in[1], in[0], term_x);
}

REFERENCE(conv_dw)
{
    ref_zero(&out[0]);
    conv_terms(attr->conv.window, in[0], out[0], in[1], term_w);
}

/* ---- dense: a convolution whose window is the whole input */

REFERENCE(dense)
{
    ref_zero(&out[0]);
    conv_terms((Window){.stride_h = 1, .stride_w = 1}, in[0], in[1], out[0], term_y);
    add_bias_relu(&out[0], &in[2], attr->dense.relu);
}

REFERENCE(dense_dx)
{
    ref_zero(&out[0]);
    conv_terms((Window){.stride_h = 1, .stride_w = 1}, out[0], in[1], in[0], term_x);
}

REFERENCE(dense_dw)
{
    ref_zero(&out[0]);
    conv_terms((Window){.stride_h = 1, .stride_w = 1}, in[0], out[0], in[1], term_w);
}

REFERENCE(channel_sum)
{
    ref_zero(&out[0]);
    for (int64_t i = 0; i < shape_count(in[0].shape); i++) out[0].data[i % in[0].shape.c] += in[0].data[i];
}

REFERENCE(channel_spread)
{
    for (int64_t i = 0; i < shape_count(out[0].shape); i++) out[0].data[i] = in[0].data[i % out[0].shape.c];
}

/* ---- batch normalization */

static void batch_moments(const RefTensor *x, int c, double *mean, double *var)
{
    int64_t pixels = shape_pixels(x->shape), step = x->shape.c;
    *mean = *var = 0;
    for (int64_t i = 0; i < pixels; i++) *mean += x->data[i * step + c] / (double)pixels;
    for (int64_t i = 0; i < pixels; i++) *var += pow(x->data[i * step + c] - *mean, 2) / (double)pixels;
}

REFERENCE(batchnorm)
{
    int64_t channels = in[0].shape.c;
    for (int c = 0; c < channels; c++) {
        double mean, var;
        batch_moments(&in[0], c, &mean, &var);
        double scale = channel_value(&in[2], c, 1) / sqrt(var + (double)attr->norm.epsilon);
        for (int64_t i = c; out[0].data && i < shape_count(in[0].shape); i += channels)
            out[0].data[i] = relu_if(attr->norm.relu, scale * (in[0].data[i] - mean) + in[1].data[c]);
        if (out[1].data) out[1].data[c] = mean;
        if (out[2].data) out[2].data[c] = var;
    }
}

REFERENCE(batchnorm_dx)
{
    const RefTensor *dy = &in[0], *x = &in[1];
    int64_t channels = x->shape.c, count = shape_count(x->shape), pixels = shape_pixels(x->shape);
    for (int64_t c = 0; c < channels; c++) {
        double mean = in[3].data[c], inverse = 1 / sqrt(in[4].data[c] + (double)attr->norm.epsilon);
        double gamma = channel_value(&in[5], c, 1), dbeta = 0, dgamma = 0;
        for (int64_t i = c; i < count; i += channels) {
            double hat = (x->data[i] - mean) * inverse;
            bool dead = attr->norm.relu && gamma * hat + in[2].data[c] <= 0;
            dbeta += dead ? 0 : dy->data[i];
            dgamma += dead ? 0 : dy->data[i] * hat;
        }
        for (int64_t i = c; out[0].data && i < count; i += channels) {
            double hat = (x->data[i] - mean) * inverse;
            bool dead = attr->norm.relu && gamma * hat + in[2].data[c] <= 0;
            out[0].data[i] = gamma * inverse * ((dead ? 0 : dy->data[i]) - (dbeta + hat * dgamma) / (double)pixels);
        }
        if (out[1].data) out[1].data[c] = dbeta;
        if (out[2].data) out[2].data[c] = dgamma;
    }
}

/* Mean and 1 / sqrt(var + eps) of the channels that begin at x. */
static void pixel_moments(const double *x, int32_t c, double epsilon, double *mean, double *inverse)
{
    double sum = 0, square = 0;
    for (int32_t i = 0; i < c; i++) sum += x[i];
    for (int32_t i = 0; i < c; i++) square += (x[i] - sum / c) * (x[i] - sum / c);
    *mean = sum / c;
    *inverse = 1 / sqrt(square / c + epsilon);
}

REFERENCE(layernorm)
{
    int32_t c = in[0].shape.c;
    double mean, inverse;
    for (int64_t first = 0; first < shape_count(in[0].shape); first += c) {
        pixel_moments(in[0].data + first, c, (double)attr->norm.epsilon, &mean, &inverse);
        for (int32_t i = 0; i < c; i++)
            out[0].data[first + i] = in[2].data[i] * (in[0].data[first + i] - mean) * inverse + in[1].data[i];
    }
}

REFERENCE(layernorm_dx)
{
    int32_t c = in[0].shape.c;
    double mean, inverse;
    for (int k = 1; k < 3; k++)
        if (out[k].data) memset(out[k].data, 0, (size_t)c * sizeof *out[k].data);
    for (int64_t first = 0; first < shape_count(in[0].shape); first += c) {
        const double *dy = in[0].data + first, *x = in[1].data + first, *gamma = in[2].data;
        double sum = 0, product = 0;
        pixel_moments(x, c, (double)attr->norm.epsilon, &mean, &inverse);
        for (int32_t i = 0; i < c; i++) {
            double a = (x[i] - mean) * inverse;
            sum += gamma[i] * dy[i];
            product += gamma[i] * dy[i] * a;
            if (out[1].data) out[1].data[i] += dy[i];
            if (out[2].data) out[2].data[i] += dy[i] * a;
        }
        for (int32_t i = 0; out[0].data && i < c; i++)
            out[0].data[first + i] = inverse * (gamma[i] * dy[i] - sum / c - (x[i] - mean) * inverse * product / c);
    }
}

REFERENCE(batchnorm_apply)
{
    for (int64_t i = 0; i < shape_count(out[0].shape); i++) {
        int64_t c = i % out[0].shape.c;
        double scale = channel_value(&in[4], c, 1) / sqrt(in[3].data[c] + (double)attr->norm.epsilon);
        out[0].data[i] = relu_if(attr->norm.relu, scale * (in[0].data[i] - in[2].data[c]) + in[1].data[c]);
    }
}

REFERENCE(norm_fold)
{
    int64_t row = shape_count(in[0].shape) / in[0].shape.n;
    for (int64_t o = 0; o < in[0].shape.n; o++) {
        double scale = channel_value(&in[4], o, 1) / sqrt(in[3].data[o] + (double)attr->norm.epsilon);
        for (int64_t i = o * row; out[0].data && i < (o + 1) * row; i++) out[0].data[i] = scale * in[0].data[i];
        if (out[1].data) out[1].data[o] = in[1].data[o] - scale * in[2].data[o];
    }
}

/* ---- activations */

REFERENCE(relu)
{
    for (int64_t i = 0; i < shape_count(out[0].shape); i++) out[0].data[i] = relu_if(true, in[0].data[i]);
}

REFERENCE(relu_dx)
{
    for (int64_t i = 0; i < shape_count(out[0].shape); i++) out[0].data[i] = in[1].data[i] > 0 ? in[0].data[i] : 0;
}

REFERENCE(leaky_relu)
{
    double alpha = (double)attr->leaky.alpha;
    for (int64_t i = 0; i < shape_count(out[0].shape); i++)
        out[0].data[i] = in[0].data[i] * (in[0].data[i] > 0 ? 1 : alpha);
}

REFERENCE(leaky_relu_dx)
{
    double alpha = (double)attr->leaky.alpha;
    for (int64_t i = 0; i < shape_count(out[0].shape); i++)
        out[0].data[i] = in[0].data[i] * (in[1].data[i] > 0 ? 1 : alpha);
}

static double hard_sigmoid(double x)
{
    return isnan(x) ? x : fmin(fmax(x + 3, 0), 6) / 6;
}

REFERENCE(hard_sigmoid)
{
    for (int64_t i = 0; i < shape_count(out[0].shape); i++) out[0].data[i] = hard_sigmoid(in[0].data[i]);
}

REFERENCE(hard_sigmoid_dx)
{
    for (int64_t i = 0; i < shape_count(out[0].shape); i++)
        out[0].data[i] = fabs(in[1].data[i]) < 3 ? in[0].data[i] / 6 : 0;
}

REFERENCE(hard_swish)
{
    for (int64_t i = 0; i < shape_count(out[0].shape); i++)
        out[0].data[i] = in[0].data[i] * hard_sigmoid(in[0].data[i]);
}

REFERENCE(hard_swish_dx)
{
    for (int64_t i = 0; i < shape_count(out[0].shape); i++) {
        double x = in[1].data[i];
        out[0].data[i] = in[0].data[i] * (x <= -3 ? 0 : x < 3 ? x / 3 + 0.5 : 1);
    }
}

REFERENCE(relu6)
{
    for (int64_t i = 0; i < shape_count(out[0].shape); i++) {
        double x = in[0].data[i];
        out[0].data[i] = isnan(x) ? x : fmin(fmax(x, 0), 6);
    }
}

REFERENCE(relu6_dx)
{
    for (int64_t i = 0; i < shape_count(out[0].shape); i++)
        out[0].data[i] = in[1].data[i] > 0 && in[1].data[i] < 6 ? in[0].data[i] : 0;
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

REFERENCE(sigmoid)
{
    for (int64_t i = 0; i < shape_count(out[0].shape); i++) out[0].data[i] = sigmoid(in[0].data[i]);
}

REFERENCE(silu)
{
    for (int64_t i = 0; i < shape_count(out[0].shape); i++) out[0].data[i] = in[0].data[i] * sigmoid(in[0].data[i]);
}

REFERENCE(silu_dx)
{
    for (int64_t i = 0; i < shape_count(out[0].shape); i++) {
        double x = in[1].data[i], s = sigmoid(x);
        out[0].data[i] = in[0].data[i] * (s + x * s * (1 - s));
    }
}

/* The probability that a standard normal value is below x. */
static double normal_below(double x)
{
    return 0.5 * erfc(-x / sqrt(2));
}

REFERENCE(gelu)
{
    for (int64_t i = 0; i < shape_count(out[0].shape); i++)
        out[0].data[i] = in[0].data[i] * normal_below(in[0].data[i]);
}

REFERENCE(gelu_dx)
{
    for (int64_t i = 0; i < shape_count(out[0].shape); i++) {
        double x = in[1].data[i];
        out[0].data[i] = in[0].data[i] * (normal_below(x) + x * exp(-0.5 * x * x) / sqrt(2 * M_PI));
    }
}

static double gelu_tanh_of(double x)
{
    return tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
}

REFERENCE(gelu_tanh)
{
    for (int64_t i = 0; i < shape_count(out[0].shape); i++)
        out[0].data[i] = 0.5 * in[0].data[i] * (1 + gelu_tanh_of(in[0].data[i]));
}

REFERENCE(gelu_tanh_dx)
{
    for (int64_t i = 0; i < shape_count(out[0].shape); i++) {
        double x = in[1].data[i], t = gelu_tanh_of(x), slope = sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
        out[0].data[i] = in[0].data[i] * 0.5 * (1 + t + x * (1 - t * t) * slope);
    }
}

REFERENCE(tanh)
{
    for (int64_t i = 0; i < shape_count(out[0].shape); i++) out[0].data[i] = tanh(in[0].data[i]);
}

static uint32_t counter_word(const RefTensor *counter, int i)
{
    return (uint32_t)(int32_t)counter->data[i];
}

/* The number in the step of element `i` of a batch: the samples before the batch have `s`'s size each. */
static uint64_t step_element(const RefTensor *counter, Shape s, int64_t i)
{
    return (uint64_t)counter_word(counter, 3) * (uint64_t)(shape_count(s) / s.n) + (uint64_t)i;
}

static Philox draw(const RefTensor *counter, uint64_t element, uint32_t stream)
{
    uint64_t seed = (uint64_t)counter_word(counter, 1) << 32 | counter_word(counter, 0);
    return philox(seed, (uint32_t)(element / 4), counter_word(counter, 2), (uint32_t)(element / 4 >> 32), stream);
}

REFERENCE(dropout)
{
    for (int64_t i = 0; i < shape_count(out[0].shape); i++) {
        uint64_t element = step_element(&in[1], out[0].shape, i);
        float unit = philox_unit(draw(&in[1], element, attr->dropout.stream).v[element % 4]);
        out[0].data[i] = unit < attr->dropout.keep ? in[0].data[i] / (double)attr->dropout.keep : 0;
    }
}

REFERENCE(stochastic_depth)
{
    Shape s = out[0].shape;
    for (int64_t i = 0; i < shape_count(s); i++) {
        uint64_t sample = counter_word(&in[1], 3) + (uint64_t)(i / (shape_count(s) / s.n));
        float unit = philox_unit(draw(&in[1], sample, attr->dropout.stream).v[sample % 4]);
        out[0].data[i] = unit < attr->dropout.keep ? in[0].data[i] / (double)attr->dropout.keep : 0;
    }
}

/* ---- pooling */

/* The input place that tap `tap` of output place `p` reads, or -1 if it lies in the padding. */
static int64_t pool_source(Window k, Shape x, Place p, int tap)
{
    int h = p.h * k.stride_h - k.pad_h + tap / k.kw, w = p.w * k.stride_w - k.pad_w + tap % k.kw;
    return h < 0 || w < 0 || h >= x.h || w >= x.w ? -1 : index_of(x, p.n, p.c, h, w);
}

REFERENCE(max_pool)
{
    Window k = attr->pool.window;
    Shape y = in[0].shape;
    Shape s = out[0].data ? out[0].shape : out[1].shape;
    for (int64_t i = 0; i < shape_count(s); i++) {
        double best = -INFINITY;
        int place = 0;
        for (int tap = 0; tap < k.kh * k.kw; tap++) {
            int64_t from = pool_source(k, y, place_of(s, i), tap);
            if (from < 0 || !(in[0].data[from] > best)) continue;
            best = in[0].data[from];
            place = tap;
        }
        if (out[0].data) out[0].data[i] = best;
        if (out[1].data) out[1].data[i] = place;
    }
}

REFERENCE(max_pool_dx)
{
    ref_start(&out[0], &in[2]);
    for (int64_t i = 0; i < shape_count(in[0].shape); i++) {
        int64_t to = pool_source(attr->pool.window, out[0].shape, place_of(in[0].shape, i), (int)in[1].data[i]);
        bool dead = in[3].data && !(in[3].data[i] > 0);
        if (to >= 0 && !dead) out[0].data[to] += in[0].data[i];
    }
}

/* ---- pooling of a batch normalization: one after the other */

REFERENCE(max_pool_norm)
{
    RefTensor a = ref_create(in[0].shape);
    OpAttr norm = {.norm = {attr->pool.epsilon, true}};
    reference_batchnorm_apply(&norm, in, &a);
    reference_max_pool(attr, &a, out);
    ref_destroy(&a);
}

REFERENCE(max_pool_norm_dx)
{
    RefTensor dy = ref_create(in[2].shape);
    OpAttr norm = {.norm = {attr->pool.epsilon, true}};
    const RefTensor of_pool[OP_MAX_IN] = {in[0], in[1]}, of_norm[] = {dy, in[2], in[3], in[4], in[5], in[6]};
    reference_max_pool_dx(attr, of_pool, &dy);
    reference_batchnorm_dx(&norm, of_norm, out);
    ref_destroy(&dy);
}

/* ---- means */

/* The first pixel of part i of `parts` of a side, and the end: rounded outwards. */
static int32_t part_first(int32_t i, int32_t parts, int32_t side)
{
    return (int32_t)floor((double)i * side / parts);
}

static int32_t part_end(int32_t i, int32_t parts, int32_t side)
{
    return (int32_t)ceil((double)(i + 1) * side / parts);
}

/* The window, without padding, of output p in an image of shape x. */
static Window part_window(Shape x, Shape y, Place p, int32_t *top, int32_t *left)
{
    *top = part_first(p.h, y.h, x.h);
    *left = part_first(p.w, y.w, x.w);
    return (Window){.kh = part_end(p.h, y.h, x.h) - *top, .kw = part_end(p.w, y.w, x.w) - *left};
}

static void adaptive_forward(const RefTensor *x, RefTensor *y)
{
    for (int64_t i = 0; i < shape_count(y->shape); i++) {
        Place p = place_of(y->shape, i);
        int32_t top, left;
        Window k = part_window(x->shape, y->shape, p, &top, &left);
        double sum = 0;
        for (int tap = 0; tap < k.kh * k.kw; tap++)
            sum += x->data[index_of(x->shape, p.n, p.c, top + tap / k.kw, left + tap % k.kw)];
        y->data[i] = sum / (k.kh * k.kw);
    }
}

static void adaptive_backward(const RefTensor *dy, RefTensor *dx)
{
    for (int64_t i = 0; i < shape_count(dy->shape); i++) {
        Place p = place_of(dy->shape, i);
        int32_t top, left;
        Window k = part_window(dx->shape, dy->shape, p, &top, &left);
        for (int tap = 0; tap < k.kh * k.kw; tap++)
            dx->data[index_of(dx->shape, p.n, p.c, top + tap / k.kw, left + tap % k.kw)] += dy->data[i] / (k.kh * k.kw);
    }
}

static int pool_divisor(const OpAttr *attr, Shape x, Place p)
{
    Window k = attr->pool.window;
    int inside = 0;
    for (int tap = 0; tap < k.kh * k.kw; tap++) inside += pool_source(k, x, p, tap) >= 0;
    return attr->pool.include_pad ? k.kh * k.kw : inside;
}

REFERENCE(avg_pool)
{
    Window k = attr->pool.window;
    if (attr->pool.adaptive) {
        adaptive_forward(&in[0], &out[0]);
        return;
    }
    for (int64_t i = 0; i < shape_count(out[0].shape); i++) {
        Place p = place_of(out[0].shape, i);
        double sum = 0;
        for (int tap = 0; tap < k.kh * k.kw; tap++) {
            int64_t from = pool_source(k, in[0].shape, p, tap);
            sum += from < 0 ? 0 : in[0].data[from];
        }
        out[0].data[i] = sum / pool_divisor(attr, in[0].shape, p);
    }
}

REFERENCE(avg_pool_dx)
{
    Window k = attr->pool.window;
    ref_start(&out[0], &in[1]);
    if (attr->pool.adaptive) {
        adaptive_backward(&in[0], &out[0]);
        return;
    }
    for (int64_t i = 0; i < shape_count(in[0].shape); i++) {
        Place p = place_of(in[0].shape, i);
        double share = in[0].data[i] / pool_divisor(attr, out[0].shape, p);
        for (int tap = 0; tap < k.kh * k.kw; tap++) {
            int64_t to = pool_source(k, out[0].shape, p, tap);
            if (to >= 0) out[0].data[to] += share;
        }
    }
}

/* ---- channels */

REFERENCE(concat)
{
    Shape s = out[0].shape;
    for (int k = 0, first = 0; k < OP_MAX_IN && in[k].data; first += in[k].shape.c, k++)
        for (int64_t i = 0; i < shape_count(in[k].shape); i++) {
            Place p = place_of(in[k].shape, i);
            out[0].data[index_of(s, p.n, first + p.c, p.h, p.w)] = in[k].data[i];
        }
}

REFERENCE(slice)
{
    for (int64_t i = 0; i < shape_count(out[0].shape); i++) {
        Place p = place_of(out[0].shape, i);
        out[0].data[i] = in[0].data[index_of(in[0].shape, p.n, attr->slice.first + p.c, p.h, p.w)];
    }
}

REFERENCE(reshape)
{
    memcpy(out[0].data, in[0].data, (size_t)shape_count(out[0].shape) * sizeof(double));
}

/* ---- elementwise */

REFERENCE(add)
{
    for (int64_t i = 0; i < shape_count(out[0].shape); i++) {
        double sum = 0;
        for (int k = 0; k < OP_MAX_IN && in[k].data; k++) sum += in[k].data[i];
        out[0].data[i] = relu_if(attr->add.relu, sum);
    }
}

REFERENCE(mul)
{
    Shape b = in[1].shape;
    for (int64_t i = 0; i < shape_count(out[0].shape); i++) {
        Place p = place_of(out[0].shape, i);
        int64_t at = index_of(b, b.n == 1 ? 0 : p.n, p.c, b.h == 1 ? 0 : p.h, b.w == 1 ? 0 : p.w);
        out[0].data[i] = in[0].data[i] * in[1].data[at];
    }
}

REFERENCE(affine)
{
    for (int64_t i = 0; i < shape_count(out[0].shape); i++)
        out[0].data[i] = (double)attr->affine.scale * in[0].data[i] + (double)attr->affine.shift;
}

REFERENCE(power)
{
    for (int64_t i = 0; i < shape_count(out[0].shape); i++)
        out[0].data[i] = pow(in[0].data[i], (double)attr->power.exponent);
}

REFERENCE(shuffle)
{
    Shape s = out[0].shape;
    int groups = attr->shuffle.groups, each = s.c / groups;
    for (int64_t i = 0; i < shape_count(s); i++) {
        Place p = place_of(s, i);
        out[0].data[i] = in[0].data[index_of(s, p.n, p.c % groups * each + p.c / groups, p.h, p.w)];
    }
}

REFERENCE(pad)
{
    Shape x = in[0].shape, y = out[0].shape;
    for (int64_t i = 0; i < shape_count(y); i++) {
        Place p = place_of(y, i);
        int h = p.h - attr->pad.top, w = p.w - attr->pad.left;
        bool inside = h >= 0 && h < x.h && w >= 0 && w < x.w;
        out[0].data[i] = inside ? in[0].data[index_of(x, p.n, p.c, h, w)] : 0;
    }
}

/* Where a place of a large shape falls in the same shape with some sizes 1. */
static int64_t folded_index(Shape small, Shape large, int64_t i)
{
    Place p = place_of(large, i);
    return index_of(small, p.n % small.n, p.c % small.c, p.h % small.h, p.w % small.w);
}

REFERENCE(sum_to)
{
    ref_zero(&out[0]);
    for (int64_t i = 0; i < shape_count(in[0].shape); i++)
        out[0].data[folded_index(out[0].shape, in[0].shape, i)] += in[0].data[i];
}

REFERENCE(spread_to)
{
    for (int64_t i = 0; i < shape_count(out[0].shape); i++)
        out[0].data[i] = in[0].data[folded_index(in[0].shape, out[0].shape, i)];
}

/* Normal: Box & Muller 1958 on the word pairs (0, 1) and (2, 3): cosine for the even element, sine for the odd one. */
static double normal_of(Philox bits, int place)
{
    int pair = place & ~1;
    double radius = sqrt(-2 * log(1 - (double)philox_unit(bits.v[pair])));
    double angle = 2 * 3.14159265358979323846 * (double)philox_unit(bits.v[pair + 1]);
    return radius * (place & 1 ? sin(angle) : cos(angle));
}

REFERENCE(random)
{
    for (int64_t i = 0; i < shape_count(out[0].shape); i++) {
        uint64_t element = step_element(&in[0], out[0].shape, i);
        Philox bits = draw(&in[0], element, attr->random.stream ^ 0x80000000u);
        int word = (int)(element % 4);
        out[0].data[i] = attr->random.normal ? normal_of(bits, word) : (double)philox_unit(bits.v[word]);
    }
}

/* ---- loss */

/* `targets`: of the sample, or NULL. */
static double target_of(const OpAttr *attr, int classes, int label, const double *targets, int c)
{
    if (targets) return targets[c];
    double smoothing = (double)attr->loss.smoothing;
    return (c == label ? 1 - smoothing : 0) + smoothing / classes;
}

static double log_sum_exp(const double *z, int classes)
{
    double top = z[0], sum = 0;
    for (int c = 1; c < classes; c++) top = fmax(top, z[c]);
    for (int c = 0; c < classes; c++) sum += exp(z[c] - top);
    return top + log(sum);
}

REFERENCE(softmax_loss)
{
    int classes = in[0].shape.c;
    double loss = 0, top1 = 0, top5 = 0;
    for (int n = 0; n < in[0].shape.n; n++) {
        const double *z = in[0].data + (int64_t)n * classes;
        int label = (int)in[1].data[n], better = 0;
        const double *targets = in[2].data ? in[2].data + (int64_t)n * classes : NULL;
        double total = log_sum_exp(z, classes);
        for (int c = 0; c < classes; c++) {
            if (label != LABEL_NONE) loss -= target_of(attr, classes, label, targets, c) * (z[c] - total);
            better += label == LABEL_NONE ? 5 : z[c] > z[label];
            if (out[1].data) out[1].data[(int64_t)n * classes + c] = exp(z[c] - total);
        }
        top1 += better < 1;
        top5 += better < 5;
    }
    if (out[0].data) out[0].data[0] = loss;
    if (out[2].data) out[2].data[0] = top1, out[2].data[1] = top5;
}

REFERENCE(softmax_loss_dx)
{
    int classes = out[0].shape.c;
    for (int64_t i = 0; i < shape_count(out[0].shape); i++) {
        int label = (int)in[1].data[i / classes];
        const double *targets = in[3].data ? in[3].data + i / classes * classes : NULL;
        double sum = targets ? 0 : 1;
        for (int c = 0; targets && c < classes; c++) sum += targets[c];
        double target = target_of(attr, classes, label, targets, (int)(i % classes));
        out[0].data[i] = (in[0].data[i] * sum - target) * in[2].data[0];
        if (label == LABEL_NONE) out[0].data[i] = 0;
    }
}

/* In the form of the definition: each class is a decision between sigmoid x and sigmoid -x. */
REFERENCE(sigmoid_loss)
{
    int classes = in[0].shape.c;
    double loss = 0, hits[2] = {0};
    for (int n = 0; n < in[0].shape.n; n++) {
        const double *x = in[0].data + (int64_t)n * classes, *targets = in[2].data + (int64_t)n * classes;
        int label = (int)in[1].data[n], better = 0, wrong = 0, top = 0;
        for (int c = 0; c < classes; c++) {
            double weight = in[3].data ? in[3].data[c] : 1, yes = -log1p(exp(-x[c])), no = -log1p(exp(x[c]));
            if (label != LABEL_NONE) loss -= (weight * targets[c] * yes + (1 - targets[c]) * no) / classes;
            better += label != LABEL_NONE && x[c] > x[label];
            wrong += (x[c] > 0) != (targets[c] >= 0.5);
            if (x[c] > x[top]) top = c;
            if (out[1].data) out[1].data[(int64_t)n * classes + c] = 1 / (1 + exp(-x[c]));
        }
        if (label == LABEL_NONE) continue;
        hits[0] += attr->loss.multi_label ? wrong == 0 : better < 1;
        hits[1] += attr->loss.multi_label ? targets[top] >= 0.5 : better < 5;
    }
    if (out[0].data) out[0].data[0] = loss;
    if (out[2].data) out[2].data[0] = hits[0], out[2].data[1] = hits[1];
}

REFERENCE(sigmoid_loss_dx)
{
    int classes = out[0].shape.c;
    (void)attr;
    for (int64_t i = 0; i < shape_count(out[0].shape); i++) {
        double weight = in[4].data ? in[4].data[i % classes] : 1, p = in[0].data[i], target = in[3].data[i];
        double slope = (1 - target) * p - weight * target * (1 - p);
        out[0].data[i] = (int)in[1].data[i / classes] == LABEL_NONE ? 0 : slope * in[2].data[0] / classes;
    }
}

typedef void Reference(const OpAttr *attr, const RefTensor *in, RefTensor *out);

static Reference *const references[OP_COUNT] = {
#define OP(KIND, name, ...) [OP_##KIND] = reference_##name,
#include "kernels/ops.def"
};

void reference_run(OpKind kind, const OpAttr *attr, const RefTensor *in, RefTensor *out)
{
    static const OpAttr none;
    references[kind](attr ? attr : &none, in, out);
}

/* ---- optimizers */

static double clip(double g, double limit)
{
    return limit > 0 ? fmax(-limit, fmin(limit, g)) : g;
}

static double step_sgd(const OptimizerHyper *h, double g, double lr, double *state)
{
    if (h->momentum == 0.0f) return lr * g;
    state[0] = (double)h->momentum * state[0] + g;
    return lr * (h->nesterov ? g + (double)h->momentum * state[0] : state[0]);
}

static double step_rmsprop_tf(const OptimizerHyper *h, double g, double lr, double *state)
{
    state[0] = (double)h->decay * state[0] + (1 - (double)h->decay) * g * g;
    double step = lr * g / sqrt(state[0] + (double)h->epsilon);
    if (h->momentum == 0.0f) return step;
    state[1] = (double)h->momentum * state[1] + step;
    return state[1];
}

static double step_rmsprop(const OptimizerHyper *h, double g, double lr, double *state)
{
    state[0] = (double)h->decay * state[0] + (1 - (double)h->decay) * g * g;
    double step = g / (sqrt(state[0]) + (double)h->epsilon);
    if (h->momentum == 0.0f) return lr * step;
    state[1] = (double)h->momentum * state[1] + step;
    return lr * state[1];
}

static double step_adam(const OptimizerHyper *h, double g, double lr, double t, double *state)
{
    double beta1 = (double)h->beta1, beta2 = (double)h->beta2;
    state[0] = beta1 * state[0] + (1 - beta1) * g;
    state[1] = beta2 * state[1] + (1 - beta2) * g * g;
    double first = state[0] / (1 - pow(beta1, t)), second = state[1] / (1 - pow(beta2, t));
    return lr * first / (sqrt(second) + (double)h->epsilon);
}

void reference_update(const OptimizerHyper *hyper, const OptimizerSegment *segment, const OptimizerScalars *scalars,
                      RefUpdate *e)
{
    if (scalars->commit == 0.0f || segment->lr_factor == 0.0f) return;
    double lr = (double)scalars->lr * (double)segment->lr_factor, decay = (double)segment->weight_decay;
    double g = clip(e->grad * (double)scalars->grad_scale, (double)hyper->clip_value);
    if (hyper->kind == OPTIMIZER_ADAMW)
        e->param *= 1 - lr * decay;
    else
        g += decay * e->param;
    switch (hyper->kind) {
    case OPTIMIZER_SGD: e->param -= step_sgd(hyper, g, lr, e->state); break;
    case OPTIMIZER_RMSPROP_TF: e->param -= step_rmsprop_tf(hyper, g, lr, e->state); break;
    case OPTIMIZER_RMSPROP: e->param -= step_rmsprop(hyper, g, lr, e->state); break;
    case OPTIMIZER_ADAM:
    case OPTIMIZER_ADAMW: e->param -= step_adam(hyper, g, lr, (double)scalars->step, e->state); break;
    default: abort(); /* layer-wise */
    }
}

/* LARS: You, Gitman, Ginsburg, arXiv:1708.03888, algorithm 1. LAMB: You et al., arXiv:1904.00962, algorithm 2. */
double reference_update_layer(const OptimizerHyper *hyper, const OptimizerSegment *segment,
                              const OptimizerScalars *scalars, RefUpdate *elements)
{
    double lr = (double)scalars->lr * (double)segment->lr_factor, decay = (double)segment->weight_decay;
    double t = (double)scalars->step, beta1 = (double)hyper->beta1, beta2 = (double)hyper->beta2;
    double weights = 0, gradients = 0, directions = 0, ratio = 1,
           *direction = calloc(segment->count, sizeof *direction);
    if (!direction) abort();
    if (scalars->commit == 0.0f || segment->lr_factor == 0.0f) segment = NULL;
    for (size_t i = 0; segment && i < segment->count; i++) {
        RefUpdate *e = &elements[i];
        double g = clip(e->grad * (double)scalars->grad_scale, (double)hyper->clip_value);
        weights += e->param * e->param;
        gradients += g * g;
        if (hyper->kind == OPTIMIZER_LAMB) {
            e->state[0] = beta1 * e->state[0] + (1 - beta1) * g;
            e->state[1] = beta2 * e->state[1] + (1 - beta2) * g * g;
            double first = e->state[0] / (1 - pow(beta1, t)), second = e->state[1] / (1 - pow(beta2, t));
            direction[i] = first / (sqrt(second) + (double)hyper->epsilon) + decay * e->param;
        } else {
            direction[i] = g + decay * e->param;
        }
        directions += direction[i] * direction[i];
    }
    if (segment && segment->adapts && hyper->kind == OPTIMIZER_LAMB && weights > 0 && directions > 0)
        ratio = sqrt(weights) / sqrt(directions);
    if (segment && segment->adapts && hyper->kind == OPTIMIZER_LARS && weights > 0 && gradients > 0)
        ratio =
            (double)hyper->trust * sqrt(weights) / (sqrt(gradients) + decay * sqrt(weights) + (double)hyper->epsilon);
    for (size_t i = 0; segment && i < segment->count; i++) {
        RefUpdate *e = &elements[i];
        double step = lr * ratio * direction[i];
        if (hyper->kind == OPTIMIZER_LARS && hyper->momentum != 0.0f)
            step = e->state[0] = (double)hyper->momentum * e->state[0] + step;
        e->param -= step;
    }
    free(direction);
    return ratio;
}

/* ---- dtypes */

/* The nearest multiple of 2^(exponent - bits): what a format with `bits` of fraction holds near `value`. */
static double round_to_bits(double value, int bits, int smallest_exponent)
{
    int exponent;
    if (value == 0 || !isfinite(value)) return value;
    frexp(value, &exponent);
    if (exponent < smallest_exponent) exponent = smallest_exponent;
    double unit = ldexp(1, exponent - bits);
    return rint(value / unit) * unit;
}

double dtype_round(Dtype dtype, double value)
{
    switch (dtype) {
    case DTYPE_F32: return (double)(float)value;
    case DTYPE_BF16: return round_to_bits(value, 8, -125);
    case DTYPE_F16: return round_to_bits(value, 11, -13);
    default: return rint(value);
    }
}

static uint16_t half_bits(double value)
{
    int exponent;
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    double fraction = frexp(fabs(dtype_round(DTYPE_F16, value)), &exponent);
    if (isnan(value)) return 0x7e00;
    if (fraction == 0) return sign;
    if (isinf(value) || exponent > 16) return sign | 0x7c00;
    if (exponent < -13) return (uint16_t)(sign | (int)ldexp(fraction, exponent + 24));
    return (uint16_t)(sign | ((exponent + 14) << 10) | ((int)ldexp(fraction, 11) & 0x3ff));
}

static double half_value(uint16_t bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
    double value = exponent ? ldexp(fraction + 1024, exponent - 25) : ldexp(fraction, -24);
    if (exponent == 31) value = fraction ? (double)NAN : (double)INFINITY;
    return bits & 0x8000 ? -value : value;
}

void dtype_store(Dtype dtype, void *data, int64_t i, double value)
{
    float f = (float)dtype_round(dtype, value);
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    switch (dtype) {
    case DTYPE_F32: ((float *)data)[i] = f; break;
    case DTYPE_BF16: ((uint16_t *)data)[i] = (uint16_t)(bits >> 16); break;
    case DTYPE_F16: ((uint16_t *)data)[i] = half_bits(value); break;
    case DTYPE_U8: ((uint8_t *)data)[i] = (uint8_t)value; break;
    default: ((int32_t *)data)[i] = (int32_t)value; break;
    }
}

double dtype_load(Dtype dtype, const void *data, int64_t i)
{
    uint32_t bits;
    float f;
    switch (dtype) {
    case DTYPE_F32: return (double)((const float *)data)[i];
    case DTYPE_BF16:
        bits = (uint32_t)((const uint16_t *)data)[i] << 16;
        memcpy(&f, &bits, sizeof f);
        return (double)f;
    case DTYPE_F16: return half_value(((const uint16_t *)data)[i]);
    case DTYPE_U8: return ((const uint8_t *)data)[i];
    default: return ((const int32_t *)data)[i];
    }
}
