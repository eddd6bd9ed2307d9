/* ConvImpl: one implementation of a convolution, a row of the lists in conv.c.
 *
 * The first row that takes a problem computes it, as in oneDNN's cpu_convolution_list. The order is fixed by
 * measurement and nothing is timed at run time: two runs, and two towers, take the same code and get the same bits. */
#pragma once

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/team.h"

/* The tensors of CONV, CONV_DX or CONV_DW. x and y are those of the convolution; one of x, w and y is the output. */
typedef struct ConvProblem {
    OpKind kind;
    const OpCall *call;       /* borrowed, for messages */
    const Tensor *x, *w, *y;  /* borrowed */
    const Tensor *bias, *acc; /* borrowed; NULL if absent */
    Window window;
    int32_t groups;
    bool relu;
    bool keeps_w; /* what is made of the weights is kept from launch to launch, until OpCall.renewed */
    bool packed;  /* x and y are packed, or parts of packed tensors */
} ConvProblem;

typedef struct ConvImpl {
    const char *name;
    /* NULL if the implementation takes this problem: it can, and no later row is faster. Else the reason, a static
     * text. */
    const char *(*takes)(const Device *device, const ConvProblem *problem);
    Status (*create)(Device *device, const ConvProblem *problem, void **plan);
    size_t (*workspace)(const void *plan); /* bytes */
    Status (*run)(const void *plan, Device *device, OpCall *call);
    void (*destroy)(void *plan);
    /* Adds the variant that create has chosen to choice->name, which begins with the row's name (DeviceConfig.without), and
     * why others were passed over; NULL: there is one variant. */
    void (*explain)(const void *plan, KernelChoice *choice);
    float product_share; /* OpCall.product_share */
    bool takes_groups;   /* else it is not asked about problems of several groups */
    bool takes_dilation; /* else not about windows with pixels between their taps */
    bool adds_bias;      /* run adds the bias; otherwise the caller does */
    bool adds_relu;      /* run ends with the ReLU, after the bias; otherwise the caller applies it */
} ConvImpl;

extern const ConvImpl conv_onednn; /* all kinds */
extern const ConvImpl conv_winograd_f2_3, conv_winograd_f4_3, conv_winograd_f2_5, conv_winograd_f4_7,
    conv_position_gemm;                               /* CONV and CONV_DX */
extern const ConvImpl conv_pointwise;                 /* CONV */
extern const ConvImpl conv_depthwise;                 /* CONV and CONV_DX */
extern const ConvImpl conv_depthwise_dw;              /* CONV_DW */
extern const ConvImpl conv_col2im_dx, conv_phases_dx; /* CONV_DX */
extern const ConvImpl conv_winograd_dw_f2_3, conv_winograd_dw_f4_3, conv_winograd_dw_f2_5, conv_winograd_dw_f4_7,
    conv_wgrad_amx, conv_wgrad_avx512, conv_wgrad_f32, conv_image_dw; /* CONV_DW */

/* The rows for a kind, best first; ends with NULL. The last one is oneDNN's. */
const ConvImpl *const *conv_list(OpKind kind);

/* Operand k of a call, NULL if it is absent. */
const Tensor *conv_optional(const OpCall *call, int k);

/* The input and output of a convolution or of its gradient with respect to x: x and y, or dy and dx. */
static inline const Tensor *conv_from(const ConvProblem *p)
{
    return p->kind == OP_CONV_DX ? p->y : p->x;
}

static inline const Tensor *conv_to(const ConvProblem *p)
{
    return p->kind == OP_CONV_DX ? p->x : p->y;
}
