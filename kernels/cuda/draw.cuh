/* Random numbers of consecutive elements of a step (philox.h), drawn in groups of four. The first element of a batch is
 * that of its first sample, so a thread's elements may begin within a group, unless samples are whole groups: then every
 * vector of four or more begins one, no group is drawn in vain and nothing is moved, which saves registers. */
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/philox.h"

static inline uint32_t elements_per_sample(const Tensor &t)
{
    return (uint32_t)t.shape.c * (uint32_t)t.shape.h * (uint32_t)t.shape.w;
}

static inline bool in_groups(const Tensor &t)
{
    return elements_per_sample(t) % 4 == 0;
}

/* value[0 .. V) = those of elements at .. at + V - 1; draws.draw(group, value) makes the four of a group, and
 * draws.GROUPED says that samples are whole groups. The elements are moved by compile-time distances, so that the array
 * stays in registers. */
template <int V, typename Draws> MEMBER void draw_elements(const Draws &draws, uint64_t at, float *value)
{
    enum { GROUPS = (V + 3) / 4, DRAWN = 4 * GROUPS + 4 };
    if (Draws::GROUPED && V % 4 == 0) {
        UNROLL
        for (int g = 0; g < V / 4; g++) draws.draw(at / 4 + g, value + 4 * g);
        return;
    }
    float drawn[DRAWN] = {};
    uint32_t shift = (uint32_t)(at % 4);
    UNROLL
    for (int g = 0; g < GROUPS; g++) draws.draw(at / 4 + g, drawn + 4 * g);
    if (shift + V > 4 * GROUPS) draws.draw(at / 4 + GROUPS, drawn + 4 * GROUPS);
    UNROLL
    for (int i = 0; i < DRAWN - 2; i++) drawn[i] = shift & 2 ? drawn[i + 2] : drawn[i];
    UNROLL
    for (int i = 0; i < DRAWN - 1; i++) drawn[i] = shift & 1 ? drawn[i + 1] : drawn[i];
    UNROLL
    for (int i = 0; i < V; i++) value[i] = drawn[i];
}
