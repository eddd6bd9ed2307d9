/* Checks of an op's operands that hold on every device; prepare calls them. Each device also checks its own element
 * types and sizes. */
#ifndef TOWERS_KERNELS_OPERANDS_H
#define TOWERS_KERNELS_OPERANDS_H

#include "kernels/op.h"

/* Each present input in [first, end) has the element type of out[0]. */
NODISCARD Status operands_same_dtype(const OpCall *call, int first, int end);
/* Every size of `small` is 1, or that of `big`. */
NODISCARD Status operands_fold(const OpCall *call, const Tensor *small, const Tensor *big);
/* in[0] of a softmax loss is a row of logits a sample; probabilities (out[1]), if wanted, are f32. */
NODISCARD Status operands_logits(const OpCall *call);
/* The window of a pooling touches the image wherever it stands; with `places`, a byte can name each place in it. */
NODISCARD Status operands_window(const OpCall *call, bool places);
/* Copies: elements of one type; channels that add up, that are there, or as many elements as before. */
NODISCARD Status operands_concat(const OpCall *call);
NODISCARD Status operands_slice(const OpCall *call);
NODISCARD Status operands_reshape(const OpCall *call);
/* The output has the sides that padding the input makes. */
NODISCARD Status operands_pad(const OpCall *call);

#endif
