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
