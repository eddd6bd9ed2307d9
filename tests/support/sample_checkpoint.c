/* The bytes of a sample checkpoint: a few shapes and types, an empty tensor, a scalar, and ballast that fills the
 * disk. */
#include "tests/support/sample_checkpoint.h"

static StTensor tensor(const char *name, StDtype dtype, int rank, const int64_t *dims, const void *data, size_t bytes)
{
    StTensor made = {.name = name, .dtype = dtype, .rank = rank, .data = data, .bytes = bytes};
    for (int i = 0; i < rank; i++) made.dims[i] = dims[i];
    return made;
}

static void values_fill(Sample *sample, int64_t step, size_t ballast_bytes)
{
    for (int i = 0; i < 72; i++) sample->weight[i] = (float)step + (float)i / 128, sample->slot[i] = -sample->weight[i];
    for (int i = 0; i < 3; i++) sample->mean[i] = (float)(step * i), sample->half[i] = (uint16_t)(step + i);
    sample->batches = step;
    sample->ballast = malloc(ballast_bytes + 1);
    if (!sample->ballast) abort();
    for (size_t i = 0; i < ballast_bytes; i++) sample->ballast[i] = (unsigned char)(i * 7 + (size_t)step);
}

void sample_make(Sample *sample, int64_t step, size_t ballast_bytes)
{
    memset(sample, 0, sizeof *sample);
    values_fill(sample, step, ballast_bytes);
    const int64_t conv[] = {4, 2, 3, 3}, three[] = {3}, none[] = {0, 2}, ballast[] = {(int64_t)ballast_bytes};
    sample->model[0] = tensor("stem.conv.weight", ST_F32, 4, conv, sample->weight, sizeof sample->weight);
    sample->model[1] = tensor("stem.bn.running_mean", ST_F32, 1, three, sample->mean, sizeof sample->mean);
    sample->model[2] = tensor("stem.bn.num_batches_tracked", ST_I64, 0, NULL, &sample->batches, sizeof sample->batches);
    sample->model[3] = tensor("head.half", ST_BF16, 1, three, sample->half, sizeof sample->half);
    sample->model[4] = tensor("head.empty", ST_F32, 2, none, NULL, 0);
    sample->train[0] = tensor("momentum.stem.conv.weight", ST_F32, 4, conv, sample->slot, sizeof sample->slot);
    sample->train[1] = tensor("ballast", ST_U8, 1, ballast, sample->ballast, ballast_bytes);
    sample->metadata[0] = (StPair){"format", "pt"};
    sample->metadata[1] = (StPair){"model", "sample \"quoted\" \xc3\xbc"};
    snprintf(sample->state, sizeof sample->state, "{\"step\": %" PRId64 "}", step);
    sample->content = (CheckpointContent){.step = step,
                                          .model = sample->model,
                                          .model_count = SAMPLE_MODEL,
                                          .train = sample->train,
                                          .train_count = SAMPLE_TRAIN,
                                          .state_json = sample->state,
                                          .metadata = sample->metadata,
                                          .metadata_count = 2};
}

void sample_free(Sample *sample)
{
    free(sample->ballast);
}

static bool tensors_match(const SafeTensors *file, const StTensor *wanted, int count)
{
    if (safetensors_count(file) != count) return false;
    for (int i = 0; i < count; i++) {
        const StTensor *got = safetensors_find(file, wanted[i].name);
        if (!got || got->dtype != wanted[i].dtype || got->rank != wanted[i].rank || got->bytes != wanted[i].bytes)
            return false;
        if (memcmp(got->dims, wanted[i].dims, sizeof got->dims) != 0) return false;
        if (got->bytes && memcmp(got->data, wanted[i].data, got->bytes) != 0) return false;
    }
    return true;
}

static bool metadata_matches(const SafeTensors *file, const Sample *sample)
{
    for (int i = 0; i < 2; i++) {
        const char *value = safetensors_metadata(file, sample->metadata[i].key);
        if (!value || strcmp(value, sample->metadata[i].value) != 0) return false;
    }
    return safetensors_metadata(file, "absent") == NULL;
}

bool sample_matches(const Checkpoint *checkpoint)
{
    Sample sample;
    const StTensor *ballast = safetensors_find(checkpoint->train, "ballast");
    if (!ballast) return false;
    sample_make(&sample, checkpoint->step, ballast->bytes);
    bool same = tensors_match(checkpoint->model, sample.model, SAMPLE_MODEL) &&
                tensors_match(checkpoint->train, sample.train, SAMPLE_TRAIN) &&
                metadata_matches(checkpoint->model, &sample) && strcmp(checkpoint->state_json, sample.state) == 0;
    sample_free(&sample);
    return same;
}
