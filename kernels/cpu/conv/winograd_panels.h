/* What Winograd's algorithms for x and dx know before they run: which processors and tensors they are for, the code for
 * the processor, how outputs are cut into panels, and what all of them plan alike (winograd.c). */
#pragma once

#include "kernels/cpu/conv/conv_impl.h"
#include "kernels/cpu/onednn_isa.h"
#include "kernels/cpu/vector.h"

enum {
    GROUP = 8,  /* tiles multiplied together */
    VECTORS = 3 /* of outputs in a panel, at most */
};

/* Whether to run the code for AVX-512, not that for AVX2 (ONEDNN_MAX_CPU_ISA counts). */
static inline bool winograd_wide(void)
{
    return onednn_has_avx512() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl");
}

static inline bool multiples_of(int count, const Tensor *x, const Tensor *y)
{
    return x->shape.c % count == 0 && y->shape.c % count == 0;
}

/* Why this processor or these tensors are not for Winograd's algorithms; NULL if they are. */
static inline const char *winograd_declines(const Tensor *x, const Tensor *y, int few_channels, int few_pixels)
{
    bool avx2 = onednn_has_avx2() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (x->dtype != y->dtype || (x->dtype != DTYPE_F32 && x->dtype != DTYPE_BF16)) return "types are not f32 or bf16";
    if (x->dtype == DTYPE_F32 && !winograd_wide() && !avx2) return "processor has no AVX-512 or AVX2";
    if (x->dtype == DTYPE_BF16 && !(onednn_has_bf16() && __builtin_cpu_supports("avx512bf16")))
        return "processor has no AVX512-BF16";
    if (x->dtype == DTYPE_BF16 && onednn_has_amx()) return "plain products by AMX are faster";
    if (x->dtype == DTYPE_F32 && !multiples_of(8, x, y)) return "channels are not multiples of 8";
    if (x->dtype == DTYPE_BF16 && !multiples_of(16, x, y)) return "channels are not multiples of 16";
    if (x->shape.c < few_channels || y->shape.c < few_channels) return "too few channels";
    return shape_pixels(y->shape) < few_pixels ? "too few pixels" : NULL;
}

/* An algorithm's code for one kind of processor: bodies of chunks_run. */
typedef struct WinogradCode {
    int lanes;          /* of a vector */
    ChunkBody *weights; /* squares of lanes x lanes weights */
    ChunkBody *outputs; /* tiles, or lines of them */
} WinogradCode;

/* The one for this processor and these tensors. bf16 has code for AVX-512 alone. Channels that are no multiple of its
 * 16 lanes are computed with the 8 of AVX2, which every processor with AVX-512 has. */
static inline const WinogradCode *winograd_code(const Tensor *x, const Tensor *y, const WinogradCode *avx512,
                                                const WinogradCode *avx2)
{
    return x->dtype == DTYPE_BF16 || (winograd_wide() && multiples_of(16, x, y)) ? avx512 : avx2;
}

/* Elements of a word, which is what one instruction multiplies: a float, or two bf16. */
static inline int word_elements(Dtype dtype)
{
    return dtype == DTYPE_F32 ? 1 : 2;
}

/* What follows the sums of a convolution's outputs. */
typedef struct Finish {
    const float *bias; /* [channels]; NULL: none */
    bool relu;
} Finish;

static inline Finish finish_of(const OpCall *call)
{
    const Tensor *bias = call->kind == OP_CONV ? conv_optional(call, 2) : NULL;
    return (Finish){bias ? bias->data : NULL, call->kind == OP_CONV && call->attr.conv.relu};
}

/* Outputs are cut into about equal panels. */
typedef struct Panels {
    int64_t lanes;   /* of a vector */
    int64_t vectors; /* of all outputs */
    int64_t count;
} Panels;

static inline Panels panels_of(int64_t lanes, int64_t outputs)
{
    int64_t vectors = outputs / lanes;
    return (Panels){lanes, vectors, (vectors + VECTORS - 1) / VECTORS};
}

/* The first output of panel k. */
static inline int64_t panels_first(const Panels *p, int64_t k)
{
    return p->vectors * k / p->count * p->lanes;
}

static inline int64_t panels_width(const Panels *p, int64_t k)
{
    return panels_first(p, k + 1) - panels_first(p, k);
}

/* What is planned alike: the beginning of an algorithm's own plan. */
typedef struct WinogradPlan {
    const WinogradCode *code;
    Dtype dtype;
    Shape x, y;
    bool rotated; /* weights: for the gradient */
    int points;   /* elements of u for an input and an output */
    int plain;    /* the first plain tap among them, if there are any */
    int threads;
    size_t per_thread_bytes;
    int64_t outputs, block; /* tiles, or lines of them: in all, and those that one thread computes at a time */
    Panels panels;
    void *zeros; /* owned: a pixel outside the image */
    uint32_t
        *kept; /* owned: transformed weights that are kept from launch to launch, or NULL: each launch makes them */
} WinogradPlan;

/* The arguments of a run: the context of a WinogradCode. */
typedef struct WinogradRun {
    const WinogradPlan *plan;
    const void *x;
    const float *w;
    const Tensor *acc;
    Finish finish;
    void *y;
    uint32_t *u;      /* transformed weights */
    char *per_thread; /* memory of each thread, one after another */
} WinogradRun;

/* The functions of a ConvImpl. winograd_begin makes a plan of `bytes` bytes, zeroed but for what all plans have before
 * `points`, and panels and zeros; winograd_create ends it, with memory for weights that are kept. */
NODISCARD Status winograd_begin(const Device *device, const ConvProblem *p, size_t bytes, const WinogradCode *avx512,
                                const WinogradCode *avx2, void **made);
NODISCARD Status winograd_create(const ConvProblem *p, void *plan, void **made);
size_t winograd_workspace(const void *made);
Status winograd_run(const void *made, Device *device, OpCall *call);
void winograd_destroy(void *made);

static inline int64_t panels_find(const Panels *p, int64_t out)
{
    int64_t k = 0;
    while (panels_first(p, k + 1) <= out) k++;
    return k;
}

/* Address of word `word` of the inputs for a vector of outputs from `out` on in u[panel][point][words][width], for
 * point 0. */
static inline uint32_t *words_at(const Panels *p, uint32_t *u, int64_t words, int points, int64_t word, int64_t out,
                                 int64_t *width)
{
    int64_t k = panels_find(p, out), first = panels_first(p, k);
    *width = panels_width(p, k);
    return u + first * words * points + word * *width + (out - first);
}
