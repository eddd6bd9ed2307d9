/* Launch: the place of this program among those that a launcher started for one run, read from the environment.
 *
 * The first complete set wins; launchers further inside come first, because they override those around them:
 *
 *   TOWERS_RANK, TOWERS_WORLD_SIZE, TOWERS_LOCAL_RANK, TOWERS_LOCAL_WORLD_SIZE, TOWERS_MASTER_ADDR, TOWERS_MASTER_PORT
 *   RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT                         (torchrun)
 *   PET_NODE_RANK, PET_NNODES, PET_MASTER_ADDR, PET_MASTER_PORT: one program per node       (Kubeflow Trainer)
 *   OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK, OMPI_COMM_WORLD_LOCAL_SIZE (Open MPI)
 *   PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS                         (MPICH and Intel MPI: Hydra)
 *   SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID, SLURM_STEP_TASKS_PER_NODE, SLURM_NODEID       (srun)
 *
 * A batch script of Slurm has SLURM_PROCID, but no SLURM_STEP_NUM_TASKS: it is no node of a run. Two sets of the
 * same size with different ranks contradict each other and are refused; of different sizes the outer one started the
 * inner launcher. Sources: torch/distributed/run.py, kubeflow/trainer's torch plug-in, mpirun(1) of Open MPI 4.1,
 * MPICH's Hydra, srun(1). */
#pragma once

#include "nccl_sync/hosts/handshake.h"

enum { LAUNCH_PORT = 29401, LAUNCH_HOST_BYTES = 256, LAUNCH_RANKS_MAX = 4096, LAUNCH_ALONE_BYTES = 256 };

typedef struct Launch {
    int rank, ranks;                /* of the nodes; ranks is 1 without a launcher */
    int local_rank, local_ranks;    /* the same on this host; -1 and 0 if the launcher does not say */
    const char *origin;             /* "Open MPI (OMPI_COMM_WORLD_RANK)", static; "" without a launcher */
    bool mpi;                       /* the launcher provides for MPI_Init */
    bool own_signal;                /* it sends SIGUSR1 to its programs for purposes of its own */
    char master[LAUNCH_HOST_BYTES]; /* the host of rank 0 */
    int port;                       /* on which rank 0 listens */
    uint64_t job;                   /* equal in all programs of a job; 0 or that of the Slurm allocation, and so not
                                     * of one job alone, if the launcher does not number jobs (Hydra); not a secret */
    Secret secret;                  /* which only programs of this job know (launch_secret) */
    const char *secret_from;        /* static: what it was made of */
    /* "env -u RANK -u WORLD_SIZE": in front of a command, it runs as one that nobody has launched. */
    char alone[LAUNCH_ALONE_BYTES];
} Launch;

/* The value of a variable of `environment`, as environ; NULL if it is unset or empty, or `name` is NULL. */
const char *environment_value(char *const *environment, const char *name);
/* ERR_ARG names the variable that is wrong, or what is missing. */
NODISCARD Status launch_read(char *const *environment, Launch *launch);

/* Fill in the secret: from TOWERS_TOKEN; else from the random key that mpirun of Open MPI 4 gives to its programs; else from
 * the random token in ~/.config/towers/token ($XDG_CONFIG_HOME), which nobody else may read, and which is made if it is
 * missing. It depends on the job's number, too. ERR_ARG if there is no place for the file or others can read it, ERR_IO. */
NODISCARD Status launch_secret(char *const *environment, Launch *launch);

/* The first host of Slurm's list: "gpu[07-09,12],login" -> "gpu07". ERR_ARG if there is none or it does not fit. */
NODISCARD Status launch_first_host(const char *list, char *host, size_t bytes);
