/* Choosing a oneDNN task for a call: candidates are offered best first, and the first with optimized code is taken.
 *
 * A candidate that oneDNN does not have, or has only as reference code, or computes wrongly in a trial (see
 * onednn_probe), is passed over. If none is left, the first one by plain products is taken; if there are only reference loops, the
 * call fails with a message that names it, unless the device accepts them. The order is fixed, never measured at run time: two runs, and two towers, must take the same
 * code to get the same bits. Matrix products, which 1x1 convolutions and dense layers share, are described here too.
 *
 * Nor do bits depend on the number of threads. oneDNN may divide the sums of a matrix product among the threads that it
 * finds, so that another team rounds otherwise: without AVX-512 any sum (gemm:jit), with it long sums
 * (brgemm_matmul_utils.cpp, nthr_k and k_blk; from 3.7 on also those of a single row), and so those of a gradient of
 * weights. Such a task is cut into parts by its shape alone, each of them made for one thread. */
#pragma once

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/onednn.h"

enum { FROM_OUT = -1, FROM_NOTHING = -2 }; /* otherwise: index into call->in */

typedef struct OnednnParts OnednnParts; /* a task, or several that make up one */

/* How a gradient of weights is cut: into `images` slices of the batch, whose results are added up in order, and each of these into
 * `outs` ranges of output channels. */
typedef struct OnednnSlices {
    int32_t batch; /* 0: no such cut */
    int images, outs;
} OnednnSlices;

typedef struct OnednnChoice {
    OnednnParts *task;            /* owned: the winner, NULL until there is one */
    int8_t operand[ONEDNN_ROLES]; /* the operand of the call that has each role */
    OnednnParts *reference;       /* owned: the first of the fastest that are not optimized */
    int8_t reference_operand[ONEDNN_ROLES];
    bool one_thread;     /* offered tasks are made for one thread (OnednnSpec) */
    OnednnSlices slices; /* set by the caller before the first offer for gradients of weights */
    bool wrong;          /* a candidate was passed over because its results are wrong */
} OnednnChoice;

/* Offer a candidate; does nothing once there is a winner. ERR_UNSUPPORTED is not a failure here. */
NODISCARD Status choice_offer(OnednnChoice *choice, Device *device, const OnednnSpec *spec,
                              const int8_t operand[ONEDNN_ROLES]);

/* Ends the choice: keeps the winner, else a reference by products or an accepted one, else fails with ERR_UNSUPPORTED. */
NODISCARD Status choice_settle(OnednnChoice *choice, Device *device, const OpCall *call);
void choice_free(OnednnChoice *choice);

/* Of the winner: oneDNN's name of its code, and what it needs. */
const char *choice_impl(const OnednnChoice *choice);
size_t choice_workspace_bytes(const OnednnChoice *choice);
/* Run the winner on the call's operands; the output goes to `out`. */
NODISCARD Status choice_run(const OnednnChoice *choice, const Device *device, const OpCall *call, void *out);

/* y[rows][outs] = x[rows][ins] * transpose(w[outs][ins]), and the two products that are its gradients. */
typedef enum OnednnProductKind { PRODUCT_Y, PRODUCT_DX, PRODUCT_DW } OnednnProductKind;

typedef struct OnednnProduct {
    OnednnProductKind kind;
    int64_t rows, ins, outs;
    int64_t x_pitch, y_pitch; /* elements from row to row; w is packed */
    Dtype x, y;               /* as held (x, dx and y, dy); w, dw and bias are f32 */
    bool bias, relu, sum;
    bool keeps_w; /* OnednnSpec */
} OnednnProduct;

/* Offer a product whose operands are in the order of OP_CONV, OP_CONV_DX, OP_CONV_DW. */
NODISCARD Status choice_offer_product(OnednnChoice *choice, Device *device, const OnednnProduct *product);
