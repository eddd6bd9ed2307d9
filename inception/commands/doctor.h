/* Doctor: checks what this machine offers, which problems it has, and which command fixes each of them.
 *
 * Measuring (reads /proc, /sys, limits, backends) is separate from checking (pure), so that every verdict can be tested
 * without a machine that has the problem. Changes nothing and starts no training. */
#pragma once

#include "kernels/base/near_cores.h"

enum { DOCTOR_LINE_BYTES = 320, DOCTOR_GPU_MAX = 16, DOCTOR_FINDING_MAX = 16 + 2 * DOCTOR_GPU_MAX };

typedef struct DoctorMachine {
    char cpu_model[128], cpu_features[128]; /* "" if unknown */
    int cores_online, cores_bound;          /* of the machine; of this process's affinity mask */
    double cgroup_cores;                    /* quota of the container; 0: none */
    int omp_threads;                        /* OMP_NUM_THREADS; 0: not set */
    int64_t memory_bytes, memory_free_bytes;
    int64_t cgroup_memory_bytes;                   /* limit of the container; 0: none */
    int64_t shm_bytes, shm_free_bytes;             /* of /dev/shm; -1: it does not exist */
    int64_t open_files, locked_bytes, stack_bytes; /* soft limits; -1: unlimited */
    bool cpu_works, cuda_works, gpu_expected;
    char cpu_backend[DOCTOR_LINE_BYTES]; /* the backend's description, or why it is missing */
    char cuda_backend[DOCTOR_LINE_BYTES];
    char mpi[128];    /* its version; "" in builds without it */
    char driver[128]; /* NVIDIA's kernel driver; "" if there is none */
    int gpu_count;
    char gpus[DOCTOR_GPU_MAX][DOCTOR_LINE_BYTES];
    NearCores near[DOCTOR_GPU_MAX];
} DoctorMachine;

typedef enum DoctorVerdict { DOCTOR_FINE = 0, DOCTOR_HINT, DOCTOR_PROBLEM } DoctorVerdict;

typedef struct DoctorFinding {
    const char *topic; /* "shared memory" */
    DoctorVerdict verdict;
    char found[DOCTOR_LINE_BYTES];
    char fix[DOCTOR_LINE_BYTES]; /* "" if nothing needs to be fixed */
} DoctorFinding;

typedef struct DoctorReport {
    int count, hints, problems;
    DoctorFinding findings[DOCTOR_FINDING_MAX];
} DoctorReport;

void doctor_measure(DoctorMachine *machine);
void doctor_check(const DoctorMachine *machine, DoctorReport *report);
void doctor_print(const DoctorReport *report, bool color, FILE *to);
/* {"problems": n, "hints": n, "findings": [{"topic", "verdict", "found", "fix"}]}, one line. */
NODISCARD Status doctor_print_json(const DoctorReport *report, FILE *to);
