/* See KernelChoice in backend.h. This is a separate file so that a program with one backend does not link the others. */
#include "kernels/backend.h"
#include "kernels/base/text.h"

void kernel_choice_pass(KernelChoice *choice, const char *name, const char *why)
{
    Text passed = text_behind(choice->passed, sizeof choice->passed);
    text_add(&passed, "%s%s: %s", choice->passed[0] ? "; " : "", name, why);
}
