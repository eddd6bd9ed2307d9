/* Descriptors: in the graph API of cuDNN 9 (cudnnBackend*) everything is one, made, given attributes, finalized, used. Only
 * the cudnn_*.c include this. */
#pragma once

#include <cudnn.h>

#include "kernels/backend.h"
#include "kernels/cuda/libraries/check.h"

typedef cudnnBackendDescriptor_t Descriptor;

static inline Status descriptor_create(cudnnBackendDescriptorType_t type, Descriptor *made)
{
    TRY_CUDNN(cudnnBackendCreateDescriptor(type, made));
    return OK;
}

static inline void descriptor_destroy(Descriptor *d)
{
    if (*d) cudnnBackendDestroyDescriptor(*d);
    *d = NULL;
}

static inline Status set(Descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                         int64_t count, const void *values)
{
    TRY_CUDNN(cudnnBackendSetAttribute(d, name, type, count, values));
    return OK;
}

static inline Status set_descriptor(Descriptor d, cudnnBackendAttributeName_t name, Descriptor value)
{
    return set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static inline Status finalize(Descriptor d)
{
    TRY_CUDNN(cudnnBackendFinalize(d));
    return OK;
}

enum { CUDNN_OPERANDS = 4 /* x, w, y, bias: the tensors 1, 2, 3, 4 of a graph */ };

/* Descriptions of devices came with 9.8. */
#if CUDNN_VERSION >= 90800
#define DESCRIBED true
#define OF_DEVICE(name) CUDNN_ATTR_##name##_DEVICEPROP
#else /* headers that lack the names: nothing is opened from a description, so nothing uses these */
#define DESCRIBED false
#define OF_DEVICE(name) (cudnnBackendAttributeName_t)0
#define CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR (cudnnBackendDescriptorType_t)0
#define CUDNN_ATTR_DEVICEPROP_DEVICE_ID (cudnnBackendAttributeName_t)0
#define CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION (cudnnBackendAttributeName_t)0
#endif

/* What graphs and plans need of the library (cudnn_library.h). */
struct CudnnLibrary {
    cudnnHandle_t handle;  /* NULL: plans only */
    Descriptor device;     /* NULL: the device of the handle */
    PlanRefusals *refused; /* borrowed, or NULL */
};
