/* The kernel that computes each op of a plan, and why the kernels before it in its list were not used. */
#pragma once

#include "towers/graph/plan.h"

/* The name is "-" if the op has one kernel or the device does not name it. The call must be prepared. */
KernelChoice kernel_chosen(Device *device, const OpCall *call);

/* Print the kernels of all ops of a plan. */
void kernels_print(Device *device, const Plan *plan, FILE *to);
