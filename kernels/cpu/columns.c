/* Column sums in a fixed order; see columns.h. */
#include "kernels/cpu/columns.h"

enum { WIDE_ROW = 256 };

void columns_init(Columns *plan, int64_t pixels, int64_t c, bool packed)
{
    int64_t repeat = packed && c < WIDE_ROW ? smaller(WIDE_ROW / c, pixels) : 1;
    int64_t share = larger(chunk_pixels(c), (pixels + COLUMN_CHUNKS - 1) / COLUMN_CHUNKS);
    *plan = (Columns){.pixels = pixels, .c = c, .repeat = repeat, .width = repeat * c};
    plan->chunk = rounded_up(share, repeat);
    plan->chunks = (pixels + plan->chunk - 1) / plan->chunk;
}

size_t columns_bytes(const Columns *plan)
{
    return (size_t)(plan->chunks * plan->width) * 2 * (sizeof(double) + sizeof(float));
}

typedef struct ColumnsRun {
    const Columns *plan;
    ColumnRows *rows;
    void *context;
    double *wide; /* [chunks][2 * width] */
    float *near;  /* [chunks][2 * width] */
} ColumnsRun;

CPU_CLONES static void columns_flush(double *wide, float *near, int64_t count)
{
    VECTOR_LOOP
    for (int64_t i = 0; i < count; i++) {
        wide[i] += (double)near[i];
        near[i] = 0;
    }
}

/* The rows [pixel, pixel + rows * step) in groups that are short enough for f32. */
static void columns_add(const ColumnsRun *run, int64_t pixel, int64_t rows, int64_t step, double *wide, float *near)
{
    int64_t width = run->plan->width;
    for (int64_t row = 0; row < rows; row += COLUMN_ROWS) {
        int64_t group = smaller(COLUMN_ROWS, rows - row);
        run->rows(run->context, pixel + row * step, group, step * run->plan->c, near, near + width);
        columns_flush(wide, near, 2 * width);
    }
}

static void columns_chunk(void *context, int64_t first, int64_t end)
{
    const ColumnsRun *run = context;
    const Columns *plan = run->plan;
    double *wide = run->wide + first / plan->chunk * 2 * plan->width;
    float *near = run->near + first / plan->chunk * 2 * plan->width;
    memset(wide, 0, (size_t)plan->width * 2 * sizeof *wide);
    memset(near, 0, (size_t)plan->width * 2 * sizeof *near);
    int64_t whole = (end - first) / plan->repeat;
    columns_add(run, first, whole, plan->repeat, wide, near);
    columns_add(run, first + whole * plan->repeat, end - first - whole * plan->repeat, 1, wide, near);
}

CPU_CLONES static void columns_sum(double *total, const double *part, int64_t count)
{
    VECTOR_LOOP
    for (int64_t i = 0; i < count; i++) total[i] += part[i];
}

void columns_run(const Device *device, const Columns *plan, ColumnRows *rows, void *context, void *workspace,
                 double *total)
{
    int64_t stride = 2 * plan->width;
    ColumnsRun run = {plan, rows, context, workspace, (float *)((double *)workspace + plan->chunks * stride)};
    chunks_run(device, plan->pixels, plan->chunk, columns_chunk, &run);
    for (int64_t k = 1; k < plan->chunks; k++) columns_sum(run.wide, run.wide + k * stride, stride);
    memset(total, 0, (size_t)plan->c * 2 * sizeof *total);
    for (int64_t k = 0; k < plan->repeat; k++) {
        columns_sum(total, run.wide + k * plan->c, plan->c);
        columns_sum(total + plan->c, run.wide + plan->width + k * plan->c, plan->c);
    }
}
