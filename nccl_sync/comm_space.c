/* The memory of a communicator: how much it takes, planned before the device is filled; and memory that NCCL knows. */
#include "nccl_sync/comm_ops.h"

#ifndef TOWERS_HAVE_CUDA
#pragma weak comm_nccl_memory_create /* nobody calls these: no device is one of NCCL's */
#pragma weak comm_nccl_memory_destroy
#endif

/* The last tower's gradients become the sum in place. The gradients of a rank's other towers are overwritten by then, so
 * their sum has a buffer. */
static CommSpace space_in_place(const CommConfig *config)
{
    bool several = config->place.local_towers > 1, narrow = config->reduce != DTYPE_F32 && config->place.ranks > 1;
    size_t room = config->max_count * sizeof(float), staged = comm_staged(config) * sizeof(float);
    return (CommSpace){.sum = several ? room : staged,
                       .small = narrow ? config->gradients * dtype_bytes(config->reduce) : 0,
                       .guest = several ? staged : 0,
                       .relay = config->place.ranks > 1 ? COMM_RELAY_BYTES : 0};
}

/* Each contribution is sent as it is: the last tower's from where it lies, so that the others are kept. */
static CommSpace space_exchanged(const CommConfig *config)
{
    size_t local = (size_t)config->place.local_towers, chunks = comm_chunks(config) * sizeof(float);
    return (CommSpace){.sum = ((local - 1) * comm_slot(config) + comm_staged(config)) * sizeof(float),
                       .chunks = ((size_t)config->towers - local) * chunks,
                       .gathered = (size_t)config->place.ranks * chunks,
                       .relay = COMM_RELAY_BYTES};
}

CommSpace comm_space(const CommConfig *config)
{
    return comm_exchanges(config) ? space_exchanged(config) : space_in_place(config);
}

/* In shared memory every tower has a slot, but those of the process with tower 0 have one together; several processes have
 * a result, of which each computes a part. */
size_t comm_bytes(const Backend *backend, const CommConfig *config)
{
    CommSpace space = comm_space(config);
    size_t slot = config->max_count * sizeof(float), ranks = (size_t)node_ranks(&config->place);
    if (backend->nccl) return space.sum + space.small + space.guest + space.chunks + space.gathered + space.relay;
    size_t slots = config->place.first_tower == 0 ? 1 : (size_t)config->place.local_towers;
    return slots * slot + (config->place.ranks > 1 ? (slot + ranks - 1) / ranks : 0);
}

/* Connections for messages to the ranks of this host: the channels to each are those of the rings, rounded up to a power of two,
 * but several hosts divide them where the ranks are many (ncclTopoComputeP2pChannels of graph/paths.cc). Programs of one
 * rank each are taken for those of one host. */
static size_t message_connections(const CommConfig *config, size_t channels)
{
    enum { AT_ONCE = 8 /* ranks that a block serves */, HOST_GPUS = 8 };
    size_t ranks = (size_t)config->place.ranks, local = (size_t)node_ranks(&config->place), all = 1;
    if (!comm_exchanges(config)) return 0;
    if (local == 1) local = ranks < HOST_GPUS ? ranks : HOST_GPUS;
    while (all < channels) all *= 2;
    size_t each = all;
    while (config->place.nodes > 1 && each > 1 && each * ((ranks + AT_ONCE - 1) / AT_ONCE) > all) each /= 2;
    return each * (local - 1);
}

/* By NCCL's sources, version 2.30: on every channel a rank has a buffer for each rank that it receives from, which is one in a
 * ring and two in a tree, and a small one for each that it sends to, in units of CUDA's allocations. The first holds what the
 * three protocols need (computeBuffSizes of init.cc, p2pRecvSetup of transport/p2p.cc); issue 1685 of NVIDIA/nccl lists 10 and
 * 2 MiB on H100s. NVLink has up to 24 channels, PCI Express 2 (graph/search.cc, doubled in graph/connect.cc). Besides, a switch
 * adds in buffers for each of its GPUs (transport/nvls.cc). Ranks of other hosts need more, and registered memory needs less.
 * Messages have the same buffers once more, on each of their channels for each rank: the issue counts 2.7 GiB on eight H100s. */
size_t comm_library_bytes(const Backend *backend, const CommConfig *config, bool deterministic)
{
    enum { LL = 512 << 10, LL128 = 4800 << 10, SIMPLE = 4 << 20, UNIT = 2 << 20, SWITCH = 2 << 20 };
    enum { OF_NVLINK = 24, OF_PCI = 2, OF_SWITCH = 16, SWITCH_GPUS = 32 };
    DeviceLinks links;
    if (config->place.ranks < 2 || !backend->links) return 0;
    backend->links(&links);
    const char *simple = getenv("NCCL_BUFFSIZE");
    bool rings = deterministic || config->ordered; /* alone: no trees, no sums in the switch */
    size_t received = LL + LL128 + (simple ? strtoull(simple, NULL, 10) : SIMPLE),
           local = (size_t)node_ranks(&config->place), most = config->ctas > 0 ? (size_t)config->ctas : OF_NVLINK,
           channels = links.nvlink ? OF_NVLINK : OF_PCI, added = rings || !links.multicast ? 0 : OF_SWITCH;
    if (channels > most) channels = most;
    if (added > most) added = most;
    if (local > SWITCH_GPUS) local = SWITCH_GPUS;
    size_t connections = channels * (rings ? 1 : 3) + message_connections(config, channels);
    return connections * ((received + UNIT - 1) / UNIT * UNIT + UNIT) + added * local * SWITCH;
}

/* ---- memory that NCCL knows */

Status comm_memory_create(Device *device, size_t bytes, CommMemory *made)
{
    const Backend *backend = device->backend;
    *made = (CommMemory){0};
    made->special = backend->nccl && comm_nccl_memory_create(bytes, &made->data);
    if (!made->special) return backend->alloc(device, bytes, &made->data);
    Status st = backend->fill(device, made->data, 0, bytes / sizeof(float));
    if (st == OK) st = backend->finish(device, STREAM_COMPUTE);
    if (st != OK) comm_memory_destroy(device, made);
    return st;
}

void comm_memory_destroy(Device *device, CommMemory *memory)
{
    if (memory->data && memory->special) comm_nccl_memory_destroy(memory->data);
    if (memory->data && !memory->special) device->backend->release(device, memory->data);
    *memory = (CommMemory){0};
}
