/* Descriptors of the fake cuDNN, and what it refuses of them. Internal. */
#pragma once

#include "tests/gpu/fake_cuda/fake.h"

#include <cudnn.h>

enum { ATTRIBUTES = 24 };

typedef struct Attribute {
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t count;
    void *values; /* owned; descriptors in it are shared */
} Attribute;

typedef struct Descriptor {
    cudnnBackendDescriptorType_t type;
    int users;
    bool finalized;
    int count;
    Attribute attribute[ATTRIBUTES];
} Descriptor;

size_t type_bytes(cudnnBackendAttributeType_t type);
Attribute *attribute_of(Descriptor *d, cudnnBackendAttributeName_t name); /* NULL: it was not set */
Descriptor *linked(Descriptor *d, cudnnBackendAttributeName_t name);      /* the first one that it refers to, or NULL */

bool fake_cudnn_virtual(Descriptor *tensor); /* in no memory: between two operations of a graph */

/* May an attribute be set so, and may the descriptor be finalized? */
cudnnStatus_t fake_cudnn_set(const Descriptor *d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                             int64_t count, const void *values);
cudnnStatus_t fake_cudnn_finalize(Descriptor *d);
/* Has any engine kernels for this graph? */
bool fake_cudnn_graph_fits(Descriptor *graph);
