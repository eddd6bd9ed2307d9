/* The hooks of this process, and where they come from; see hooks.h. */
#include "towers/replica/hooks.h"

const RunHooks *run_hooks;

#ifdef TOWERS_FAULTS
static const HookSource *const source = &fault_source;
#else
static const HookSource *const source;
#endif

Status hooks_load(void)
{
    const char *text = getenv("TOWERS_FAULT");
    return source ? source->load(text ? text : "") : OK;
}

Status hooks_load_text(const char *text)
{
    if (source) return source->load(text);
    if (!*text) return OK;
    return FAIL(ERR_UNSUPPORTED, "this build has no fault points (-DTOWERS_FAULTS=ON) to repeat '%s'", text);
}

bool hooks_share_gpus(void)
{
    const char *text = getenv("TOWERS_SHARE_GPU");
    return source && text && *text;
}

const char *hooks_text_at(int tower, int64_t step)
{
    return source ? source->text_at(tower, step) : "";
}
