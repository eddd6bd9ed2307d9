/* Channels side by side: concat, slice, shuffle, and reshape. Pure copies, and, but for the shuffle, not even those if the
 * plan lets the producer write directly into its place. */
#include "kernels/cpu/vector.h"

typedef struct Copy {
    const char *from;
    char *to;
    int64_t from_bytes, to_bytes; /* from one pixel to the next */
    size_t row_bytes;
} Copy;

static void copy_pixels(void *context, int64_t first, int64_t end)
{
    const Copy *copy = context;
    if (copy->from_bytes == copy->to_bytes && (int64_t)copy->row_bytes == copy->to_bytes) {
        memcpy(copy->to + first * copy->to_bytes, copy->from + first * copy->from_bytes,
               (size_t)(end - first) * copy->row_bytes);
        return;
    }
    for (int64_t i = first; i < end; i++)
        memcpy(copy->to + i * copy->to_bytes, copy->from + i * copy->from_bytes, copy->row_bytes);
}

/* Copy `c` channels of every pixel, unless they lie there already. */
static void channels_copy(const Device *device, const Tensor *from, int32_t from_channel, const Tensor *to,
                          int32_t to_channel, int32_t c)
{
    int64_t bytes = (int64_t)dtype_bytes(to->dtype);
    Copy copy = {element_at(from, from_channel), element_at(to, to_channel), from->pitch * bytes, to->pitch * bytes,
                 (size_t)(c * bytes)};
    if (copy.from == copy.to && copy.from_bytes == copy.to_bytes) return;
    chunks_run(device, shape_pixels(to->shape), chunk_pixels(c), copy_pixels, &copy);
}

static Status concat_launch(Device *device, OpCall *call)
{
    int32_t first = 0;
    for (int k = 0; k < call->in_count; k++) {
        if (!call->in[k].data) continue;
        channels_copy(device, &call->in[k], 0, &call->out[0], first, call->in[k].shape.c);
        first += call->in[k].shape.c;
    }
    return OK;
}

const OpKernel cpu_concat = {.launch = concat_launch};

static Status slice_launch(Device *device, OpCall *call)
{
    channels_copy(device, &call->in[0], call->attr.slice.first, &call->out[0], 0, call->out[0].shape.c);
    return OK;
}

const OpKernel cpu_slice = {.launch = slice_launch};

/* y[k groups + g] = x[g c / groups + k], one read and one write. */
#define SHUFFLE(type)                                                                                                  \
    static void shuffle_##type(void *context, int64_t first, int64_t end)                                              \
    {                                                                                                                  \
        const OpCall *call = context;                                                                                  \
        int32_t groups = call->attr.shuffle.groups, each = call->in[0].shape.c / groups;                               \
        for (int64_t i = first; i < end; i++) {                                                                        \
            const type *from = (const type *)call->in[0].data + i * call->in[0].pitch;                                 \
            type *to = (type *)call->out[0].data + i * call->out[0].pitch;                                             \
            for (int32_t k = 0; k < each; k++)                                                                         \
                for (int32_t g = 0; g < groups; g++) to[k * groups + g] = from[g * each + k];                          \
        }                                                                                                              \
    }
SHUFFLE(uint16_t)
SHUFFLE(uint32_t)

static Status shuffle_launch(Device *device, OpCall *call)
{
    bool wide = dtype_bytes(call->out[0].dtype) == sizeof(uint32_t);
    Shape y = call->out[0].shape;
    chunks_run(device, shape_pixels(y), chunk_pixels(y.c), wide ? shuffle_uint32_t : shuffle_uint16_t, call);
    return OK;
}

const OpKernel cpu_shuffle = {.prepare = cpu_check, .launch = shuffle_launch};

static Status reshape_launch(Device *device, OpCall *call)
{
    const Tensor *y = &call->out[0];
    int64_t bytes = (int64_t)dtype_bytes(y->dtype);
    Copy copy = {call->in[0].data, y->data, bytes, bytes, (size_t)bytes};
    if (copy.from != copy.to) chunks_run(device, shape_count(y->shape), CHUNK_ELEMENTS, copy_pixels, &copy);
    return OK;
}

const OpKernel cpu_reshape = {.launch = reshape_launch};
