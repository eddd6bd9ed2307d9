/* Matrix products in parts; see onednn_parts.h. */
#include "kernels/cpu/onednn_parts.h"

#include "kernels/cpu/onednn_isa.h"
#include "kernels/cpu/vector.h"

enum { WHOLE, LAST, SIZES }; /* a part of the usual size, and a smaller one at the end */

struct OnednnParts {
    int count, threads;
    size_t step[ONEDNN_ROLES]; /* bytes from the operand of a part to that of the next; 0: all parts have the same */
    bool last_is_smaller;
    size_t task_bytes; /* of workspace, for one thread */
    OnednnTask
        *task[]; /* owned: [threads][SIZES], because a task runs on one thread at a time; NULL where not needed */
};

/* A product's rows or columns, in parts of `step`. */
typedef struct Cut {
    int axis; /* of y: 0 rows, 1 columns */
    int64_t extent, step;
    int count;
} Cut;

/* The operands that a cut divides, by its axis. The others are the same for all parts. */
static const bool divided[2][ONEDNN_ROLES] = {{[ONEDNN_X] = true, [ONEDNN_Y] = true},
                                              {[ONEDNN_W] = true, [ONEDNN_Y] = true, [ONEDNN_BIAS] = true}};

/* Whether oneDNN may compute the sums otherwise for another number of threads: all sums without AVX-512; with it sums of
 * 1,024 and more products, if the first factor is transposed, which oneDNN 3.7 takes a single row for, or in bf16 by AMX. */
static bool sums_are_divided(const OnednnSpec *spec)
{
    enum { LONG_SUM = 1024 };
    const OnednnView *x = &spec->held[ONEDNN_X];
    if (spec->kind != ONEDNN_MATMUL || spec->one_thread) return false;
    if (!onednn_has_avx512()) return true;
    bool by_tiles = onednn_has_amx() && spec->compute[ONEDNN_X] == DTYPE_BF16;
    return x->dims[1] >= LONG_SUM && (by_tiles || x->strides[1] != 1 || x->dims[0] == 1);
}

/* Parts as small as they may be without cost: starting one takes about a microsecond, its work fifty times as long. And
 * no more than MOST threads need, because each part packs the operand that is not divided, and converts it, so that
 * weights are divided if they must be converted. A grain is a multiple of what oneDNN computes at once: 16 columns and
 * 6 rows with AVX2, 64 columns and 32 rows with AMX. */
static Cut cut_of(const OnednnSpec *spec)
{
    enum { PART_WORK = 2 << 20 /* multiplications */, MOST = 16 };
    const OnednnView *x = &spec->held[ONEDNN_X], *y = &spec->held[ONEDNN_Y];
    int64_t grain = onednn_has_avx512() ? 64 : 48;
    bool converts = spec->held[ONEDNN_W].dtype != spec->compute[ONEDNN_W];
    Cut cut = {.axis = converts || y->dims[1] > y->dims[0]};
    int64_t work = y->dims[0] * y->dims[1] * x->dims[1], parts = larger(1, smaller(work / PART_WORK, MOST));
    cut.extent = y->dims[cut.axis];
    cut.step = smaller(cut.extent, (cut.extent + parts * grain - 1) / (parts * grain) * grain);
    cut.count = (int)((cut.extent + cut.step - 1) / cut.step);
    return cut;
}

/* A product over one part. Weights stay as they are held: to lay them out otherwise would be repeated for each part. A task
 * that computes several parts keeps nothing of weights that are divided among them. */
static OnednnSpec part_of(const OnednnSpec *spec, const Cut *cut, int64_t extent)
{
    OnednnSpec part = *spec;
    part.one_thread = true;
    part.keeps_w &= cut->count == 1 || !divided[cut->axis][ONEDNN_W];
    for (int role = 0; role < ONEDNN_ROLES; role++)
        if (divided[cut->axis][role] && part.held[role].rank) part.held[role].dims[cut->axis] = extent;
    if (cut->count > 1 && part.fit[ONEDNN_W] == ONEDNN_ANY) part.fit[ONEDNN_W] = ONEDNN_AS_HELD;
    return part;
}

static Status task_add(OnednnParts *parts, Onednn *onednn, const OnednnSpec *spec, OnednnTask **task)
{
    TRY(onednn_create(onednn, spec, task));
    size_t bytes = align_up(onednn_workspace_bytes(*task), 64);
    if (bytes > parts->task_bytes) parts->task_bytes = bytes;
    return OK;
}

static Status tasks_create(OnednnParts *parts, Onednn *onednn, const OnednnSpec *spec, const Cut *cut)
{
    OnednnSpec whole = part_of(spec, cut, cut->step);
    OnednnSpec last = part_of(spec, cut, cut->extent - (cut->count - 1) * cut->step);
    for (int role = 0; role < ONEDNN_ROLES; role++)
        if (divided[cut->axis][role])
            parts->step[role] =
                (size_t)(cut->step * spec->held[role].strides[cut->axis]) * dtype_bytes(spec->held[role].dtype);
    for (int thread = 0; thread < parts->threads; thread++) {
        OnednnTask **of = parts->task + (size_t)thread * SIZES;
        TRY(task_add(parts, onednn, &whole, &of[WHOLE]));
        if (parts->last_is_smaller) TRY(task_add(parts, onednn, &last, &of[LAST]));
    }
    return OK;
}

Status parts_create(Onednn *onednn, const OnednnSpec *spec, int threads, OnednnParts **made)
{
    Status st = OK;
    bool cuts = sums_are_divided(spec);
    Cut cut = {.count = 1};
    if (cuts) cut = cut_of(spec);
    int members = cut.count > 1 ? threads : 1;
    OnednnParts *parts = calloc(1, sizeof *parts + (size_t)members * SIZES * sizeof parts->task[0]);
    if (!parts) return FAIL(ERR_MEMORY, "no memory for the parts of a oneDNN task");
    parts->count = cut.count;
    parts->threads = members;
    parts->last_is_smaller = cut.count * cut.step != cut.extent;
    if (cuts)
        TRY_OUT(tasks_create(parts, onednn, spec, &cut));
    else
        TRY_OUT(task_add(parts, onednn, spec, &parts->task[0]));
    *made = parts;
    parts = NULL;
out:
    parts_destroy(parts);
    return st;
}

void parts_destroy(OnednnParts *parts)
{
    if (!parts) return;
    for (int k = 0; k < parts->threads * SIZES; k++) onednn_destroy(parts->task[k]);
    free(parts);
}

const char *parts_impl(const OnednnParts *parts)
{
    return onednn_impl(parts->task[WHOLE]);
}

bool parts_are_reference(const OnednnParts *parts)
{
    return onednn_is_reference(parts->task[WHOLE]);
}

size_t parts_workspace_bytes(const OnednnParts *parts)
{
    return (size_t)parts->threads * parts->task_bytes;
}

void parts_renew(OnednnParts *parts)
{
    for (int k = 0; k < parts->threads * SIZES; k++)
        if (parts->task[k]) onednn_renew(parts->task[k]);
}

static Status part_run(const OnednnParts *parts, int part, int thread, void *const data[ONEDNN_ROLES], char *workspace)
{
    void *of_part[ONEDNN_ROLES];
    int size = parts->last_is_smaller && part == parts->count - 1 ? LAST : WHOLE;
    for (int role = 0; role < ONEDNN_ROLES; role++)
        of_part[role] = data[role] ? (char *)data[role] + (size_t)part * parts->step[role] : NULL;
    return onednn_run(parts->task[thread * SIZES + size], of_part, workspace + (size_t)thread * parts->task_bytes);
}

Status parts_run(const OnednnParts *parts, void *const data[ONEDNN_ROLES], void *workspace)
{
    TeamStatus first;
    first.status = OK;
    if (parts->count == 1) return onednn_run(parts->task[WHOLE], data, workspace);
#pragma omp parallel for schedule(static) num_threads(parts->threads)
    for (int k = 0; k < parts->count; k++) team_status_take(&first, part_run(parts, k, team_member(), data, workspace));
    return team_status_end(&first);
}
