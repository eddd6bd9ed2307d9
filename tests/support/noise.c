/* Random series and runs; see noise.h. Normals by Box and Muller from Philox. */
#include "tests/support/noise.h"

#include "kernels/philox.h"

enum { SHARE = 25 };

double noise_normal(uint64_t seed, uint32_t index)
{
    Philox r = philox(seed, index, 17, 0, 0);
    double u = ((double)r.v[0] + 0.5) / 4294967296.0, v = (double)r.v[1] / 4294967296.0;
    return sqrt(-2 * log(u)) * cos(2 * 3.14159265358979323846 * v);
}

void noise_series(uint64_t seed, double memory, double *x, int64_t count)
{
    double fresh = sqrt(1 - memory * memory);
    for (int64_t i = 0; i < count; i++) {
        double normal = noise_normal(seed, (uint32_t)i);
        x[i] = i ? memory * x[i - 1] + fresh * normal : normal;
    }
}

static void *zeroed(size_t count, size_t bytes)
{
    void *memory = calloc(count, bytes);
    if (!memory) abort();
    return memory;
}

static RunStep step_make(Run *run, const NoiseRun *what, int64_t i, double shared, double speed, uint64_t seed)
{
    size_t n = (size_t)what->towers;
    double *memory = zeroed(n, 5 * sizeof(double) + sizeof(int64_t)), sum = 0;
    int share = what->share ? what->share : SHARE;
    double course = 0.3 + 2 * exp(-(double)i * share / SHARE / 80);
    int64_t *count = (int64_t *)(memory + 4 * n);
    bool *finite = (bool *)(memory + 5 * n);
    run->blocks[run->block_count++] = memory;
    for (size_t t = 0; t < n; t++) {
        double own = what->tower_noise * noise_normal(seed + 1000 + t, (uint32_t)i);
        memory[t] = course + own + what->shared * shared + what->loss_shift + (t == n - 1 ? what->last_shift : 0);
        sum += memory[t];
        count[t] = share;
        finite[t] = true;
    }
    return (RunStep){
        .step = i + 1,
        .images = share * what->towers,
        .images_seen = (i + 1) * share * what->towers,
        .lr = 0.1,
        .images_per_sec = 100 * what->speed_factor * (1 + 0.05 * speed),
        .mean_loss = sum / what->towers,
        .total_loss = sum / what->towers,
        .last_tower_loss = memory[n - 1],
        .tower_loss = memory,
        .tower_grad_norm = memory + n,
        .arrival_us = memory + 2 * n,
        .data_us = memory + 3 * n,
        .copy_us = memory + 3 * n,
        .forward_us = memory + 3 * n,
        .backward_us = memory + 3 * n,
        .tower_count = count,
        .finite = finite,
    };
}

Run *noise_run(const NoiseRun *what, uint64_t seed)
{
    Run *run = zeroed(1, sizeof *run);
    size_t steps = (size_t)what->steps;
    double *shared = zeroed(2 * steps, sizeof *shared), *speed = shared + steps;
    noise_series(seed + 1, what->shared_memory, shared, what->steps);
    noise_series(seed + 2, what->speed_memory, speed, what->steps);
    run->path = strdup("made-up");
    run->name = strdup("made-up");
    run->args = strdup("");
    run->environment = strdup("");
    run->towers = what->towers;
    run->step = zeroed(steps, sizeof *run->step);
    run->blocks = zeroed(steps, sizeof *run->blocks);
    for (int64_t i = 0; i < what->steps; i++)
        run->step[run->steps++] = step_make(run, what, i, shared[i], speed[i], seed);
    free(shared);
    return run;
}
