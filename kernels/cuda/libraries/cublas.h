/* Matrix products through cuBLASLt: 1x1 convolutions, dense layers, and their gradients.
 *
 *   y[rows][outs] = x[rows][ins] * transpose(w[outs][ins])        PRODUCT_Y
 *   x = y * w                                                     PRODUCT_DX
 *   w = transpose(y) * x                                          PRODUCT_DW
 * All packed, sums in f32, in the same order every time. The gradient of the weights is f32 whatever x and y are. */
#pragma once

#include "kernels/cuda/libraries/check.h"
#include "kernels/tensor.h"

typedef struct CublasLibrary CublasLibrary;

NODISCARD Status cublas_open(CublasLibrary **made);
void cublas_close(CublasLibrary *library);      /* NULL is fine */
void cublas_describe(char *text, size_t bytes); /* "cuBLASLt 13.1.0" */

typedef enum ProductKind { PRODUCT_Y, PRODUCT_DX, PRODUCT_DW } ProductKind;

typedef struct Product {
    ProductKind kind;
    int64_t rows, ins, outs;
    Dtype dtype;     /* of x, y and the weights that are read */
    bool accumulate; /* the result is added to what is there */
    bool tf32;       /* f32 operands may be rounded to TF32 */
    size_t workspace_max;
} Product;

typedef struct ProductPlan ProductPlan;

enum { PRODUCT_PLANS = 8 };

/* Up to `wanted` ways to do it, cuBLASLt's best guess first; none is no failure. */
NODISCARD Status product_plans(CublasLibrary *library, const Product *product, int wanted, ProductPlan **plans,
                               int *found);
/* The plan that product_plan_text named earlier, with the same library and device. */
NODISCARD Status product_plan_named(CublasLibrary *library, const Product *product, const char *text,
                                    ProductPlan **made);
void product_plan_destroy(ProductPlan *plan); /* NULL is fine */
size_t product_plan_workspace(const ProductPlan *plan);
void product_plan_text(const ProductPlan *plan, char *text, size_t bytes); /* "product 0123..." */

/* Pointers are aligned to 16 bytes. */
NODISCARD Status product_run(const ProductPlan *plan, void *x, void *w, void *y, void *workspace, cudaStream_t stream);
