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
    if (!found) skip();
}

static void test_optimizers(void **state)
{
    on_each_backend(check_optimizers);
}

static void test_closed_gate(void **state)
{
    on_each_backend(check_gate);
}

static void test_slot_counts(void **state)
{
    check_slot_counts();
}

static void test_square_sum(void **state)
{
    on_each_backend(check_square_sum);
}

static void test_l2_term(void **state)
{
    on_each_backend(check_l2_term);
}

static void test_average(void **state)
{
    on_each_backend(check_average);
}

static void test_memory(void **state)
{
    on_each_backend(check_memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_optimizers), cmocka_unit_test(test_closed_gate), cmocka_unit_test(test_slot_counts),
        cmocka_unit_test(test_square_sum), cmocka_unit_test(test_l2_term),     cmocka_unit_test(test_average),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
