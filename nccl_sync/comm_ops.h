/* What a communicator must offer; comm.c forwards to it. Internal to nccl_sync. */
#ifndef TOWERS_NCCL_SYNC_COMM_OPS_H
#define TOWERS_NCCL_SYNC_COMM_OPS_H

#include "nccl_sync/comm.h"

typedef struct CommOps {
    Status (*give)(Comm *comm, int tower, size_t first, const float *from, size_t count);
    Status (*sum)(Comm *comm, size_t first, float *to, size_t count);
    Status (*broadcast)(Comm *comm, void *buf, size_t bytes, int root);
    Status (*barrier)(Comm *comm);
    Status (*enlist)(Comm *comm, void *memory, size_t bytes); /* NULL: makes no difference */
    Status (*look)(Comm *comm);
    void (*abort)(Comm *comm);
    void (*close)(Comm *comm); /* frees impl */
} CommOps;

struct Comm {
    const CommOps *ops; /* borrowed, static */
    CommConfig config;
    void *impl; /* owned by the implementation */
};

/* comm_nccl.c: false where this library has no memory of its own, or none left. */
bool comm_nccl_memory_create(size_t bytes, void **made);
void comm_nccl_memory_destroy(void *memory);

NODISCARD Status comm_create(const CommConfig *config, const CommOps *ops, void *impl, Comm **made);

#endif
