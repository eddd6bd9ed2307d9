/* The update of the weights on every backend against the reference, over several steps; what a closed gate must leave
 * unchanged; square sums, running averages, fill and copies. */

#include "tests/support/check_optimizer.h"
#include "tests/support/unit.h"

static const char *const backends[] = {"cpu", "cuda"};

static bool open_backend(const char *name, Device *device)
{
    const Backend *backend;
    int count = 0;
    DeviceConfig config = {DEVICE_USUAL, .threads = 2};
    if (backend_find(name, &backend, NULL, 0) != OK || backend_device_count(backend, &count) != OK || count == 0)
        return false;
    if (backend->open(&config, device) != OK) fail_msg("%s: %s", name, status_message());
    return true;
}

/* Runs a check on each backend of this machine; at least one must be there. */
static void on_each_backend(void (*check)(Device *device))
{
    int found = 0;
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++) {
        Device device = {0};
        if (!open_backend(backends[i], &device)) continue;
        check(&device);
        device.backend->close(&device);
        found++;
    }
    if (!found) skip("no backend here has a device: %s", status_message());
}

TEST(test_optimizers)
{
    on_each_backend(check_optimizers);
}

TEST(test_closed_gate)
{
    on_each_backend(check_gate);
}

TEST(test_state_counts)
{
    check_state_counts();
}

TEST(test_square_sum)
{
    on_each_backend(check_square_sum);
}

TEST(test_l2_term)
{
    on_each_backend(check_l2_term);
}

TEST(test_average)
{
    on_each_backend(check_average);
}

TEST(test_memory)
{
    on_each_backend(check_memory);
}
