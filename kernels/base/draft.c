/* Texts of any length, printed in memory; see draft.h. */
#include "kernels/base/draft.h"

Status draft_begin(Draft *draft, const char *what)
{
    *draft = (Draft){.what = what};
    draft->to = open_memstream(&draft->text, &draft->bytes);
    if (!draft->to) return FAIL(ERR_MEMORY, "no memory for %s", what);
    draft->before = uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0)); /* which needs no memory */
    return OK;
}

Status draft_end(Draft *draft, Status st)
{
    freelocale(uselocale(draft->before));
    if (fclose(draft->to) != 0 && st == OK) st = FAIL(ERR_MEMORY, "no memory for %s", draft->what);
    if (st == OK) return OK;
    free(draft->text);
    draft->text = NULL;
    return st;
}
