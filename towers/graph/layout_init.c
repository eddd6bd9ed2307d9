/* Starting values of parameters and running statistics; see layout.h.
 *
 * Element i of a parameter takes lane i % 4 of Philox(seed; i / 4, attempt, XXH3-64 of the name), i counted in OHWI
 * order inside the parameter: a value depends only on the seed, the name and its place in the tensor.
 * Normal values use Box and Muller's method (1958); truncated ones are redrawn, with the next attempt, until they lie
 * within two standard deviations. */
#include "kernels/base/progress.h"
#include "kernels/philox.h"
#include "towers/graph/layout.h"

#include <xxhash.h>

enum { LANES = 4 };

typedef struct InitStream {
    uint64_t seed, name;
} InitStream;

static Philox draw(InitStream stream, size_t block, uint32_t attempt)
{
    return philox(stream.seed, (uint32_t)block, attempt, (uint32_t)stream.name, (uint32_t)(stream.name >> 32));
}

/* Two independent standard normal values from two words; the first word is moved into (0, 1], where log is finite. */
static void box_muller(uint32_t a, uint32_t b, double z[2])
{
    double radius = sqrt(-2 * log((a + 1.0) * 0x1p-32)), angle = 2 * M_PI * (b * 0x1p-32);
    z[0] = radius * cos(angle);
    z[1] = radius * sin(angle);
}

static void draw_uniform(InitStream stream, size_t block, double values[LANES])
{
    Philox words = draw(stream, block, 0);
    for (int lane = 0; lane < LANES; lane++) values[lane] = 2.0 * philox_unit(words.v[lane]) - 1;
}

static void draw_normal(InitStream stream, size_t block, uint32_t attempt, double values[LANES])
{
    Philox words = draw(stream, block, attempt);
    box_muller(words.v[0], words.v[1], values);
    box_muller(words.v[2], words.v[3], values + 2);
}

static void draw_truncated(InitStream stream, size_t block, double values[LANES])
{
    int rejected = LANES;
    for (int lane = 0; lane < LANES; lane++) values[lane] = INFINITY;
    for (uint32_t attempt = 0; rejected > 0; attempt++) {
        double next[LANES];
        draw_normal(stream, block, attempt, next);
        for (int lane = 0; lane < LANES; lane++) {
            if (fabs(values[lane]) <= 2 || fabs(next[lane]) > 2) continue;
            values[lane] = next[lane];
            rejected--;
        }
    }
}

static void init_block(Init init, InitStream stream, size_t block, double values[LANES])
{
    switch (init.kind) {
    case INIT_UNIFORM:
    case INIT_GLOROT_UNIFORM: draw_uniform(stream, block, values); break;
    case INIT_NORMAL:
    case INIT_HE_NORMAL: draw_normal(stream, block, 0, values); break;
    case INIT_TRUNCATED_NORMAL: draw_truncated(stream, block, values); break;
    case INIT_ZERO:
    case INIT_CONSTANT:
        for (int lane = 0; lane < LANES; lane++) values[lane] = init.kind == INIT_CONSTANT;
        break;
    }
}

static void init_entry(const LayoutEntry *entry, uint64_t seed, float *values)
{
    InitStream stream = {seed, XXH3_64bits(entry->name, strlen(entry->name))};
    for (size_t i = 0; i < entry->count; i += LANES) {
        double block[LANES];
        init_block(entry->init, stream, i / LANES, block);
        for (size_t lane = 0; lane < LANES && i + lane < entry->count; lane++)
            values[i + lane] = (float)block[lane] * entry->init.a;
    }
}

void layout_init_params(const Layout *layout, uint64_t seed, float *params)
{
    memset(params, 0, layout->param_elements * sizeof *params);
    for (int i = 0; i < layout->param_count; i++) {
        init_entry(&layout->params[i], seed, params + layout->params[i].first);
        progress_made(layout->params[i].name);
    }
}

void layout_init_running(const Layout *layout, float *running)
{
    memset(running, 0, layout->running_elements * sizeof *running);
    for (int i = 0; i < layout->running_count; i++)
        init_entry(&layout->running[i], 0, running + layout->running[i].first);
}
