/* Choosing a oneDNN task for a call: candidates are offered best first, and the first with optimized code is taken.
 *
 * A candidate that oneDNN does not have, or has only as reference loops, or computes wrongly in a trial (see
 * onednn_probe.h), is passed over. If none is left, the call fails with a message that names it, unless the device
 * accepts reference code. The order is fixed, never measured at run time: two runs, and two towers, must take the same
 * code to get the same bits. Matrix products, which 1x1 convolutions and dense layers share, are described here too. */
#pragma once

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/onednn_parts.h"

enum { FROM_OUT = -1, FROM_NOTHING = -2 }; /* otherwise: index into call->in */

typedef struct OnednnChoice {
    OnednnParts *task;            /* owned: the winner, NULL until there is one */
    int8_t operand[ONEDNN_ROLES]; /* the operand of the call that has each role */
    OnednnParts *reference;       /* owned: a slow one, used only if the device accepts it */
    int8_t reference_operand[ONEDNN_ROLES];
    bool one_thread; /* offered tasks are made for one thread (OnednnSpec) */
    bool wrong;      /* a candidate was passed over because its results are wrong */
} OnednnChoice;

/* Offer a candidate; does nothing once there is a winner. ERR_UNSUPPORTED is not a failure here. */
NODISCARD Status choice_offer(OnednnChoice *choice, Device *device, const OnednnSpec *spec,
                              const int8_t operand[ONEDNN_ROLES]);

/* Ends the choice: keeps the winner, else an accepted reference, else fails with ERR_UNSUPPORTED. */
NODISCARD Status choice_settle(OnednnChoice *choice, Device *device, const OpCall *call);
void choice_free(OnednnChoice *choice);

/* Run the winner on the call's operands; the output goes to `out`. */
NODISCARD Status choice_run(const OnednnChoice *choice, const OpCall *call, void *out);

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
