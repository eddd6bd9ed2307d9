/* Numbers known before the network runs, one by one (onnx_walk.h). */
#include "inception/networks/onnx_walk.h"

bool element_is_integer(OnnxElement type)
{
    return type != ELEMENT_FLOAT && type != ELEMENT_DOUBLE && type != ELEMENT_FLOAT16 && type != ELEMENT_BFLOAT16;
}

double fixed_at(const Fixed *fixed, int64_t i)
{
    if (fixed->number) return fixed->number[i];
    if (!fixed->turned) return onnx_element(&fixed->from, i);
    int64_t columns = fixed->dims[1], rows = fixed->dims[0];
    return onnx_element(&fixed->from, i % columns * rows + i / columns);
}

bool fixed_all_are(const Fixed *fixed, double value)
{
    bool are = fixed && !fixed->from.absent;
    for (int64_t i = 0; are && i < fixed->count; i++) are = fixed_at(fixed, i) == value;
    return are;
}

int fixed_ints(const Fixed *fixed, int64_t *to, int room)
{
    if (!fixed || fixed->count > room || fixed->rank > 1) return -1;
    for (int64_t i = 0; i < fixed->count; i++) {
        double x = fixed_at(fixed, i);
        to[i] = x >= 9e18 ? INT64_MAX : x > -9e18 ? (int64_t)x : INT64_MIN; /* that of NaN, too, which is no size */
    }
    return (int)fixed->count;
}

void fixed_from_tensor(OnnxTensor tensor, const char *name, Fixed *fixed)
{
    *fixed = (Fixed){.rank = tensor.rank, .count = tensor.count, .from = tensor, .name = name};
    memcpy(fixed->dims, tensor.dims, sizeof fixed->dims);
    fixed->integer = element_is_integer(tensor.type);
}

double fixed_spread_at(const Fixed *f, int64_t i, int rank, const int64_t *dims)
{
    int64_t at = 0, step = 1;
    for (int axis = rank - 1; axis >= 0; axis--) {
        int64_t here = i % dims[axis];
        int own = axis - (rank - f->rank);
        i /= dims[axis];
        if (own < 0) continue;
        if (f->dims[own] > 1) at += here * step;
        step *= f->dims[own];
    }
    return fixed_at(f, at);
}

bool fixed_spread(const Fixed *f, int *rank, int64_t *dims)
{
    int more = f->rank - *rank;
    if (more > 0) {
        memmove(dims + more, dims, (size_t)*rank * sizeof *dims);
        for (int i = 0; i < more; i++) dims[i] = 1;
        *rank = f->rank;
    }
    for (int i = 0; i < f->rank; i++) {
        int64_t *at = &dims[*rank - f->rank + i];
        if (*at == 1)
            *at = f->dims[i];
        else if (f->dims[i] != 1 && f->dims[i] != *at)
            return false;
    }
    return true;
}
