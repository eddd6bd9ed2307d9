/* Compares kernels/cuda/libraries/nvml.h with NVIDIA's header, where the compiler finds one. It has nothing to run. */
#if __has_include(<nvml.h>)
#include <nvml.h>

#include "kernels/cuda/libraries/nvml.h"

#define SAME(ours, theirs) _Static_assert((unsigned long long)(ours) == (unsigned long long)(theirs), #theirs)
#define SAME_FIELD(our, our_field, their, their_field)                                                                 \
    SAME(offsetof(our, our_field), offsetof(their, their_field));                                                      \
    SAME(sizeof(((our *)0)->our_field), sizeof(((their *)0)->their_field))

SAME(NVML_DONE, NVML_SUCCESS);
SAME(NVML_NOT_FOUND, NVML_ERROR_NOT_FOUND);
SAME(NVML_TIMED_OUT, NVML_ERROR_TIMEOUT);
SAME(NVML_LOST, NVML_ERROR_GPU_IS_LOST);
SAME(NVML_NEEDS_RESET, NVML_ERROR_RESET_REQUIRED);
SAME(NVML_SENSOR_GPU, NVML_TEMPERATURE_GPU);
SAME(NVML_CLOCK_OF_SM, NVML_CLOCK_SM);
SAME(NVML_CLOCK_OF_MEMORY, NVML_CLOCK_MEM);
SAME(NVML_CORRECTED, NVML_MEMORY_ERROR_TYPE_CORRECTED);
SAME(NVML_UNCORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED);
SAME(NVML_SINCE_DRIVER, NVML_VOLATILE_ECC);
SAME(NVML_EVENT_XID, nvmlEventTypeXidCriticalError);
SAME(NVML_CRC_FLIT, NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL);
SAME(NVML_CRC_DATA, NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL);
SAME(NVML_REPLAY, NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL);
SAME(NVML_RECOVERY, NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL);
SAME(NVML_VALUE_UNSIGNED, NVML_VALUE_TYPE_UNSIGNED_INT);
SAME(NVML_VALUE_UNSIGNED_LONG, NVML_VALUE_TYPE_UNSIGNED_LONG);
SAME(NVML_VALUE_UNSIGNED_LONG_LONG, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG);
SAME(sizeof(NvmlMemory), sizeof(nvmlMemory_t));
SAME_FIELD(NvmlMemory, used, nvmlMemory_t, used);
SAME(sizeof(NvmlUtilization), sizeof(nvmlUtilization_t));
SAME_FIELD(NvmlUtilization, gpu, nvmlUtilization_t, gpu);
SAME(sizeof(NvmlField), sizeof(nvmlFieldValue_t));
SAME_FIELD(NvmlField, id, nvmlFieldValue_t, fieldId);
SAME_FIELD(NvmlField, type, nvmlFieldValue_t, valueType);
SAME_FIELD(NvmlField, result, nvmlFieldValue_t, nvmlReturn);
SAME_FIELD(NvmlField, value, nvmlFieldValue_t, value);
SAME(sizeof(NvmlEvent), sizeof(nvmlEventData_t));
SAME_FIELD(NvmlEvent, device, nvmlEventData_t, device);
SAME_FIELD(NvmlEvent, type, nvmlEventData_t, eventType);
SAME_FIELD(NvmlEvent, data, nvmlEventData_t, eventData);
SAME_FIELD(NvmlEvent, gpu_instance, nvmlEventData_t, gpuInstanceId);
#ifdef nvmlTemperature_v1 /* newer than CUDA 11.8 */
SAME(sizeof(NvmlTemperature) | 1 << 24, nvmlTemperature_v1);
SAME_FIELD(NvmlTemperature, celsius, nvmlTemperature_v1_t, temperature);

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#define NvmlMemory nvmlMemory_t
#define NvmlUtilization nvmlUtilization_t
#define NvmlField nvmlFieldValue_t
#define NvmlEvent nvmlEventData_t
#define NvmlTemperature nvmlTemperature_t
#define NVML(needed, name, parameters)                                                                                 \
    _Static_assert(__builtin_types_compatible_p(__typeof__(nvml##name), nvmlReturn_t parameters), #name);
#include "kernels/cuda/libraries/nvml.def"
#endif
#endif
