/* The table of the CPU's kernels: the row `name` of ops.def is `cpu_name`, defined in the file of its family. */
#include "kernels/cpu/cpu.h"

const OpKernel *const cpu_kernels[OP_COUNT] = {
#define OP(KIND, name, ...) [OP_##KIND] = &cpu_##name,
#include "kernels/ops.def"
};
