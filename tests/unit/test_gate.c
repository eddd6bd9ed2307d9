/* The gate, on every backend of this build: extras, checks, latch, loss scale. */

#include "tests/support/check_gate.h"
#include "tests/support/fake_backend.h"
#include "tests/support/unit.h"

/* The fake runs the rule as it stands in the header; the others have their own way to it. */
static void on_each_backend(void (*check)(Device *device))
{
    static const char *const names[] = {"cpu", "cuda"};
    FakeBackend *fake = fake_create(0, 0, 0);
    Device device;
    assert_non_null(fake);
    fake_open(fake, &device);
    check(&device);
    fake_destroy(fake);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const Backend *backend;
        DeviceConfig config = {DEVICE_USUAL, .threads = 1};
        device = (Device){0};
        if (backend_find(names[i], &backend, NULL, 0) != OK || backend->open(&config, &device) != OK) continue;
        check(&device);
        backend->close(&device);
    }
}

TEST(test_extras)
{
    on_each_backend(check_extras);
}

TEST(test_gates)
{
    on_each_backend(check_gates);
}

TEST(test_halt)
{
    on_each_backend(check_halt);
}

TEST(test_loss_scale)
{
    on_each_backend(check_loss_scale);
}

TEST(test_scalars)
{
    on_each_backend(check_scalars);
}
