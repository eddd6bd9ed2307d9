/* Training with frozen layers on the fake GPU, with batch norms that use their averages before and after trained
 * layers: the losses equal the CPU's, frozen weights and statistics keep their bits, and NCCL transfers nothing for
 * them. */
#include <sys/mman.h>

#include "kernels/cuda/cuda.h"
#include "tests/gpu/fake_cuda/gpu_run.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"
#include "towers/graph/names.h"
#include "towers/store/safetensors.h"

/* The network is stem -> {a, b} -> wide -> head (gpu_run.c). */
static const char *const frozen[] = {
    "stem.*",               /* nothing is differentiated in front of a and b */
    "a.*,b.bn.*",           /* the gradient of stem goes through them */
    "stem.*,a.*,b.*,wide*", /* only the last layer is trained: one bucket */
};
enum { CASES = sizeof frozen / sizeof *frozen };

static void run_open(GpuRun *run, const Backend *backend, const char *freeze, int ranks)
{
    gpu_run_open(run, ranks, ranks);
    run->job.backend = backend;
    run->job.program.freeze = freeze;
    run->job.max_steps = 6;
    run->job.graphs = true;
    run->job.schedule.lr = 0.002; /* a rounding stays one */
}

static void must_live(GpuRun *run)
{
    if (gpu_run_live(run) == OK) return;
    for (int r = 0; r < run->job.processes; r++) fprintf(stderr, "rank %d: %s\n", r, run->seen->rank[r].message);
    fail_msg("the run failed");
}

static const Backend *cpu_or_skip(void)
{
    const Backend *cpu = NULL;
    if (backend_find("cpu", &cpu, NULL, 0) != OK) skip("no CPU backend here: %s", status_message());
    return cpu;
}

static void losses_near(const double *have, const double *wanted, double tolerance, const char *freeze)
{
    for (int step = 1; step <= 6; step++)
        if (!(fabs(have[step] - wanted[step]) <= tolerance * fabs(wanted[step])))
            fail_msg("%s, step %d: loss %.9g, on the CPU %.9g", freeze, step, have[step], wanted[step]);
}

TEST_WITH(test_losses_of_the_cpu, fake_and_scratch_as_new, scratch_drop)
{
    const Backend *cpu = cpu_or_skip();
    for (int k = 0; k < CASES; k++) {
        GpuRun on_cpu, on_gpu, in_f16;
        run_open(&on_cpu, cpu, frozen[k], 2);
        run_open(&on_gpu, &cuda_backend, frozen[k], 2);
        run_open(&in_f16, &cuda_backend, frozen[k], 2);
        in_f16.job.program.compute = DTYPE_F16;
        in_f16.job.program.norm_into_pool = true;
        in_f16.job.loss_scale = 128;
        must_live(&on_cpu);
        must_live(&on_gpu);
        must_live(&in_f16);
        losses_near(on_gpu.seen->loss, on_cpu.seen->loss, 1e-4, frozen[k]);
        losses_near(in_f16.seen->loss, on_cpu.seen->loss, 0.02, frozen[k]);
        gpu_run_close(&on_cpu);
        gpu_run_close(&on_gpu);
        gpu_run_close(&in_f16);
    }
}

/* ---- weights */

static SafeTensors *weights_after(const Backend *backend, const char *freeze, int64_t steps, const char *name)
{
    GpuRun run;
    char path[PATH_BYTES];
    SafeTensors *file;
    scratch_path(path, name);
    assert_int_equal(directory_create(path), OK);
    run_open(&run, backend, freeze, 1);
    run.job.run_dir = path;
    run.job.max_steps = steps;
    run.job.gate.ema_decay = 0.9;
    must_live(&run);
    gpu_run_close(&run);
    char last[PATH_BYTES];
    assert_int_equal(path_join(last, path, "last.safetensors"), OK);
    assert_int_equal(safetensors_open(last, &file), OK);
    return file;
}

/* A pattern of parameters names the statistics of a batch norm as well. */
TEST_WITH(test_frozen_stay_bit_for_bit, fake_and_scratch_as_new, scratch_drop)
{
    const Backend *cpu = cpu_or_skip();
    for (int k = 0; k < CASES; k++) {
        int kept = 0, moved = 0;
        char name[3][16];
        for (int i = 0; i < 3; i++) snprintf(name[i], sizeof name[i], "%d-%d", k, i);
        SafeTensors *before = weights_after(&cuda_backend, frozen[k], 1, name[0]),
                    *after = weights_after(&cuda_backend, frozen[k], 6, name[1]),
                    *on_cpu = weights_after(cpu, frozen[k], 1, name[2]);
        for (int i = 0; i < safetensors_count(after); i++) {
            const StTensor *t = safetensors_at(after, i), *old = safetensors_find(before, t->name),
                           *same = safetensors_find(on_cpu, t->name);
            assert_true(old && same && old->bytes == t->bytes && same->bytes == t->bytes);
            if (t->dtype != ST_F32) continue;
            bool is_frozen = names_match(frozen[k], t->name), is_equal = !memcmp(t->data, old->data, t->bytes);
            if (is_frozen != is_equal) fail_msg("%s: %s is %s", frozen[k], t->name, is_equal ? "kept" : "moved");
            if (is_frozen) assert_memory_equal(t->data, same->data, t->bytes);
            kept += is_frozen;
            moved += !is_frozen;
        }
        assert_true(kept > 0 && moved > 0);
        safetensors_close(before);
        safetensors_close(after);
        safetensors_close(on_cpu);
    }
}

/* ---- what travels */

static int64_t *reduced; /* [GPU_RUN_STEPS + 1], shared with the ranks: elements, when rank 0 has taken a step */

static void step_count(int64_t step)
{
    reduced[step] = fake_gpu_reduced();
}

TEST_WITH(test_no_traffic_for_the_frozen, fake_and_scratch_as_new, scratch_drop)
{
    size_t bytes = (GPU_RUN_STEPS + 1) * sizeof *reduced;
    reduced = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(reduced != MAP_FAILED);
    for (int k = 0; k < CASES; k++) {
        GpuRun run;
        Program program;
        Layout *layout;
        run_open(&run, &cuda_backend, frozen[k], 2);
        run.on_step = step_count;
        ProgramConfig config = run.job.program;
        config.training = true;
        assert_int_equal(program_graph(&config, 1, &program), OK);
        assert_int_equal(layout_create(program.graph, &layout), OK);
        assert_true(layout->trained_elements < layout->param_elements);
        must_live(&run);
        for (int step = 2; step <= 3; step++) /* the next ones are begun by then, as they are at every step */
            assert_int_equal(reduced[step] - reduced[step - 1], layout->trained_elements + sum_extra_count(2));
        layout_destroy(layout);
        program_destroy(&program);
        gpu_run_close(&run);
    }
    munmap(reduced, bytes);
}
