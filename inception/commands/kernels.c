/* The table of towers info MODEL --kernels; see kernels.h. */
#include "inception/commands/kernels.h"
#include "kernels/text.h"

KernelChoice kernel_chosen(Device *device, const OpCall *call)
{
    const OpKernel *kernel = device->backend->kernels[call->kind];
    KernelChoice choice = {.name = "-"};
    if (kernel->explain) kernel->explain(device, call, &choice);
    return choice;
}

void kernels_print(Device *device, const Plan *plan, FILE *to)
{
    text_printf(to, "\nKernels on %s\n%-44s %-16s %-20s %s\n", device->backend->name, "layer", "op", "output",
                "kernel");
    for (int i = 0; i < plan_op_count(plan); i++) {
        const OpCall *call = plan_call(plan, i);
        KernelChoice choice = kernel_chosen(device, call);
        text_printf(to, "%-44s %-16s %-20s %s\n", call->name, op_name(call->kind), shape_text(call->out[0].shape),
                    choice.name);
        if (choice.passed[0]) text_printf(to, "    passed over: %s\n", choice.passed);
    }
    fputs("-: the op has one kernel, or the device does not name it\n", to);
}
