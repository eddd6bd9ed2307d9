/* A small checkpoint whose every byte is determined by its step, so that a reader can tell whether it is complete. */
#pragma once

#include "towers/store/checkpoint.h"

enum { SAMPLE_MODEL = 5, SAMPLE_TRAIN = 2 };

typedef struct Sample {
    CheckpointContent content;
    StTensor model[SAMPLE_MODEL], train[SAMPLE_TRAIN];
    StPair metadata[2];
    char state[64];
    float weight[72], slot[72], mean[3];
    int64_t batches;
    uint16_t half[3];
    unsigned char *ballast; /* owned */
} Sample;

void sample_make(Sample *sample, int64_t step, size_t ballast_bytes);
void sample_free(Sample *sample);
/* Bit for bit the sample of its step? */
bool sample_matches(const Checkpoint *checkpoint);
