/* Tries an implementation of oneDNN before use, for problems that some version is known to compute wrongly.
 *
 * Known: oneDNN 3.7.2 (Debian 13), brg_matmul with AVX-512, treats a vector operand of a matrix product as packed,
 * whatever its stride. If there is one output and the result is a slice of a wider tensor, it writes beside the
 * elements and leaves them unchanged; a strided vector factor is read from the wrong addresses. */
#pragma once

#include "kernels/cpu/onednn.h"

/* Whether some version of oneDNN computes this kind of problem wrongly. */
bool onednn_is_suspect(const OnednnSpec *spec);

/* Runs a small task of that kind (at most 48 in each dimension, the same strides and dtypes) on known values. *right
 * is set if the result is right and no memory beside its elements was written. */
NODISCARD Status onednn_probe(Onednn *onednn, const OnednnSpec *spec, bool *right);
