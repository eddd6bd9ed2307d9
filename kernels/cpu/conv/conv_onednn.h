/* A convolution as a oneDNN task: the first of a fixed list of candidates (conv_onednn.c) that oneDNN has fast code for. */
#pragma once

#include "kernels/cpu/choice.h"
#include "kernels/cpu/conv/conv_impl.h"

enum {
    ONEDNN_CANDIDATES = 7,
    FEW_CHANNELS = 16 /* fewer channels are those of an image, whose gradient no training asks for */
};

typedef struct OnednnConv {
    OnednnChoice choice; /* .one_thread and .slices are set by the caller, the rest by onednn_conv_choose; choice_free
                            frees it */
    int taken;           /* candidate */
    bool sums;           /* the task adds to what dx holds */
    bool rotates;        /* the task is a forward convolution with rotated weights */
    const char *declined[ONEDNN_CANDIDATES]; /* why a candidate was passed over; NULL: it is for other windows */
} OnednnConv;

/* ERR_UNSUPPORTED about the call if oneDNN has no fast code and the device accepts no reference. */
NODISCARD Status onednn_conv_choose(OnednnConv *conv, Device *device, const ConvProblem *problem);

void onednn_conv_explain(const OnednnConv *conv, KernelChoice *choice);

/* to = a + b, in bf16; `to` may be one of them. */
void add_bf16(uint16_t *to, const uint16_t *a, const uint16_t *b, int64_t count);
