/* A oneDNN task whose bits do not depend on the number of threads.
 *
 * oneDNN may divide the sums of a matrix product among the threads that it finds, so that another team rounds otherwise:
 * without AVX-512 any sum (gemm:jit), with it long sums (brgemm_matmul_utils.cpp, nthr_k and k_blk; from 3.7 on also those
 * of a single row). Such a product is cut into parts by its shape alone, along its rows or its columns, and each part is a
 * task made for one thread. Every other task has one part, which is the task itself. */
#pragma once

#include "kernels/cpu/onednn.h"

typedef struct OnednnParts OnednnParts;

/* `threads`: those of the device. ERR_UNSUPPORTED as onednn_create. */
NODISCARD Status parts_create(Onednn *onednn, const OnednnSpec *spec, int threads, OnednnParts **made);
void parts_destroy(OnednnParts *parts);

const char *parts_impl(const OnednnParts *parts); /* onednn_impl of its tasks */
bool parts_are_reference(const OnednnParts *parts);
size_t parts_workspace_bytes(const OnednnParts *parts);

void parts_renew(OnednnParts *parts); /* onednn_renew */
/* `data` and `workspace` as for onednn_run. */
NODISCARD Status parts_run(const OnednnParts *parts, void *const data[ONEDNN_ROLES], void *workspace);
