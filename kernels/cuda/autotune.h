/* Timing of candidates for one task on the device, each with cold caches, as it will find them in a training step, and
 * on random operands: zeros draw less power, so the clock would be higher than it will be. */
#pragma once

#include "kernels/backend.h"

enum { AUTOTUNE_CANDIDATES = 32 /* at most */ };

typedef struct Candidates {
    int count;
    void *context;                                            /* borrowed: of the functions */
    Status (*run)(Device *device, void *context, int number); /* enqueue it once on STREAM_COMPUTE */
    Status (*reset)(Device *device, void *context);           /* fill the operands: alike every time */
    Tensor (*result)(void *context, int number); /* where it leaves its result; NULL: they are not compared */
} Candidates;

/* The fastest of the candidates: the least time of a few runs; one that is three times as slow as another is given up.
 * One that fails to launch, then or when it is run again, is counted in device->refused and loses, and so does one of
 * which no other one confirms the result. Where no two agree, the first that runs is taken, which the library's
 * heuristics name first, and counted in device->unconfirmed. ERR_DEVICE if none runs, ERR_MEMORY where there is none for
 * that or for timing. `*best` is a candidate (the first) also in an error. */
NODISCARD Status autotune(Device *device, const Candidates *candidates, int *best, double *microseconds);

/* Fill an operand (with what lies between its rows, if it is a slice) with random numbers, of a sequence of its own
 * for every `number`: of deviation 1 around 0, or even ones from 0 to 1. */
NODISCARD Status autotune_fill(Device *device, const Tensor *operand, uint32_t number, bool normal);
