/* Instructions that oneDNN uses; see onednn_isa.h. */
#include "kernels/cpu/onednn_isa.h"

#include <dnnl.h>

/* Later sets include earlier ones bit by bit. Other processors than x86 give these bits other meanings. */
static bool has_isa(int wanted)
{
#if defined(__x86_64__)
    return ((int)dnnl_get_effective_cpu_isa() & wanted) == wanted;
#else
    (void)wanted;
    return false;
#endif
}

bool onednn_has_avx2(void)
{
    return has_isa(dnnl_cpu_isa_avx2);
}

bool onednn_has_avx512(void)
{
    return has_isa(dnnl_cpu_isa_avx512_core);
}

bool onednn_has_bf16(void)
{
    return has_isa(dnnl_cpu_isa_avx512_core_bf16);
}

bool onednn_has_amx(void)
{
    return has_isa(dnnl_cpu_isa_avx512_core_amx);
}

static const char *isa_text(void)
{
    switch ((int)dnnl_get_effective_cpu_isa()) {
    case dnnl_cpu_isa_sse41: return "SSE4.1 (sse41)";
    case dnnl_cpu_isa_avx: return "AVX (avx)";
    case dnnl_cpu_isa_avx2: return "AVX2 (avx2)";
    case dnnl_cpu_isa_avx512_core: return "AVX-512 (avx512_core)";
    case dnnl_cpu_isa_avx512_core_vnni: return "AVX-512 (avx512_core_vnni)";
    case dnnl_cpu_isa_avx512_core_bf16: return "AVX-512 with bf16 (avx512_core_bf16)";
    case dnnl_cpu_isa_avx512_core_amx: return "AVX-512 with AMX (avx512_core_amx)";
    default: return "a processor without a name in this build";
    }
}

void onednn_describe(char *text, size_t bytes)
{
    const dnnl_version_t *version = dnnl_version();
    snprintf(text, bytes, "%s, oneDNN %d.%d.%d", isa_text(), version->major, version->minor, version->patch);
}
