/* GPUs as described by cuDNN, so that plans can be requested on a machine without one. The keys are those of the
 * library's own JSON; plans depend on the compute capability, the multiprocessors and their shared memory. cuDNN 9.28 wants
 * three more than 9.19 (memoryBusWidth and the two after it), which older ones pass over. */
#pragma once

#define GPU_DESCRIPTION(name, sm, processors, blocks, threads, shared_bytes, l2_bytes, memory_bytes, bus_bits)         \
    "{\"cudnn_version\":91900,\"schema_version\":1,\"maxGridSize\":[2147483647,65535,65535],"                          \
    "\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,\"multiProcessorCount\":" #processors                      \
    ",\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":" #shared_bytes               \
    ",\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":" #blocks                     \
    ",\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":" #threads ",\"pciDeviceId\":0,\"isTccDriver\":0,"               \
    "\"supportCoopLaunch\":1,\"totalGlobalMem\":" #memory_bytes ",\"smClockRateKHz\":1980000,"                         \
    "\"memClockRateKHz\":3201000,\"memoryBusWidth\":" #bus_bits                                                        \
    ",\"oversizedSharedMemoryPerBlock\":0,\"smCountOrigin\":0,\"l2CacheSize\":" #l2_bytes                              \
    ",\"cudaDeviceId\":0,\"deviceVer\":" #sm ",\"driverVer\":13000,\"deviceName\":\"" name "\"}"

#define GPU_A100 GPU_DESCRIPTION("NVIDIA A100", 800, 108, 32, 2048, 166912, 41943040, 85000000000, 5120)
#define GPU_H100 GPU_DESCRIPTION("NVIDIA H100", 900, 132, 32, 2048, 232448, 52428800, 85000000000, 5120)
#define GPU_H200 GPU_DESCRIPTION("NVIDIA H200", 900, 132, 32, 2048, 232448, 62914560, 150000000000, 6144)
#define GPU_B200 GPU_DESCRIPTION("NVIDIA B200", 1000, 148, 32, 2048, 232448, 132644864, 190000000000, 8192)
#define GPU_L40S GPU_DESCRIPTION("NVIDIA L40S", 890, 142, 24, 1536, 101376, 100663296, 48000000000, 384)
