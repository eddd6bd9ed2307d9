/* A block shared by Inception v4 and Inception-ResNet-v2 (arXiv:1602.07261). Names follow timm's checkpoints. */
#include "inception/models/models.h"

// clang-format off

Value reduction_a(Graph *g, Value x, const char *name, int32_t k, int32_t l, int32_t m, int32_t n)
{
    graph_scope(g, name);
    Value b0 = CHAIN(g, x, {"branch0",   n, 3, 3, HALVE});
    Value b1 = CHAIN(g, x, {"branch1.0", k, 1, 1}, {"branch1.1", l, 3, 3}, {"branch1.2", m, 3, 3, HALVE});
    Value b2 = max_pool(g, x, 3, HALVE);
    return CONCAT(g, b0, b1, b2);
}
// clang-format on
