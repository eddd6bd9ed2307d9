/* What the operands of an op must be on any device, asked once, by prepare. What one device can do on top of that (its
 * element types, its sizes) is asked in its own folder. */
#ifndef TOWERS_KERNELS_OPERANDS_H
#define TOWERS_KERNELS_OPERANDS_H

#include "kernels/op.h"

/* Each present input in [first, end) has the element type of out[0]. */
NODISCARD Status operands_same_dtype(const OpCall *call, int first, int end);
/* The window of a pooling touches the image wherever it stands; with `places`, a byte can name each place in it. */
NODISCARD Status operands_window(const OpCall *call, bool places);
/* Copies: elements of one type; channels that add up, that are there, or as many elements as before. */
NODISCARD Status operands_concat(const OpCall *call);
NODISCARD Status operands_slice(const OpCall *call);
NODISCARD Status operands_reshape(const OpCall *call);

#endif
