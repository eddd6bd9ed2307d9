/* The words for a device's state; see telemetry.h. */
#include "kernels/telemetry.h"

#include "kernels/base/text.h"

DeviceTelemetry telemetry_unknown(void)
{
    return (DeviceTelemetry){
#define TELEMETRY(key, tag, text) .key = ABSENT,
#include "kernels/telemetry.def"
    };
}

/* NVML's bits of why a clock is low. The first is set together with the last two, which say more. */
enum { SLOWED_BY_HARDWARE = 0x8, SLOWED_BY_KNOWN_HARDWARE = 0x40 | 0x80 };
static const struct {
    unsigned bit;
    const char *text;
} slowdowns[] = {{0x4, "power cap"},         {SLOWED_BY_HARDWARE, "hardware slowdown"},  {0x10, "sync boost"},
                 {0x20, "thermal slowdown"}, {0x40, "thermal slowdown by the hardware"}, {0x80, "power brake"}};

void telemetry_text(const DeviceTelemetry *telemetry, char *text, size_t bytes)
{
    Text to = text_start(text, bytes);
    unsigned slowed = telemetry->gpu_slowed > 0 ? (unsigned)telemetry->gpu_slowed : 0;
    if (slowed & SLOWED_BY_KNOWN_HARDWARE) slowed &= ~(unsigned)SLOWED_BY_HARDWARE;
    if (is_absent(telemetry->gpu_mhz)) return;
    text_add(&to, "its GPU runs at %.0f", telemetry->gpu_mhz);
    if (!is_absent(telemetry->gpu_mhz_most)) text_add(&to, " of %.0f", telemetry->gpu_mhz_most);
    text_add(&to, " MHz");
    for (size_t i = 0; i < sizeof slowdowns / sizeof *slowdowns; i++)
        if (slowed & slowdowns[i].bit) text_add(&to, ", %s", slowdowns[i].text);
    if (!is_absent(telemetry->gpu_celsius)) text_add(&to, ", %.0f C", telemetry->gpu_celsius);
}
