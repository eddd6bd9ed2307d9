/* Offsets for blocks of memory with known lifetimes: two blocks overlap in space only if they never overlap in time.
 * Optimal packing is NP-hard (Garey & Johnson 1979, SR2). Here each block goes, in a fixed order, into the smallest
 * gap between the blocks already placed that holds it (greedy best fit); several orders are tried, and the best result
 * is kept. */
#include "towers/graph/plan_internal.h"

enum { PLACE_ALIGN = 64 };

typedef int (*Compare)(const void *a, const void *b);

size_t place_align(size_t bytes)
{
    return (bytes + PLACE_ALIGN - 1) / PLACE_ALIGN * PLACE_ALIGN;
}

static int compare_sizes(size_t a, size_t b)
{
    return (a < b) - (a > b);
}

/* The orders compare pointers to blocks; equal blocks keep the order of the list, so results do not depend on qsort. */
static int by_size(const void *a, const void *b)
{
    const ArenaBlock *x = *(ArenaBlock *const *)a, *y = *(ArenaBlock *const *)b;
    int order = compare_sizes(x->bytes, y->bytes);
    return order ? order : (x > y) - (x < y);
}

static int by_start(const void *a, const void *b)
{
    const ArenaBlock *x = *(ArenaBlock *const *)a, *y = *(ArenaBlock *const *)b;
    int order = (x->start > y->start) - (x->start < y->start);
    return order ? order : by_size(a, b);
}

static int by_duration(const void *a, const void *b)
{
    const ArenaBlock *x = *(ArenaBlock *const *)a, *y = *(ArenaBlock *const *)b;
    int order = compare_sizes((size_t)(x->end - x->start), (size_t)(y->end - y->start));
    return order ? order : by_size(a, b);
}

static int by_area(const void *a, const void *b)
{
    const ArenaBlock *x = *(ArenaBlock *const *)a, *y = *(ArenaBlock *const *)b;
    int order = compare_sizes(x->bytes * (size_t)(x->end - x->start + 1), y->bytes * (size_t)(y->end - y->start + 1));
    return order ? order : by_size(a, b);
}

/* `placed` is sorted by offset. Copies, not pointers to blocks: this reads all of them for each block, one behind another. */
static size_t best_gap(const ArenaBlock *placed, int count, const ArenaBlock *block)
{
    size_t cursor = 0, best = 0, best_bytes = SIZE_MAX;
    for (int i = 0; i < count; i++) {
        const ArenaBlock *other = &placed[i];
        if (other->end < block->start || other->start > block->end) continue;
        if (other->offset > cursor) {
            size_t gap = other->offset - cursor;
            if (gap == block->bytes) return cursor; /* none is smaller */
            if (gap > block->bytes && gap < best_bytes) {
                best = cursor;
                best_bytes = gap;
            }
        }
        size_t end = place_align(other->offset + other->bytes);
        if (end > cursor) cursor = end;
    }
    return best_bytes < SIZE_MAX ? best : cursor;
}

static size_t place_in_order(ArenaBlock **order, ArenaBlock *placed, int count)
{
    size_t total = 0;
    for (int i = 0; i < count; i++) {
        ArenaBlock *block = order[i];
        block->offset = best_gap(placed, i, block);
        int at = i;
        for (; at > 0 && placed[at - 1].offset > block->offset; at--) placed[at] = placed[at - 1];
        placed[at] = *block;
        size_t end = place_align(block->offset + block->bytes);
        if (end > total) total = end;
    }
    return total;
}

static void place_best(ArenaBlock *blocks, int count, ArenaBlock **order, ArenaBlock *placed, size_t *best_offset,
                       size_t *total)
{
    static const Compare compare[] = {by_size, by_start, by_duration, by_area};
    *total = SIZE_MAX;
    for (size_t c = 0; c < sizeof compare / sizeof *compare; c++) {
        for (int i = 0; i < count; i++) order[i] = &blocks[i];
        qsort(order, (size_t)count, sizeof *order, compare[c]);
        size_t bytes = place_in_order(order, placed, count);
        if (bytes >= *total) continue;
        *total = bytes;
        for (int i = 0; i < count; i++) best_offset[i] = blocks[i].offset;
    }
    for (int i = 0; i < count; i++) blocks[i].offset = best_offset[i];
}

Status place_blocks(ArenaBlock *blocks, int count, size_t *total)
{
    Status st = OK;
    ArenaBlock **order = calloc((size_t)count + 1, sizeof *order), *placed = calloc((size_t)count + 1, sizeof *placed);
    size_t *best_offset = calloc((size_t)count + 1, sizeof *best_offset);
    if (!order || !placed || !best_offset) TRY_OUT(FAIL(ERR_MEMORY, "no memory to place %d blocks", count));
    place_best(blocks, count, order, placed, best_offset, total);
out:
    free(order);
    free(placed);
    free(best_offset);
    return st;
}
