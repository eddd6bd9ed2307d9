/* Pixels to activations on the GPU: crop, mirror, normalize; the kernel is in image.cu.
 *
 * As on the CPU, except that rows of y may be padded with zeros for the tensor cores of the first convolution. */
#include "kernels/cuda/operands.h"

enum { IMAGE_CHANNELS = 4 };

static Status image_prepare(Device *device, OpCall *call)
{
    (void)device;
    const Tensor *x = &call->in[0], *y = &call->out[0];
    TRY(check_activation(call, y));
    if (x->dtype != DTYPE_U8)
        return FAIL(ERR_UNSUPPORTED, "image '%s': expected u8 pixels, found %s", call->name, dtype_name(x->dtype));
    bool gray = x->shape.c == 1 && y->shape.c <= IMAGE_CHANNELS;
    bool count = x->shape.n == y->shape.n || x->shape.n == y->shape.n + 1; /* the one more is mixed in */
    bool fits = count && x->shape.h >= y->shape.h && x->shape.w >= y->shape.w &&
                (gray || (x->shape.c == y->shape.c && x->shape.c <= IMAGE_CHANNELS));
    if (!fits)
        return FAIL(ERR_SHAPE,
                    "image '%s': cannot crop %s from %s: expected sides within the image, at most %d channels, and as "
                    "many in the image or one (gray)",
                    call->name, shape_text(y->shape), shape_text(x->shape), IMAGE_CHANNELS);
    return OK;
}

LAUNCH_KERNEL(image)

const OpKernel cuda_image = {.prepare = image_prepare, .launch = image_launch, .pads_out = 1};
