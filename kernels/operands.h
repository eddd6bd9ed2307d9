/* Checks of an op's operands that hold on every device; prepare calls them. Each device also checks its own element
 * types and sizes. */
#pragma once

#include "kernels/op.h"

/* Each present input in [first, end) has the element type of out[0]. */
NODISCARD Status operands_same_dtype(const OpCall *call, int first, int end);
/* Every size of `small` is 1, or that of `big`. */
NODISCARD Status operands_fold(const OpCall *call, const Tensor *small, const Tensor *big);
/* in[0] of a loss is a row of logits per sample; probabilities (out[1]), if wanted, are f32. */
NODISCARD Status operands_logits(const OpCall *call);
/* The window of a pooling touches the image wherever it stands; with `places`, a byte can name each place in it. */
NODISCARD Status operands_window(const OpCall *call, bool places);
/* Operands of one type: a CONCAT of all channels of its output, a SLICE within its input, a RESHAPE of equal size. */
NODISCARD Status operands_copy(const OpCall *call);
/* The output has the sides that padding the input makes. */
NODISCARD Status operands_pad(const OpCall *call);
