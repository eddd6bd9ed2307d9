/* The instructions of the processor that oneDNN uses, within ONEDNN_MAX_CPU_ISA. */
#pragma once

#include "kernels/status.h"

bool onednn_has_avx2(void);
bool onednn_has_avx512(void);
bool onednn_has_bf16(void); /* products of AVX-512 */
bool onednn_has_amx(void);  /* tiles of bf16 */

/* "AVX-512 with bf16 (avx512_core_bf16), oneDNN 2.6.3" */
void onednn_describe(char *text, size_t bytes);
