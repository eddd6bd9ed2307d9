/* A matrix product of small integers, with NaN in the gaps between elements; see onednn_probe.h. */
#include "kernels/cpu/onednn_probe.h"

enum { EXTENT_MAX = 48, POISON = 0xff, GUARD = 64 /* elements behind the last one */ };

typedef struct Side {
    const OnednnView *view;
    size_t bytes;
    void *data;
} Side;

static bool view_is_strided_vector(const OnednnView *view)
{
    return view->rank == 2 &&
           ((view->dims[0] == 1 && view->strides[1] > 1) || (view->dims[1] == 1 && view->strides[0] > 1)) &&
           view->dims[0] * view->dims[1] > 1;
}

bool onednn_is_suspect(const OnednnSpec *spec)
{
    if (spec->kind != ONEDNN_MATMUL) return false;
    for (int role = 0; role < ONEDNN_BIAS; role++)
        if (spec->fit[role] == ONEDNN_AS_HELD && view_is_strided_vector(&spec->held[role])) return true;
    return false;
}

static size_t place(const OnednnView *view, int64_t row, int64_t col)
{
    return (size_t)(row * view->strides[0] + col * view->strides[1]);
}

/* 1 or 2, in no regular order: a sum of 48 products is below 256, and so exact in every dtype. */
static int value_at(OnednnRole role, int64_t row, int64_t col)
{
    return 1 + (int)(((uint64_t)(row * 48 + col * 5 + (int)role + 1) * 0x9e3779b97f4a7c15u) >> 63);
}

/* The bits of a small positive integer. */
static uint32_t encode(Dtype dtype, int value)
{
    float real = (float)value;
    uint32_t bits;
    memcpy(&bits, &real, sizeof bits);
    if (dtype == DTYPE_BF16) return bits >> 16;
    if (dtype == DTYPE_F16) return (bits >> 13) - ((127 - 15) << 10);
    return bits;
}

static void store(const Side *side, int64_t row, int64_t col, uint32_t bits)
{
    size_t size = dtype_bytes(side->view->dtype); /* x86 and ARM put the low bytes first */
    memcpy((char *)side->data + place(side->view, row, col) * size, &bits, size);
}

static uint32_t load(const Side *side, int64_t row, int64_t col)
{
    size_t size = dtype_bytes(side->view->dtype);
    uint32_t bits = 0;
    memcpy(&bits, (const char *)side->data + place(side->view, row, col) * size, size);
    return bits;
}

static Status side_create(const OnednnView *view, OnednnRole role, Side *side)
{
    side->view = view;
    side->bytes = (place(view, view->dims[0] - 1, view->dims[1] - 1) + 1 + GUARD) * dtype_bytes(view->dtype);
    side->data = malloc(side->bytes);
    if (!side->data) return FAIL(ERR_MEMORY, "no memory for %zu bytes to test a matrix product", side->bytes);
    memset(side->data, POISON, side->bytes);
    for (int64_t row = 0; row < view->dims[0]; row++)
        for (int64_t col = 0; col < view->dims[1]; col++)
            store(side, row, col, encode(view->dtype, value_at(role, row, col)));
    return OK;
}

static int element(const OnednnSpec *spec, int64_t row, int64_t col)
{
    int sum = spec->sum ? value_at(ONEDNN_Y, row, col) : 0;
    if (spec->held[ONEDNN_BIAS].rank) sum += value_at(ONEDNN_BIAS, 0, col);
    for (int64_t k = 0; k < spec->held[ONEDNN_X].dims[1]; k++)
        sum += value_at(ONEDNN_X, row, k) * value_at(ONEDNN_W, k, col);
    return sum;
}

/* Checks the elements of y and overwrites them, so that all of y must be poison afterwards. */
static bool elements_are_right(const OnednnSpec *spec, const Side *y)
{
    for (int64_t row = 0; row < y->view->dims[0]; row++)
        for (int64_t col = 0; col < y->view->dims[1]; col++) {
            if (load(y, row, col) != encode(y->view->dtype, element(spec, row, col))) return false;
            store(y, row, col, UINT32_MAX);
        }
    return true;
}

static bool is_poison(const Side *side)
{
    const unsigned char *byte = side->data;
    for (size_t i = 0; i < side->bytes; i++)
        if (byte[i] != POISON) return false;
    return true;
}

static void clip(OnednnSpec *spec)
{
    for (int role = 0; role < ONEDNN_ROLES; role++)
        for (int axis = 0; axis < spec->held[role].rank; axis++)
            if (spec->held[role].dims[axis] > EXTENT_MAX) spec->held[role].dims[axis] = EXTENT_MAX;
}

Status onednn_probe(Onednn *onednn, const OnednnSpec *spec, bool *right)
{
    Status st = OK;
    OnednnSpec small = *spec;
    OnednnTask *task = NULL;
    Side side[ONEDNN_ROLES] = {{0}};
    void *data[ONEDNN_ROLES] = {NULL}, *workspace = NULL;
    clip(&small);
    TRY_OUT(onednn_create(onednn, &small, &task));
    for (int role = 0; role < ONEDNN_ROLES; role++) {
        if (!small.held[role].rank) continue;
        TRY_OUT(side_create(&small.held[role], (OnednnRole)role, &side[role]));
        data[role] = side[role].data;
    }
    workspace = aligned_alloc(64, align_up(onednn_workspace_bytes(task) + 1, 64));
    if (!workspace) TRY_OUT(FAIL(ERR_MEMORY, "no memory for the workspace to test a matrix product"));
    TRY_OUT(onednn_run(task, data, workspace));
    *right = elements_are_right(&small, &side[ONEDNN_Y]) && is_poison(&side[ONEDNN_Y]);
out:
    free(workspace);
    for (int role = 0; role < ONEDNN_ROLES; role++) free(side[role].data);
    onednn_destroy(task);
    return st;
}
