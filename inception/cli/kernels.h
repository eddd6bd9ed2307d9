/* Which kernel computes each op of a plan, and why the kernels before it in its list were passed over. */
#ifndef TOWERS_INCEPTION_CLI_KERNELS_H
#define TOWERS_INCEPTION_CLI_KERNELS_H

#include "towers/graph/plan.h"

/* The name is "-" for an op with one implementation. The call is prepared. */
KernelChoice kernel_chosen(Device *device, const OpCall *call);

/* All ops of a plan. */
void kernels_print(Device *device, const Plan *plan, FILE *to);

#endif
