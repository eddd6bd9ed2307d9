/* What to do about failures of NCCL that machines with several GPUs have before they have trained once. NCCL has a few codes for all of
 * them; its last message tells them apart. */
#include "nccl_sync/comm_nccl.h"

/* NCCL's words, in 2.18 to 2.30 (init.cc, transport/nvls.cc, misc/shmutils.cc, bootstrap.cc) or the runtime's. */
static const struct {
    const char *said, *also; /* "": no more than `said` */
    const char *remedy;
} remedies[] = {
    {"Duplicate GPU detected", "",
     "two processes have the same GPU, or slices of one (MIG), which NCCL does not connect: let each see a "
     "whole GPU of its own (CUDA_VISIBLE_DEVICES, --gpus)"},
    {"NVLink SHARP (NVLS)", "", "this machine or container does not let NCCL sum in the switch: NCCL_NVLS_ENABLE=0"},
    {"/dev/shm", "No space left",
     "make /dev/shm larger (docker run --shm-size=1g; 'towers doctor' says how large it is), and delete what ended "
     "programs have left in it"},
    {"system not yet initialized", "",
     "the fabric manager of the NVSwitches does not run, or is of another version than the driver: "
     "systemctl status nvidia-fabricmanager"},
};

static const char *interface_remedy(void)
{
    return getenv("NCCL_SOCKET_IFNAME")
               ? "NCCL_SOCKET_IFNAME names no interface that this host has: unset it, or take one of 'ip -br addr'"
               : "NCCL sees no network interface of this host: NCCL_SOCKET_IFNAME=NAME, with one of 'ip -br addr'";
}

const char *nccl_remedy(ncclResult_t result, const char *message)
{
    if (result == ncclRemoteError) return ""; /* of another rank, whose message this is not */
    if (strstr(message, "no socket interface found")) return interface_remedy();
    for (size_t i = 0; i < sizeof remedies / sizeof *remedies; i++)
        if (strstr(message, remedies[i].said) && strstr(message, remedies[i].also)) return remedies[i].remedy;
    return "";
}

void nccl_first_remedy(const Comm *comm, char *text, size_t bytes)
{
    snprintf(
        text, bytes,
        "; nothing has passed between these GPUs yet, which may not reach each other: try NCCL_P2P_DISABLE=1, then "
        "NCCL_NVLS_ENABLE=0, and check ACS and IOMMU in the BIOS%s; NCCL_DEBUG=INFO prints how they are connected",
        comm->config.place.nodes > 1 ? ", firewalls between the hosts, and NCCL_SOCKET_IFNAME" : "");
}
