/* The part of NVML's interface that is used. The library (libnvidia-ml.so.1) belongs to the driver, not to CUDA's toolkit, so it
 * is loaded at run time and not linked. Numbers and layouts are those of nvml.h of CUDA 13.4 (package nvidia-nvml-dev
 * 13.4.92; those of CUDA 11.8 are the same); where a compiler finds that header, tests/gpu/fake_nvml compares. */
#pragma once

#include "kernels/telemetry.h"

typedef struct nvmlDevice_st *NvmlDevice;
typedef struct nvmlEventSet_st *NvmlEvents;

/* nvmlReturn_t */
enum { NVML_DONE = 0, NVML_NOT_FOUND = 6, NVML_TIMED_OUT = 10, NVML_LOST = 15, NVML_NEEDS_RESET = 16 };
/* nvmlTemperatureSensors_t, nvmlClockType_t, nvmlMemoryErrorType_t, nvmlEccCounterType_t */
enum { NVML_SENSOR_GPU = 0 };
enum { NVML_CLOCK_OF_SM = 1, NVML_CLOCK_OF_MEMORY = 2 };
enum { NVML_CORRECTED = 0, NVML_UNCORRECTED = 1, NVML_SINCE_DRIVER = 0 };
enum { NVML_EVENT_XID = 0x8 }; /* nvmlEventTypeXidCriticalError */
static const unsigned NVML_NO_INSTANCE = 0xFFFFFFFF;
/* NVML_FI_DEV_NVLINK_*_TOTAL: of flits, of data, replays, recoveries */
enum { NVML_CRC_FLIT = 38, NVML_CRC_DATA = 45, NVML_REPLAY = 52, NVML_RECOVERY = 59 };
enum { NVML_VALUE_UNSIGNED = 1, NVML_VALUE_UNSIGNED_LONG = 2, NVML_VALUE_UNSIGNED_LONG_LONG = 3 }; /* nvmlValueType_t */

typedef struct NvmlTemperature { /* nvmlTemperature_v1_t */
    unsigned version;            /* its size and 1 << 24 */
    unsigned sensor;
    int celsius;
} NvmlTemperature;

typedef struct NvmlMemory { /* nvmlMemory_t, in bytes */
    unsigned long long total, free, used;
} NvmlMemory;

typedef struct NvmlUtilization { /* nvmlUtilization_t, in per cent */
    unsigned gpu, memory;
} NvmlUtilization;

typedef struct NvmlField { /* nvmlFieldValue_t */
    unsigned id, scope;
    long long timestamp, latency;
    unsigned type, result;
    union {
        unsigned number;
        unsigned long long big;
    } value;
} NvmlField;

typedef struct NvmlEvent { /* nvmlEventData_t */
    NvmlDevice device;
    unsigned long long type, data;           /* data: the number of the XID */
    unsigned gpu_instance, compute_instance; /* of MIG; NVML_NO_INSTANCE: it concerns the whole GPU */
} NvmlEvent;

extern const TelemetryOps cuda_telemetry;
