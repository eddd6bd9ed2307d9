/* A task of oneDNN is one convolution or matrix product, made once and run many times without allocating. The caller
 * says how it holds each operand (plain strides, any dtype) and how freely oneDNN may choose another layout; where the
 * two differ, the task converts through workspace, before the primitive for inputs and after it for the output. oneDNN
 * silently falls back to reference code; onednn_code reports that. */
#pragma once

#include "kernels/op.h"

typedef struct Onednn Onednn;
typedef struct OnednnTask OnednnTask;

typedef enum OnednnKind { ONEDNN_CONV = 0, ONEDNN_CONV_DX, ONEDNN_CONV_DW, ONEDNN_MATMUL } OnednnKind;

/* The role of an operand in the primitive. For ONEDNN_MATMUL: y = x w (+ bias), all of rank 2. */
typedef enum OnednnRole { ONEDNN_X = 0, ONEDNN_W, ONEDNN_Y, ONEDNN_BIAS, ONEDNN_ROLES } OnednnRole;
OnednnRole onednn_out(OnednnKind kind); /* the role of the output */

typedef enum OnednnFit {
    ONEDNN_AS_HELD = 0, /* the primitive works on the caller's strides; a copy in another dtype has no gaps */
    ONEDNN_PACKED,      /* on the same order of axes without gaps */
    ONEDNN_ANY          /* on the layout that oneDNN chooses */
} OnednnFit;

enum { ONEDNN_AXES = 5 };

/* Dimensions in oneDNN's logical order: x and y {n, c, h, w}, w {out, in, h, w} or {groups, out, in, h, w}, bias {out}. rank 0:
 * absent. */
typedef struct OnednnView {
    int rank;
    int64_t dims[ONEDNN_AXES], strides[ONEDNN_AXES]; /* elements */
    Dtype dtype;
} OnednnView;

typedef struct OnednnSpec {
    OnednnKind kind;
    OnednnView held[ONEDNN_ROLES];
    OnednnFit fit[ONEDNN_ROLES];
    Dtype compute[ONEDNN_ROLES]; /* the dtype in which the primitive reads or writes the operand */
    Window window;               /* convolutions */
    bool one_thread;             /* made for one thread and run by one */
    bool relu;                   /* of the output, at last; NaN stays NaN (forward, matmul) */
    bool keeps_w;                /* keep converted weights from run to run, until onednn_renew */
    bool sum;                    /* add to what the output holds (forward, matmul; it must need no conversion) */
} OnednnSpec;

/* What oneDNN has for a task: code that is made for the processor; convolutions as matrix products in plain C ("gemm:ref"), which
 * is all that it has for NEON; or reference loops, a hundred times slower. */
typedef enum OnednnCode { ONEDNN_OPTIMIZED = 0, ONEDNN_PLAIN_PRODUCTS, ONEDNN_LOOPS } OnednnCode;

NODISCARD Status onednn_open(Onednn **made);
void onednn_close(Onednn *onednn);

/* ERR_UNSUPPORTED if this oneDNN on this processor has nothing for it. */
NODISCARD Status onednn_create(Onednn *onednn, const OnednnSpec *spec, OnednnTask **made);
void onednn_destroy(OnednnTask *task);

const char *onednn_impl(const OnednnTask *task); /* oneDNN's name of the chosen code, "brgconv:avx512_core" */
OnednnCode onednn_code(const OnednnTask *task);
size_t onednn_workspace_bytes(const OnednnTask *task);

/* The weights have other values from now on. */
void onednn_renew(OnednnTask *task);

/* `workspace`: aligned to 64 bytes, uninitialized. A task runs on one thread at a time. */
NODISCARD Status onednn_run(OnednnTask *task, void *const data[ONEDNN_ROLES], void *workspace);

/* ---- trials, for problems that some version of oneDNN is known to compute wrongly
 *
 * Known: oneDNN 3.7.2 (Debian 13), brg_matmul with AVX-512, treats a vector operand of a matrix product as packed,
 * whatever its stride. If there is one output and the result is a slice of a wider tensor, it writes beside the
 * elements and leaves them unchanged; a strided vector factor is read from the wrong addresses. */

/* Whether some version of oneDNN computes this kind of problem wrongly. */
bool onednn_is_suspect(const OnednnSpec *spec);

/* Runs a small task of that kind (at most 48 in each dimension, the same strides and dtypes) on known values. *right
 * is set if the result is right and no memory beside its elements was written. */
NODISCARD Status onednn_probe(Onednn *onednn, const OnednnSpec *spec, bool *right);
