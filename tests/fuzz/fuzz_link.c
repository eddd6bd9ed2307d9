/* libFuzzer target of the frames between hosts: arbitrary bytes, read frame by frame as from a connection. No accepted
 * frame may reach beyond the bytes, and texts end. */
#include <stdlib.h>
#include <string.h>

#include "nccl_sync/link_frames.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    Frame frame;
    int64_t length;
    size_t at = 0;
    if (!copy) abort();
    memcpy(copy, data, size);
    while ((length = frame_read(copy + at, size - at, 5, &frame)) > 0) {
        if ((size_t)length > size - at || frame.bytes > (size_t)length || frame.to < 0 || frame.to >= 5) abort();
        if (frame.kind == FRAME_REFUSED && strlen((const char *)frame.content) >= frame.bytes) abort();
        at += (size_t)length;
    }
    free(copy);
    return 0;
}
