/* The words for a device's state, and its numbers in metrics.jsonl. */
#include <glob.h>

#include "kernels/telemetry.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"
#include "towers/files/files.h"
#include "towers/record/metrics.h"

static void says(DeviceTelemetry telemetry, const char *wanted)
{
    char text[160] = "";
    telemetry_text(&telemetry, text, sizeof text);
    assert_string_equal(text, wanted);
}

TEST(a_state_in_words)
{
    DeviceTelemetry v = telemetry_unknown();
    v.gpu_celsius = 88;
    says(v, "");
    v.gpu_mhz = 1215;
    says(v, "its GPU runs at 1215 MHz, 88 C");
    v.gpu_mhz_most = 1980;
    v.gpu_slowed = 0x20;
    says(v, "its GPU runs at 1215 of 1980 MHz, thermal slowdown, 88 C");
    v.gpu_slowed = 0x4 | 0x8;
    says(v, "its GPU runs at 1215 of 1980 MHz, power cap, hardware slowdown, 88 C");
    v.gpu_slowed = 0x8 | 0x40;
    says(v, "its GPU runs at 1215 of 1980 MHz, thermal slowdown by the hardware, 88 C");
    v.gpu_slowed = 0x8 | 0x80;
    v.gpu_celsius = ABSENT;
    says(v, "its GPU runs at 1215 of 1980 MHz, power brake");
}

/* A row has the columns only if a device has been read since the last one, and null for what it does not say; TensorBoard has what is known. */
TEST_WITH(a_row_has_them, scratch_make, scratch_drop)
{
    static const TowerLoss towers[2] = {{1, 1, true}, {1, 1, true}};
    DeviceTelemetry telemetry[2] = {telemetry_unknown(), telemetry_unknown()};
    StepRecord record = {.step = 1, .tower = towers, .towers = 2};
    Metrics *metrics;
    telemetry[0].gpu_watts = 250.5;
    assert_int_equal(metrics_open(scratch, -1, 1, 1, false, &metrics), OK);
    metrics_step(metrics, &record);
    record.step = 2;
    record.telemetry = telemetry;
    record.telemetry_ns = 1;
    metrics_step(metrics, &record);
    record.step = 3;
    metrics_step(metrics, &record);
    metrics_close(metrics);
    char *text = scratch_text("metrics.jsonl"), *second = strchr(text, '\n'), *third = strchr(second + 1, '\n');
    assert_null(strstr(third, "gpu_")); /* no new reading */
    assert_non_null(strstr(second, ",\"gpu_watts\":[250.5,null],\"gpu_joules\":[null,null],"));
    *second = 0;
    assert_null(strstr(text, "gpu_"));
    free(text);
    glob_t found;
    char *events, path[PATH_BYTES];
    size_t bytes;
    scratch_path(path, "events.out.*");
    assert_int_equal(glob(path, 0, NULL, &found), 0);
    assert_int_equal(file_read(found.gl_pathv[0], 1 << 20, &events, &bytes), OK);
    assert_non_null(memmem(events, bytes, "tower_0/gpu_watts", 17));
    assert_null(memmem(events, bytes, "tower_1/gpu_watts", 17));
    globfree(&found);
    free(events);
}
