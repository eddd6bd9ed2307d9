/* Telemetry: what a device says about its own state, to a process that does not open it. The supervisor asks once a second
 * (towers/supervisor/device_watch.h), a tower never. */
#pragma once

#include "kernels/backend.h"
#include "kernels/base/absent.h"

enum { TELEMETRY_SLOWED = 0xfc }; /* the bits of gpu_slowed; NVML's others are no slowdown */

/* ABSENT: the device does not say. */
typedef struct DeviceTelemetry {
#define TELEMETRY(key, tag, text) Number key;
#include "kernels/telemetry.def"
} DeviceTelemetry;

DeviceTelemetry telemetry_unknown(void);

/* "its GPU runs at 1215 of 1980 MHz, thermal slowdown, 88 C", or what is known of it; "". */
void telemetry_text(const DeviceTelemetry *telemetry, char *text, size_t bytes);

/* How a backend watches its devices. One thread calls these. */
struct TelemetryOps {
    /* ERR_UNSUPPORTED: they cannot be watched, and why. */
    Status (*open)(const DeviceId *id, int count, void **watch);
    /* Wait at most `ms` for an event of a device. ERR_DEVICE: device number *device cannot go on. `note`: what else happened to
     * it, else "". */
    Status (*wait)(void *watch, int ms, int *device, char *note, size_t bytes);
    /* ERR_DEVICE: the device is lost, or has lost data. */
    Status (*read)(void *watch, int device, DeviceTelemetry *telemetry);
    void (*close)(void *watch);
};
