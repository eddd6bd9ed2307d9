/* GPUs as described by cuDNN, so that plans can be requested on a machine without one. The keys are those of the
 * library's own JSON; plans depend on the compute capability, the multiprocessors and their shared memory. */
#pragma once

#define GPU_DESCRIPTION(name, sm, processors, shared_bytes, l2_bytes, memory_bytes)                                    \
    "{\"cudnn_version\":91900,\"schema_version\":1,\"maxGridSize\":[2147483647,65535,65535],"                          \
    "\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,\"multiProcessorCount\":" #processors                      \
    ",\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":" #shared_bytes               \
    ",\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,"                          \
    "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":0,"                        \
    "\"supportCoopLaunch\":1,\"totalGlobalMem\":" #memory_bytes ",\"smClockRateKHz\":1980000,"                         \
    "\"memClockRateKHz\":3201000,\"l2CacheSize\":" #l2_bytes ",\"cudaDeviceId\":0,\"deviceVer\":" #sm                  \
    ",\"driverVer\":13000,\"deviceName\":\"" name "\"}"

#define GPU_H200 GPU_DESCRIPTION("NVIDIA H200", 900, 132, 232448, 62914560, 150000000000)
#define GPU_A100 GPU_DESCRIPTION("NVIDIA A100", 800, 108, 166912, 41943040, 85000000000)
#define GPU_B200 GPU_DESCRIPTION("NVIDIA B200", 1000, 148, 232448, 132644864, 190000000000)
