/* Draft: a text of any length, printed in memory, in the C locale, which the thread has from draft_begin to draft_end. */
#pragma once

#include <locale.h>

#include "kernels/base/text.h"

typedef struct Draft {
    FILE *to;         /* until draft_end */
    char *text;       /* behind draft_end; owned by the caller. NULL after a failure */
    size_t bytes;     /* without the zero */
    const char *what; /* borrowed */
    locale_t before;
} Draft;
/* ERR_MEMORY says "no memory for WHAT". */
NODISCARD Status draft_begin(Draft *draft, const char *what);
/* `st`, what the printing gave; ERR_MEMORY if it gave OK, but the text is not whole. */
NODISCARD Status draft_end(Draft *draft, Status st);
