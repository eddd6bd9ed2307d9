/* Packing for wgrad in f32, for the kind of vectors whose header (lanes_*.h) was included before: words are floats. */
#pragma once

#include "kernels/cpu/conv/wgrad.h"

TILE_CODE static void pack_f32(const WgradPanels *panels, int64_t at, const WgradRow *row)
{
    for (int64_t p = 0; p < row->pixels; p++) {
        const float *from = (const float *)row->even + p * row->step;
        for (int k = 0; k < panels->count; k++) {
            int first = panels->first[k], end = panels->first[k + 1];
            float *to = (float *)(void *)(panels->words + first * panels->pixels + (at + p) * (end - first));
            for (int c = first; c < end; c += LANES, to += LANES)
                floats_store(to, floats_load_some(from + c, row->channels - c));
        }
    }
}
