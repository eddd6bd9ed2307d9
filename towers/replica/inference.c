/* The ring of results of inference.h. Every slot has a block of pinned host memory (loss, top-1, top-5, then the
 * probabilities, then the features; with TTA_FLIP another such part for the mirror images) and a mark after the copies
 * that fill it. */
#include "towers/replica/inference.h"

#include "towers/store/pretrained.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SLOTS = 2, LOSS = 0, CORRECT = 1, HEADER = 16 /* floats */, POLL_NS = 20000 };

typedef struct InferenceSlot {
    Inferred result;
    /* owned, each large enough for the largest batch */
    float *floats;
    int32_t *labels;
    int64_t *ids;
    BadSample *bad;
} InferenceSlot;

struct Inference {
    Replica *replica; /* borrowed, as the next */
    Loader *loader;
    bool prob;
    size_t view;       /* floats of a view of the largest batch */
    size_t bytes;      /* of a slot's floats */
    uint8_t *mirrored; /* owned: pixels of the largest batch; NULL without TTA_FLIP */
    int64_t begun, ended;
    InferenceSlot slot[SLOTS];
};

/* Optional values that the file lacks keep their initial values, so both arenas are downloaded first. */
Status inference_weights(Replica *r, const ProgramConfig *program, const char *path)
{
    Status st = OK;
    WeightMap map = weight_map(r->layout);
    char absent[256];
    const Backend *backend = r->device.backend;
    size_t params = r->layout->param_elements, states = r->layout->state_elements;
    float *host = calloc(params + states + 1, sizeof *host);
    if (!host)
        return FAIL(ERR_MEMORY, "no memory for the host copy of the weights (%zu MiB)", params * sizeof *host >> 20);
    TRY_OUT(backend->download(&r->device, host, r->arena[ARENA_PARAM], params * sizeof *host));
    TRY_OUT(backend->download(&r->device, host + params, r->eval_state, states * sizeof *host));
    TRY_OUT(backend->finish(&r->device, STREAM_COMPUTE));
    TRY_OUT(pretrained_read(&map, program, path, HEAD_READ, host, host + params, absent, sizeof absent));
    TRY_OUT(backend->upload(&r->device, r->arena[ARENA_PARAM], host, params * sizeof *host));
    TRY_OUT(backend->upload(&r->device, r->eval_state, host + params, states * sizeof *host));
    TRY_OUT(backend->finish(&r->device, STREAM_COMPUTE));
    replica_weights_changed(r);
out:
    free(host);
    return st;
}

static Status slots_create(Inference *q, Tta tta)
{
    Replica *r = q->replica;
    size_t most = 0, floats = 0;
    for (int i = 0; i < r->eval_count; i++) {
        size_t n = (size_t)r->eval[i].n, pitch = (size_t)plan_tensor(r->eval[i].plan, r->eval[i].prob).pitch;
        if (n > most) most = n;
        size_t needed = q->prob ? n * pitch : 0;
        if (r->eval[i].features.id) {
            Tensor t = plan_tensor(r->eval[i].plan, r->eval[i].features);
            needed += n * (size_t)(t.shape.h * t.shape.w * t.pitch);
        }
        if (needed > floats) floats = needed;
    }
    q->view = HEADER + floats;
    q->bytes = (tta == TTA_FLIP ? 2 : 1) * q->view * sizeof(float);
    size_t side = (size_t)r->config.program.canvas, image = side * side * (size_t)r->config.program.data_channels;
    if (tta == TTA_FLIP) q->mirrored = malloc(most * image + 1);
    if (tta == TTA_FLIP && !q->mirrored)
        return FAIL(ERR_MEMORY, "no memory for the mirror images of %zu samples", most);
    for (int i = 0; i < SLOTS; i++) {
        InferenceSlot *slot = &q->slot[i];
        slot->floats = pages_alloc(q->bytes);
        slot->labels = malloc((most + 1) * sizeof *slot->labels);
        slot->ids = malloc((most + 1) * sizeof *slot->ids);
        slot->bad = malloc((most + 1) * sizeof *slot->bad);
        if (!slot->floats || !slot->labels || !slot->ids || !slot->bad)
            return FAIL(ERR_MEMORY, "no memory for the results of %zu samples", most);
        if (r->device.backend->pin) r->device.backend->pin(&r->device, slot->floats, q->bytes, true);
    }
    return OK;
}

Status inference_open(Replica *replica, Loader *loader, bool prob, Tta tta, Inference **made)
{
    Inference *q = calloc(1, sizeof *q);
    if (!q) return FAIL(ERR_MEMORY, "no memory for the results of an evaluation");
    q->replica = replica;
    q->loader = loader;
    q->prob = prob;
    replica_pin(replica, loader, true);
    Status st = slots_create(q, tta);
    if (st == OK) {
        *made = q;
        return OK;
    }
    inference_close(q);
    return st;
}

void inference_close(Inference *q)
{
    if (!q) return;
    Device *device = &q->replica->device;
    if (q->begun > q->ended) (void)!device->backend->finish(device, STREAM_COMPUTE); /* it still writes to the slots */
    replica_pin(q->replica, q->loader, false);
    for (int i = 0; i < SLOTS; i++) {
        InferenceSlot *slot = &q->slot[i];
        if (slot->floats && device->backend->pin) device->backend->pin(device, slot->floats, q->bytes, false);
        free(slot->floats);
        free(slot->labels);
        free(slot->ids);
        free(slot->bad);
    }
    free(q->mirrored);
    free(q);
}

/* To the floats at `to`. */
static Status results_send(const Inference *q, const Program *program, InferenceSlot *slot, float *to)
{
    Device *device = &q->replica->device;
    const Backend *backend = device->backend;
    Tensor prob = plan_tensor(program->plan, program->prob);
    slot->result.prob = q->prob ? to + HEADER : NULL;
    slot->result.pitch = prob.pitch;
    TRY(backend->download(device, to + LOSS, plan_tensor(program->plan, program->loss).data, sizeof(float)));
    TRY(backend->download(device, to + CORRECT, plan_tensor(program->plan, program->correct).data, 2 * sizeof(float)));
    size_t probs = q->prob ? (size_t)(slot->result.batch.n * prob.pitch) : 0;
    if (q->prob) TRY(backend->download(device, to + HEADER, prob.data, probs * sizeof(float)));
    slot->result.features = NULL;
    if (!program->features.id) return OK;
    Tensor features = plan_tensor(program->plan, program->features);
    slot->result.features = to + HEADER + probs;
    slot->result.feature_pitch = features.pitch;
    slot->result.feature_count = features.shape.c;
    slot->result.places = features.shape.h * features.shape.w;
    return backend->download(device, to + HEADER + probs, features.data,
                             (size_t)(slot->result.batch.n * slot->result.places * features.pitch) * sizeof(float));
}

/* The images of a batch, each row from right to left. A border has equal sides, so that the central crop is mirrored. */
static void batch_mirror(const Batch *batch, uint8_t *to)
{
    size_t c = (size_t)batch->c, width = (size_t)batch->canvas, rows = (size_t)batch->n * width;
    for (size_t y = 0; y < rows; y++)
        for (size_t x = 0; x < width; x++)
            memcpy(to + (y * width + x) * c, batch->pixels + ((y + 1) * width - 1 - x) * c, c);
}

static Status view_run(Inference *q, Program *program, InferenceSlot *slot, const Batch *batch, float *to)
{
    Device *device = &q->replica->device;
    TRY(replica_feed(q->replica, program, batch, 0, &(RandomKey){0}, 0)); /* nothing random is evaluated */
    TRY(plan_run(program->plan, 0, plan_op_count(program->plan)));
    TRY(results_send(q, program, slot, to));
    return device->backend->uploaded ? device->backend->uploaded(device) : OK;
}

Status inference_begin(Inference *q, const Batch *batch)
{
    Device *device = &q->replica->device;
    const Backend *backend = device->backend;
    InferenceSlot *slot = &q->slot[q->begun % SLOTS];
    Program *program = replica_eval_program(q->replica, batch->n);
    if (!program) return FAIL(ERR_INTERNAL, "no evaluation program for a batch of %d", batch->n);
    if (inference_pending(q) == SLOTS)
        return FAIL(ERR_INTERNAL, "a third batch was started while two were in progress");
    /* Copy the batch, because the loader will reuse its memory. */
    Batch *kept = &slot->result.batch;
    *kept = *batch;
    kept->pixels = NULL;
    kept->augment = NULL;
    kept->targets = NULL;
    kept->labels = memcpy(slot->labels, batch->labels, (size_t)batch->n * sizeof *slot->labels);
    kept->ids = memcpy(slot->ids, batch->ids, (size_t)batch->n * sizeof *slot->ids);
    if (batch->skipped) memcpy(slot->bad, batch->bad, (size_t)batch->skipped * sizeof *slot->bad);
    kept->bad = slot->bad;
    q->begun++;
    if (q->mirrored) {
        Batch view = *batch;
        batch_mirror(batch, q->mirrored);
        view.pixels = q->mirrored;
        TRY(view_run(q, program, slot, &view, slot->floats + q->view));
    }
    TRY(view_run(q, program, slot, batch, slot->floats));
    return backend->mark ? backend->mark(device, (int)((q->begun - 1) % SLOTS)) : OK;
}

int inference_pending(const Inference *q)
{
    return (int)(q->begun - q->ended);
}

int inference_ahead(const Inference *q)
{
    return q->replica->device.backend->mark ? SLOTS - 1 : 0;
}

static Status results_wait(const Inference *q, int mark)
{
    const struct timespec pause = {.tv_nsec = POLL_NS};
    Device *device = &q->replica->device;
    bool reached = false;
    if (!device->backend->reached) return device->backend->finish(device, STREAM_COMPUTE);
    TRY(device->backend->reached(device, mark, &reached));
    while (!reached) {
        nanosleep(&pause, NULL);
        TRY(device->backend->reached(device, mark, &reached));
    }
    return OK;
}

Status inference_end(Inference *q, const Inferred **result)
{
    InferenceSlot *slot = &q->slot[q->ended % SLOTS];
    TRY(results_wait(q, (int)(q->ended % SLOTS)));
    q->ended++;
    slot->result.loss = slot->floats[LOSS];
    for (int k = 0; k < 2; k++) slot->result.correct[k] = (int64_t)slot->floats[CORRECT + k];
    size_t probs = q->mirrored && q->prob ? (size_t)(slot->result.batch.n * slot->result.pitch) : 0;
    for (size_t i = HEADER; i < HEADER + probs; i++)
        slot->floats[i] = (slot->floats[i] + slot->floats[q->view + i]) / 2;
    *result = &slot->result;
    return OK;
}
