/* Copies from host memory to the device that do not block the host.
 *
 * A copy from pageable memory blocks the host until the stream has reached it. With a ring of pinned memory the host
 * only copies into a free slot and continues, unless all slots are in use. Large batches of pixels lie in pinned memory
 * of their own: they go to the device on the copy stream, beside the work of the step before, into one of two buffers
 * there, and from it to their place in the order of the compute stream. */
#pragma once

#include "kernels/cuda/libraries/check.h"

typedef struct Staging Staging;

NODISCARD Status staging_open(Staging **made);
void staging_close(Staging *staging); /* NULL is fine */

/* Copy host memory, which may be reused on return, to device memory in the order of `stream`. */
NODISCARD Status staging_upload(Staging *staging, void *to, const void *host, size_t bytes, cudaStream_t stream);

enum { STAGING_BUFFERS = 2 };
/* Uploads of up to `bytes` from pinned memory will come: make the buffers for them, each so large. Without room for them
 * the buffers stay as they are, and larger uploads wait for their turn in the compute stream. */
void staging_expect(Staging *staging, size_t bytes);
/* Copy pinned host memory to device memory in the order of `compute`. It may be reused after staging_wait. */
NODISCARD Status staging_upload_pinned(Staging *staging, void *to, const void *host, size_t bytes, cudaStream_t compute,
                                       cudaStream_t copy);
NODISCARD Status staging_wait(Staging *staging); /* for all of these */
