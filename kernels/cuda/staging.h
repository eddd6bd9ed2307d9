/* A ring of pinned host memory for copies from ordinary memory to the device.
 *
 * A copy out of pageable memory holds the host back until the stream has reached it; through the ring the host only
 * copies into a free piece and goes on, as long as fewer than the ring's bytes are under way. */
#ifndef TOWERS_KERNELS_CUDA_STAGING_H
#define TOWERS_KERNELS_CUDA_STAGING_H

#include "kernels/cuda/check.h"

typedef struct Staging Staging;

NODISCARD Status staging_open(Staging **made);
void staging_close(Staging *staging); /* NULL is fine */

/* Copy host memory, which may be reused on return, to device memory in the order of `stream`. */
NODISCARD Status staging_upload(Staging *staging, void *to, const void *host, size_t bytes, cudaStream_t stream);

#endif
