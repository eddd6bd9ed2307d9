/* From a spec to oneDNN's description of a primitive, whether oneDNN is 2.6 or 3.x: memory descriptors (Layout) are structs
 * in the first and handles in the second, and only 3.x makes primitive descriptors without an operation descriptor in
 * between. */
#pragma once

#include <dnnl.h>

#include "kernels/cpu/onednn.h"

typedef dnnl_memory_desc_t Layout;
#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t LayoutRef;
#define LAYOUT_REF(layout) (layout)
#else
typedef const dnnl_memory_desc_t *LayoutRef;
#define LAYOUT_REF(layout) (&(layout))
#endif

#define TRY_DNNL_OUT(call)                                                                                             \
    do {                                                                                                               \
        dnnl_status_t dnnl_status_ = (call);                                                                           \
        if (dnnl_status_ != dnnl_success) {                                                                            \
            st = onednn_fail(dnnl_status_, #call);                                                                     \
            goto out;                                                                                                  \
        }                                                                                                              \
    } while (0)

Status onednn_fail(dnnl_status_t code, const char *call);

NODISCARD Status layout_make(const OnednnView *view, OnednnFit fit, Dtype dtype, Layout *layout);
void layout_free(Layout *layout);

/* Both take their scratch memory from the caller. */
NODISCARD Status onednn_primitive(dnnl_engine_t engine, const OnednnSpec *spec, dnnl_primitive_desc_t *made);
NODISCARD Status onednn_reorder(dnnl_engine_t engine, LayoutRef from, LayoutRef to, dnnl_primitive_desc_t *made);
