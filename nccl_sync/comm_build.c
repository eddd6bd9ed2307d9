/* What the libraries that this build has say of themselves: MPI and NCCL, or neither. Which communicator they make is
 * comm_join.c's affair. */
#include "nccl_sync/comm_ops.h"
#include "nccl_sync/link.h"

#include <unistd.h>

bool comm_mpi_text(char *text, size_t bytes)
{
#ifdef TOWERS_HAVE_MPI
    link_mpi_text(text, bytes);
    return true;
#else
    if (bytes) *text = 0;
    return false;
#endif
}

_Noreturn void comm_exit(int code)
{
#ifdef TOWERS_HAVE_MPI
    link_mpi_exit(code);
#else
    _exit(code);
#endif
}

#ifndef TOWERS_HAVE_CUDA
void comm_nccl_text(char *text, size_t bytes)
{
    if (bytes) *text = 0;
}
#endif
