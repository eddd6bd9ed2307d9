/* The words for a device's state; see vitals.h. */
#include "kernels/vitals.h"

#include "kernels/base/text.h"

DeviceVitals vitals_unknown(void)
{
    return (DeviceVitals){
#define VITAL(key, tag, text) .key = ABSENT,
#include "kernels/vitals.def"
    };
}

/* NVML's bits of why a clock is low. The first is set together with the last two, which say more. */
enum { SLOWED_BY_HARDWARE = 0x8, SLOWED_BY_KNOWN_HARDWARE = 0x40 | 0x80 };
static const struct {
    unsigned bit;
    const char *text;
} slowdowns[] = {{0x4, "power cap"},         {SLOWED_BY_HARDWARE, "hardware slowdown"},  {0x10, "sync boost"},
                 {0x20, "thermal slowdown"}, {0x40, "thermal slowdown by the hardware"}, {0x80, "power brake"}};

void vitals_text(const DeviceVitals *vitals, char *text, size_t bytes)
{
    Text to = text_start(text, bytes);
    unsigned slowed = vitals->gpu_slowed > 0 ? (unsigned)vitals->gpu_slowed : 0;
    if (slowed & SLOWED_BY_KNOWN_HARDWARE) slowed &= ~(unsigned)SLOWED_BY_HARDWARE;
    if (is_absent(vitals->gpu_mhz)) return;
    text_add(&to, "its GPU runs at %.0f", vitals->gpu_mhz);
    if (!is_absent(vitals->gpu_mhz_most)) text_add(&to, " of %.0f", vitals->gpu_mhz_most);
    text_add(&to, " MHz");
    for (size_t i = 0; i < sizeof slowdowns / sizeof *slowdowns; i++)
        if (slowed & slowdowns[i].bit) text_add(&to, ", %s", slowdowns[i].text);
    if (!is_absent(vitals->gpu_celsius)) text_add(&to, ", %.0f C", vitals->gpu_celsius);
}
