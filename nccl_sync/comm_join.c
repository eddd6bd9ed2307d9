/* Joins a process to those of its run: chooses the communicator that its device, its nodes and this build allow. */
#include "nccl_sync/comm_ops.h"
#include "nccl_sync/comm_record.h"
#include "nccl_sync/link_carried.h"

#ifndef TOWERS_HAVE_CUDA
#pragma weak comm_nccl_open /* nobody calls it: no device is one of NCCL's */
#endif

static Status mpi_join(const CommConfig *config, CommShared *shared, Comm **made)
{
#ifdef TOWERS_HAVE_MPI
    return comm_hosts_open(config, shared, config->carrier ? link_carried_open : link_mpi_open, made);
#else
    (void)shared, (void)made;
    return FAIL(ERR_UNSUPPORTED,
                "tower processes of %d hosts, started by MPI, need MPI, which this build does not have: install "
                "libopenmpi-dev or libmpich-dev, then configure and build again; or use one host",
                config->place.nodes);
#endif
}

/* Between processors; NCCL uses it beside its own collectives, and needs no MPI for that. */
static Status processors_join(const CommConfig *config, CommShared *shared, bool nccl, Comm **made)
{
    if (config->place.nodes <= 1) return comm_shm_open(config, shared, made);
    if (nccl && config->master) return comm_hosts_open(config, shared, link_control_open, made);
    return mpi_join(config, shared, made);
}

Status comm_join(const CommConfig *config, CommShared *shared, Device *device, Comm **made)
{
    Comm *between, *comm;
    TRY(processors_join(config, shared, device->backend->nccl, &between));
    comm = between;
    if (device->backend->nccl) TRY(comm_nccl_open(config, shared, device, between, &comm));
    comm_record_in(comm, shared);
    *made = comm;
    return OK;
}

Status comm_carrier_start(const Placement *place, struct ControlPlane *control, Carrier **made)
{
#ifdef TOWERS_HAVE_MPI
    return carrier_start(link_mpi_open, place, control, made);
#else
    (void)place, (void)control;
    *made = NULL; /* mpi_join says what is missing */
    return OK;
#endif
}
