/* The files that a command writes where its user says. A name that was mistyped, or taken from the wrong line of the history,
 * must not cost weights, records or images. */
#pragma once

#include "kernels/base/status.h"

typedef enum ResultKind {
    RESULT_MISTAKES = 0,
    RESULT_SCORES,
    RESULT_EMBEDDINGS,
    RESULT_PNG,
    RESULT_PAGE,
    RESULT_CARD,
    RESULT_SAFETENSORS,
    RESULT_ONNX,
    RESULT_GAUGES, /* record/prometheus.h */
} ResultKind;

/* Before any work: OK if nothing is at `path`, an empty file, or one that begins as results of this kind do, which is replaced;
 * else ERR_ARG. `option`: what the name was given to. `data`: a folder of images, of which none is replaced; NULL: none. */
NODISCARD Status result_file_check(const char *option, const char *path, ResultKind kind, const char *data);
