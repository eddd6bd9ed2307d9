/* Kernels that are undefined on a GPU, though they would work here by luck: the emulation must stop at them (test_cuda_details). */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/* Shuffles with all 32 lanes in a block of so many threads, of which those behind the first `lanes` of each warp have ended. */
void undefined_shuffle(int threads, int lanes);
/* The last of three blocks adds what all have written; with a fence before a block counts itself (bit 0 of `fences`), and
 * before the last one reads (bit 1). */
void undefined_sum(int fences, int unused);
/* A product of a warpgroup, with so many of what it needs: the fence behind its copies, the one before it, a matrix within the
 * room of the launch, its group, and a wait behind it. */
void undefined_product(int needs, int unused);

#ifdef __cplusplus
}
#endif
