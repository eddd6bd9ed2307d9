/* This project's CUDA kernels without a GPU: the same .cu sources, compiled by the host compiler with the emulation of
 * tests/gpu/emulation, run through every row of every case table in f32, f16 and bf16 under the address sanitizer.
 *
 * Prints the largest error of each op kind. TOWERS_TEST_OP=max_pool runs one kind only. TOWERS_TEST_BITS=FILE
 * writes a hash of each output, by which two builds are compared. */

#include "tests/gpu/emulation/emulated_backend.h"
#include "tests/support/check_gate.h"
#include "tests/support/check_optimizer.h"
#include "tests/support/run_case.h"
#include "tests/support/unit.h"

static void open_device(Device *device)
{
    DeviceConfig config = {DEVICE_USUAL, .threads = 1};
    *device = (Device){0};
    if (emulated_backend.open(&config, device) != OK) fail_msg("%s", status_message());
}

static int run_kind(Device *device, OpKind kind, Dtype dtype)
{
    CaseReport report = {0};
    int rows = run_cases(device, kind, dtype, &report);
    printf("  %-4s %-16s %3d rows %4d runs  max error %.2e (%3.0f %% of allowed)\n", dtype_name(dtype), op_name(kind),
           rows, report.runs, report.error, 100 * report.worst);
    return report.failures + report.unsupported;
}

#ifdef TOWERS_BREAK_KERNEL

/* In this build column sums lack a barrier (columns.cuh). That must show in every dtype. */
TEST(test_missing_barrier_is_seen)
{
    Device device;
    open_device(&device);
    for (Dtype dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++) assert_true(run_kind(&device, OP_BATCHNORM, dtype) > 0);
    emulated_backend.close(&device);
}

#else

static void check_dtype(Dtype dtype)
{
    Device device;
    const char *only = getenv("TOWERS_TEST_OP");
    int failures = 0;
    open_device(&device);
    for (int kind = 1; kind < OP_COUNT; kind++) {
        if (!emulated_has((OpKind)kind)) continue;
        if (only && strcmp(only, op_name((OpKind)kind)) != 0) continue;
        failures += run_kind(&device, (OpKind)kind, dtype);
    }
    emulated_backend.close(&device);
    if (failures) fail_msg("%d runs in %s are wrong", failures, dtype_name(dtype));
}

TEST(test_f32)
{
    check_dtype(DTYPE_F32);
}

TEST(test_f16)
{
    check_dtype(DTYPE_F16);
}

TEST(test_bf16)
{
    check_dtype(DTYPE_BF16);
}

static void on_device(void (*check)(Device *device))
{
    Device device;
    open_device(&device);
    check(&device);
    emulated_backend.close(&device);
}

TEST(test_optimizers)
{
    on_device(check_optimizers);
}

TEST(test_closed_gate)
{
    on_device(check_gate);
}

TEST(test_square_sum)
{
    on_device(check_square_sum);
}

TEST(test_l2_term)
{
    on_device(check_l2_term);
}

TEST(test_average)
{
    on_device(check_average);
}

TEST(test_gate)
{
    on_device(check_extras);
    on_device(check_gates);
    on_device(check_halt);
    on_device(check_loss_scale);
    on_device(check_scalars);
}

#endif
