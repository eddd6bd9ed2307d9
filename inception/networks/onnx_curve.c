/* Functions of one number, compared at fixed places; see onnx_curve.h. */
#include "inception/networks/onnx_curve.h"

static double clipped(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

static double f_identity(double x)
{
    return x;
}
static double f_relu(double x)
{
    return x > 0 ? x : 0;
}
static double f_relu6(double x)
{
    return clipped(x, 0, 6);
}
static double f_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}
static double f_silu(double x)
{
    return x < -700 ? 0 : x * f_sigmoid(x);
}
static double f_hard_sigmoid(double x)
{
    return clipped(x + 3, 0, 6) / 6;
}
static double f_hard_swish(double x)
{
    return x * f_hard_sigmoid(x);
}
static double f_gelu(double x)
{
    return x * erfc(-x / sqrt(2)) / 2;
}
static double f_gelu_tanh(double x)
{
    return x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))) / 2;
}
static double f_square(double x)
{
    return x * x;
}
static double f_relu_square(double x)
{
    return x > 0 ? x * x : 0;
}
static double f_softplus(double x)
{
    return x > 30 ? x : log1p(exp(x));
}
static double f_mish(double x)
{
    return x * tanh(f_softplus(x));
}
static double f_sign(double x)
{
    return x > 0 ? 1 : x < 0 ? -1 : 0;
}
static double f_reciprocal(double x)
{
    return 1 / x;
}
static double f_negative(double x)
{
    return -x;
}
static double f_softsign(double x)
{
    return x / (1 + fabs(x));
}

double curve_place(int i)
{
    return sinh(14.5 * (i - CURVE_PLACES / 2) / (CURVE_PLACES / 2));
}

Curve curve_constant(double value)
{
    Curve curve;
    for (int i = 0; i < CURVE_PLACES; i++) curve.y[i] = value;
    return curve;
}

Curve curve_identity(void)
{
    Curve curve;
    for (int i = 0; i < CURVE_PLACES; i++) curve.y[i] = curve_place(i);
    return curve;
}

/* ---- nodes */

/* Functions without settings. */
static const struct {
    const char *type;
    double (*f)(double);
} plain[] = {{"Relu", f_relu},         {"Sigmoid", f_sigmoid}, {"HardSwish", f_hard_swish},
             {"Tanh", tanh},           {"Erf", erf},           {"Exp", exp},
             {"Softplus", f_softplus}, {"Mish", f_mish},       {"Neg", f_negative},
             {"Sqrt", sqrt},           {"Abs", fabs},          {"Sign", f_sign},
             {"Swish", f_silu},        {"Log", log},           {"Reciprocal", f_reciprocal},
             {"Softsign", f_softsign}, {"Gelu", f_gelu},       {"GeluTanh", f_gelu_tanh}};

static bool settled(const char *type, CurveSettings s, double x, double *y)
{
    if (!strcmp(type, "Clip"))
        *y = clipped(x, s.a, s.b);
    else if (!strcmp(type, "LeakyRelu"))
        *y = x > 0 ? x : s.a * x;
    else if (!strcmp(type, "HardSigmoid"))
        *y = clipped(s.a * x + s.b, 0, 1);
    else if (!strcmp(type, "Elu"))
        *y = x > 0 ? x : s.a * expm1(x);
    else if (!strcmp(type, "Selu"))
        *y = s.b * (x > 0 ? x : s.a * expm1(x));
    else if (!strcmp(type, "Celu"))
        *y = x > 0 ? x : s.a * expm1(x / s.a);
    else
        return false;
    return true;
}

CurveFunction *curve_function(const char *type)
{
    for (size_t k = 0; k < sizeof plain / sizeof *plain; k++)
        if (!strcmp(plain[k].type, type)) return plain[k].f;
    return NULL;
}

bool curve_apply(const char *type, CurveSettings settings, Curve *curve)
{
    CurveFunction *f = curve_function(type);
    for (int i = 0; i < CURVE_PLACES; i++)
        if (f)
            curve->y[i] = f(curve->y[i]);
        else if (!settled(type, settings, curve->y[i], &curve->y[i]))
            return false;
    return true;
}

bool curve_combine(const char *type, const Curve *a, const Curve *b, Curve *result)
{
    static const char *const types[] = {"Add", "Sub", "Mul", "Div", "Pow", "Min", "Max"};
    size_t kind = 0, kinds = sizeof types / sizeof *types;
    while (kind < kinds && strcmp(types[kind], type) != 0) kind++;
    for (int i = 0; i < CURVE_PLACES && kind < kinds; i++) {
        double x = a->y[i], y = b->y[i];
        const double all[] = {x + y, x - y, x * y, x / y, pow(x, y), fmin(x, y), fmax(x, y)};
        result->y[i] = all[kind];
    }
    return kind < kinds;
}

/* ---- the graph's functions */

static Value identity(Graph *g, Value x)
{
    (void)g;
    return x;
}

static Value square(Graph *g, Value x)
{
    return mul(g, x, x);
}

static Value relu_square(Graph *g, Value x)
{
    return square(g, relu(g, x));
}

/* tanh(softplus(x)) = (1 - s^2) / (1 + s^2), s = 1 / (1 + e^x) */
static Value mish(Graph *g, Value x)
{
    Value s = square(g, sigmoid(g, affine(g, x, -1, 0)));
    return mul(g, x, mul(g, affine(g, s, -1, 1), power(g, affine(g, s, 1, 1), -1)));
}

/* e^x - 1 = 2 h / (1 - h), h = tanh(x / 2), for x < 0; it is 0 elsewhere. */
static Value elu(Graph *g, Value x, float alpha)
{
    Value up = relu(g, x), h = tanh_of(g, affine(g, sub(g, x, up), 0.5f, 0));
    return add(g, up, mul(g, affine(g, h, 2 * alpha, 0), power(g, affine(g, h, -1, 1), -1)));
}

/* In the order in which they are tried. */
static const struct {
    double (*f)(double);
    Value (*build)(Graph *, Value);
} functions[] = {{f_identity, identity},
                 {f_relu, relu},
                 {f_relu6, relu6},
                 {f_silu, silu},
                 {f_hard_swish, hard_swish},
                 {f_gelu, gelu},
                 {f_gelu_tanh, gelu_tanh},
                 {f_sigmoid, sigmoid},
                 {f_hard_sigmoid, hard_sigmoid},
                 {tanh, tanh_of},
                 {f_square, square},
                 {f_relu_square, relu_square},
                 {f_mish, mish}};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

/* Constants in files have 24 bits. */
static bool near(double a, double b, double unit)
{
    return fabs(a - b) <= 1e-6 * unit + 2e-6 * fmax(fabs(a), fabs(b));
}

/* Whether curve = scale f + shift, with f from a table of its values. */
static bool fits(const Curve *curve, const double *f, double *scale, double *shift)
{
    enum { LOW = CURVE_PLACES / 2, HIGH = LOW + 6 }; /* 0, and about 1.5 */
    double rise = f[HIGH] - f[LOW];
    *scale = (curve->y[HIGH] - curve->y[LOW]) / rise;
    if (fabs(*scale - 1) < 1e-6) *scale = 1;
    *shift = curve->y[LOW] - *scale * f[LOW];
    if (fabs(*shift) < 1e-9) *shift = 0;
    if (!(fabs(*scale) > 0) || !isfinite(*shift)) return false;
    for (int i = 0; i < CURVE_PLACES; i++)
        if (!near(curve->y[i], *scale * f[i] + *shift, fmin(fabs(*scale), 1))) return false;
    return true;
}

static bool is_reciprocal(const Curve *curve)
{
    for (int i = 0; i < CURVE_PLACES; i++)
        if (!isfinite(1 / curve->y[i]) || !near(1 / curve->y[i], curve_place(i), 0)) return false;
    return true;
}

static void table_of(double (*f)(double), double *y)
{
    for (int i = 0; i < CURVE_PLACES; i++) y[i] = f(curve_place(i));
}

static Value scaled(Graph *g, Value x, double scale, double shift)
{
    return scale == 1 && shift == 0 ? x : affine(g, x, (float)scale, shift == 0 ? 0 : (float)shift); /* no -0 */
}

/* A line that rises from 0 at `start`, up to `height`, which may be infinite. */
typedef struct Ramp {
    double slope, start, height;
} Ramp;

static Value ramp(Graph *g, Value x, Ramp r, double sign, double shift)
{
    bool ends = isfinite(r.height);
    double unit = ends ? 6 / r.height : 1;
    Value inner = scaled(g, x, unit * r.slope, -unit * r.slope * r.start);
    return scaled(g, ends ? relu6(g, inner) : relu(g, inner), sign / unit, shift);
}

/* A line between two limits, each of which may be absent. It is put together from where it is near 0, as what is added to a large
 * limit would be rounded as that is. */
static bool line_build(Graph *g, Value x, const Curve *curve, Value *y)
{
    enum { LAST = CURVE_PLACES - 1, NEAR = 100 };
    const double *c = curve->y;
    int first = 0, last = LAST;
    while (first < last && near(c[first], c[0], 1)) first++;
    while (last > first && near(c[last], c[LAST], 1)) last--;
    if (first >= last) return false;
    double slope = (c[last] - c[first]) / (curve_place(last) - curve_place(first)),
           zero = curve_place(first) - c[first] / slope;
    double left = first > 1   ? c[0]
                  : slope > 0 ? -INFINITY
                              : INFINITY,
           right = last < LAST - 1 ? c[LAST]
                   : slope > 0     ? INFINITY
                                   : -INFINITY;
    double low = fmin(left, right), high = fmax(left, right);
    double from = fabs(low) <= NEAR    ? low
                  : fabs(high) <= NEAR ? high
                                       : clipped(0, low, high),
           start = zero + from / slope;
    if (!(fabs(slope) > 0) || !(high > low)) return false;
    for (int i = 0; i < CURVE_PLACES; i++)
        if (!near(c[i], clipped(slope * (curve_place(i) - zero), low, high), 1)) return false;
    Value up = {0}, down = {0};
    if (high > from) up = ramp(g, x, (Ramp){slope, start, high - from}, 1, from);
    if (low < from) down = ramp(g, x, (Ramp){-slope, start, from - low}, -1, up.id ? 0 : from);
    *y = !down.id ? up : !up.id ? down : add(g, up, down);
    return true;
}

bool curve_build(Graph *g, Value x, const Curve *curve, Value *y)
{
    double f[CURVE_PLACES], scale, shift, alpha = curve->y[0] / curve_place(0);
    for (int k = 0; k < FUNCTIONS; k++) {
        table_of(functions[k].f, f);
        if (!fits(curve, f, &scale, &shift)) continue;
        *y = scaled(g, functions[k].build(g, x), scale, shift);
        return true;
    }
    for (int i = 0; i < CURVE_PLACES; i++) f[i] = curve_place(i) > 0 ? curve_place(i) : alpha * curve_place(i);
    if (alpha > 0 && fits(curve, f, &scale, &shift) && scale == 1 && shift == 0) {
        *y = leaky_relu(g, x, (float)alpha);
        return true;
    }
    double rise = curve->y[CURVE_PLACES - 1] / curve_place(CURVE_PLACES - 1), depth = -curve->y[0] / rise;
    for (int i = 0; i < CURVE_PLACES; i++) f[i] = curve_place(i) > 0 ? curve_place(i) : depth * expm1(curve_place(i));
    if (depth > 0 && fits(curve, f, &scale, &shift) && shift == 0) {
        *y = scaled(g, elu(g, x, (float)depth), scale, 0);
        return true;
    }
    if (is_reciprocal(curve)) {
        *y = power(g, x, -1);
        return true;
    }
    return line_build(g, x, curve, y);
}

bool curve_is_known(const Curve *curve)
{
    Graph *g;
    Value y;
    if (graph_create(&(GraphOptions){.compute = DTYPE_F32}, &g) != OK) return false;
    bool known = curve_build(g, graph_input(g, "x", (Shape){1, 1, 1, 1}, DTYPE_F32), curve, &y);
    graph_destroy(g);
    return known;
}
