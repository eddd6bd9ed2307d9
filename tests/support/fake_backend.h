/* Fake backend: a device of ordinary memory that computes nothing and records its calls. Tests use it to check the
 * order of calls and the placement of operands; `on_launch` may read and fill the memory of a call. */
#pragma once

#include "kernels/backend.h"

typedef enum FakeEventKind {
    FAKE_ALLOC = 0,
    FAKE_RELEASE,
    FAKE_UPLOAD,
    FAKE_DOWNLOAD,
    FAKE_FILL,
    FAKE_PREPARE,
    FAKE_LAUNCH,
    FAKE_DISCARD,
    FAKE_OPTIMIZER,
    FAKE_SQUARE_SUM,
    FAKE_AVERAGE,
    FAKE_GATE_EXTRAS,
    FAKE_GATE_DECIDE,
    FAKE_WAIT,
    FAKE_FINISH
} FakeEventKind;

typedef struct FakeEvent {
    FakeEventKind kind;
    OpKind op;             /* PREPARE, LAUNCH, DISCARD */
    char name[48];         /* of the call, cut; the same three */
    size_t bytes;          /* ALLOC, UPLOAD, DOWNLOAD; FILL and AVERAGE: elements */
    StreamKind stream, on; /* WAIT: stream waits for on; FINISH: stream */
} FakeEvent;

enum { FAKE_MAX_EVENTS = 1 << 15 };

typedef struct FakeBackend {
    Backend backend;
    OpKernel kernel[OP_COUNT];
    const OpKernel *table[OP_COUNT];
    OpStorage storage[OP_COUNT]; /* masks can be set for one kind */
    size_t workspace_bytes;      /* of every op */
    OpKind refused;              /* prepare of this kind fails; OP_NONE: none does */
    void (*on_launch)(void *context, OpCall *call);
    void *context;
    size_t free_bytes; /* what fake_reports_memory gives; of twice as many */
    int states;        /* made by prepare and not yet discarded */
    int event_count;   /* may pass FAKE_MAX_EVENTS: later ones are counted, not kept */
    FakeEvent event[FAKE_MAX_EVENTS];
} FakeBackend;

/* Kernels of all kinds with these masks. Heap: the struct is large. backend.open opens the one that was made last. */
FakeBackend *fake_create(uint32_t strided_in, uint32_t strided_out, uint32_t in_place);
void fake_destroy(FakeBackend *fake);
void fake_reports_memory(FakeBackend *fake); /* from now on, as `free_bytes` says */
void fake_open(FakeBackend *fake, Device *device);
/* How many events of this kind, and of this op kind (OP_NONE: any). */
int fake_count(const FakeBackend *fake, FakeEventKind kind, OpKind op);
