/* Curve: a function of one number that several nodes of a file compute together, such as SiLU by Sigmoid and Mul or GELU by Div, Erf,
 * Add and two Mul. It is kept as its values at fixed places, and compared there with the functions that the graph has; so the form in
 * which an exporter writes a function does not matter. */
#pragma once

#include "inception/networks/net_file.h"

enum { CURVE_PLACES = 129 };
typedef struct Curve {
    double y[CURVE_PLACES];
} Curve;

double curve_place(int i); /* from -1e6 to 1e6, dense around 0 */
Curve curve_identity(void);

/* A function of one operand that needs no settings; NULL: `type` is none. */
typedef double CurveFunction(double x);
CurveFunction *curve_function(const char *type);
/* The node's function of one operand, in place; false if `type` is none that is known. */
typedef struct CurveSettings {
    double a, b; /* alpha and beta, or the limits of Clip */
} CurveSettings;
bool curve_apply(const char *type, CurveSettings settings, Curve *curve);
/* Add, Sub, Mul, Div, Pow, Min, Max of two curves of the same number; false if it is none of these. */
bool curve_combine(const char *type, const Curve *a, const Curve *b, Curve *result);
Curve curve_constant(double value);

/* Appends the ops that compute the curve of x; false if the graph has none. */
bool curve_build(Graph *g, Value x, const Curve *curve, Value *y);
/* Whether it has them. */
bool curve_is_known(const Curve *curve);
