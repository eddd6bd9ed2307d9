/* Watching GPUs by NVML (nvml.h): their telemetry, errors that end a run, and the driver's messages about them (XIDs).
 *
 * A function that a driver lacks, or that a GPU does not support, leaves its number unknown. A GPU that is lost answers every call
 * with NVML_LOST. */
#include "kernels/cuda/libraries/nvml.h"

#include "kernels/base/clock.h"
#include "kernels/base/text.h"

#include <dlfcn.h>
#include <limits.h>

static const char LIBRARY[] = "libnvidia-ml.so.1";

typedef struct Gpu {
    NvmlDevice device, part;                /* the GPU, and what of it is used: a slice or all of it */
    unsigned instance;                      /* of the slice, or NVML_NO_INSTANCE */
    char name[48];                          /* "GPU-6fe2c1ab-...", "MIG-...", as nvidia-smi -L prints it */
    unsigned broken;                        /* NVML_LOST, NVML_NEEDS_RESET: an answer of any call; else 0 */
    double joules;                          /* since the watch began */
    int64_t read_ns;                        /* the last reading */
    unsigned long long energy, uncorrected; /* the counters when the watch began */
    bool energy_begun, ecc_begun;
} Gpu;

typedef struct Watch {
    void *library;
    const char *(*ErrorString)(unsigned code);
#define NVML(needed, name, parameters) unsigned(*name) parameters;
#include "kernels/cuda/libraries/nvml.def"
    bool begun;
    NvmlEvents events; /* NULL: the driver reports none */
    int count;
    Gpu gpu[];
} Watch;

/* ---- the library */

static Status library_open(Watch *w)
{
    w->library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!w->library)
        return FAIL(ERR_UNSUPPORTED, "%s (in a container: NVIDIA_DRIVER_CAPABILITIES=compute,utility)", dlerror());
    w->ErrorString = (const char *(*)(unsigned))dlsym(w->library, "nvmlErrorString");
    if (!w->ErrorString) return FAIL(ERR_UNSUPPORTED, "%s has no nvmlErrorString", LIBRARY);
#define NVML(needed, name, parameters)                                                                                 \
    w->name = (unsigned(*) parameters)dlsym(w->library, "nvml" #name);                                                 \
    if (needed && !w->name) return FAIL(ERR_UNSUPPORTED, "%s has no nvml" #name ": update the driver", LIBRARY);
#include "kernels/cuda/libraries/nvml.def"
    return OK;
}

static Status nvml_check(const Watch *w, unsigned code, const char *call, const char *of)
{
    return code == NVML_DONE ? OK : FAIL(ERR_UNSUPPORTED, "%s%s: %s (NVML %u)", call, of, w->ErrorString(code), code);
}

/* Only the first of two processes on one GPU registers it. */
static bool is_registered(const Watch *w, int number)
{
    for (int g = 0; g < number; g++)
        if (w->gpu[g].device == w->gpu[number].device) return true;
    return false;
}

static void events_open(Watch *w)
{
    if (!w->EventSetCreate || !w->EventSetFree || !w->DeviceRegisterEvents || !w->EventSetWait_v2) return;
    if (w->EventSetCreate(&w->events) != NVML_DONE) {
        w->events = NULL;
        return;
    }
    bool any = false;
    for (int g = 0; g < w->count; g++)
        any |=
            !is_registered(w, g) && w->DeviceRegisterEvents(w->gpu[g].device, NVML_EVENT_XID, w->events) == NVML_DONE;
    if (any) return;
    (void)w->EventSetFree(w->events);
    w->events = NULL;
}

static void nvml_close(void *watch)
{
    Watch *w = watch;
    if (!w) return;
    if (w->events) (void)w->EventSetFree(w->events);
    if (w->begun) (void)w->Shutdown();
    if (w->library) dlclose(w->library);
    free(w);
}

static void name_write(const char *kind, const DeviceId *id, char *name, size_t bytes)
{
    Text text = text_start(name, bytes);
    text_add(&text, "%s", kind);
    for (int i = 0; i < 16; i++)
        text_add(&text, "%s%02x", i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", id->uuid[i]);
}

static Status gpu_find(const Watch *w, const DeviceId *id, Gpu *gpu)
{
    name_write("GPU", id, gpu->name, sizeof gpu->name);
    gpu->instance = NVML_NO_INSTANCE;
    unsigned code = w->DeviceGetHandleByUUID(gpu->name, &gpu->device);
    gpu->part = gpu->device;
    if (code != NVML_NOT_FOUND || !w->DeviceGetDeviceHandleFromMigDeviceHandle || !w->DeviceGetGpuInstanceId)
        return nvml_check(w, code, "NVML's search for ", gpu->name);
    name_write("MIG", id, gpu->name, sizeof gpu->name);
    TRY(nvml_check(w, w->DeviceGetHandleByUUID(gpu->name, &gpu->part), "NVML's search for ", gpu->name));
    TRY(nvml_check(w, w->DeviceGetGpuInstanceId(gpu->part, &gpu->instance), "NVML's instance of ", gpu->name));
    return nvml_check(w, w->DeviceGetDeviceHandleFromMigDeviceHandle(gpu->part, &gpu->device),
                      "NVML's search for the GPU of ", gpu->name);
}

static Status nvml_open(const DeviceId *id, int count, void **watch)
{
    Status st = OK;
    Watch *w = calloc(1, sizeof *w + (size_t)count * sizeof *w->gpu);
    if (!w) return FAIL(ERR_MEMORY, "no memory to watch %d GPUs", count);
    w->count = count;
    TRY_OUT(library_open(w));
    TRY_OUT(nvml_check(w, w->Init_v2(), "nvmlInit", ""));
    w->begun = true;
    for (int g = 0; g < count; g++) TRY_OUT(gpu_find(w, &id[g], &w->gpu[g]));
    events_open(w);
    *watch = w;
    w = NULL;
out:
    nvml_close(w);
    return st;
}

/* ---- readings */

/* Whether a call has given its number. */
static bool answered(Gpu *gpu, unsigned code)
{
    if (code == NVML_LOST || code == NVML_NEEDS_RESET) gpu->broken = code;
    return code == NVML_DONE;
}

#define ASK_OF(of, function, ...) (w->function && answered(gpu, w->function(gpu->of, __VA_ARGS__)))
#define ASK(function, ...) ASK_OF(device, function, __VA_ARGS__)

/* Without a counter of energy, that of the power since the last reading. */
static void energy_read(Watch *w, Gpu *gpu, DeviceTelemetry *v)
{
    unsigned number;
    unsigned long long big;
    int64_t now = clock_ns();
    if (ASK_OF(part, DeviceGetPowerUsage, &number)) v->gpu_watts = number * 1e-3;
    if (ASK_OF(part, DeviceGetTotalEnergyConsumption, &big)) {
        if (!gpu->energy_begun) gpu->energy = big;
        gpu->energy_begun = true;
        gpu->joules = (double)(big - gpu->energy) * 1e-3;
    } else if (!isnan(v->gpu_watts) && gpu->read_ns) {
        gpu->joules += v->gpu_watts * (double)(now - gpu->read_ns) * 1e-9;
    }
    gpu->read_ns = now;
    if (gpu->energy_begun || !isnan(v->gpu_watts)) v->gpu_joules = gpu->joules;
}

static void speed_read(Watch *w, Gpu *gpu, DeviceTelemetry *v)
{
    unsigned number;
    unsigned long long big;
    NvmlTemperature heat = {.version = sizeof heat | 1 << 24, .sensor = NVML_SENSOR_GPU};
    if (ASK(DeviceGetTemperatureV, &heat))
        v->gpu_celsius = heat.celsius;
    else if (ASK(DeviceGetTemperature, NVML_SENSOR_GPU, &number))
        v->gpu_celsius = number;
    if (ASK(DeviceGetClockInfo, NVML_CLOCK_OF_SM, &number)) v->gpu_mhz = number;
    if (ASK(DeviceGetMaxClockInfo, NVML_CLOCK_OF_SM, &number)) v->gpu_mhz_most = number;
    if (ASK(DeviceGetClockInfo, NVML_CLOCK_OF_MEMORY, &number)) v->gpu_memory_mhz = number;
    if (ASK(DeviceGetCurrentClocksEventReasons, &big) || ASK(DeviceGetCurrentClocksThrottleReasons, &big))
        v->gpu_slowed = (double)(big & TELEMETRY_SLOWED);
}

static void memory_read(Watch *w, Gpu *gpu, DeviceTelemetry *v)
{
    NvmlMemory memory;
    NvmlUtilization rates;
    if (ASK_OF(part, DeviceGetMemoryInfo, &memory)) v->gpu_memory_bytes = (double)memory.used;
    if (!ASK_OF(part, DeviceGetUtilizationRates, &rates)) return;
    v->gpu_busy = rates.gpu;
    v->gpu_memory_busy = rates.memory;
}

/* The sum of those counters that the GPU has. */
static void links_read(Watch *w, Gpu *gpu, DeviceTelemetry *v)
{
    NvmlField field[] = {{.id = NVML_CRC_FLIT}, {.id = NVML_CRC_DATA}, {.id = NVML_REPLAY}, {.id = NVML_RECOVERY}};
    enum { FIELDS = sizeof field / sizeof *field };
    double sum = 0;
    if (!ASK(DeviceGetFieldValues, FIELDS, field)) return;
    for (int i = 0; i < FIELDS; i++) {
        bool big = field[i].type == NVML_VALUE_UNSIGNED_LONG || field[i].type == NVML_VALUE_UNSIGNED_LONG_LONG;
        if (!answered(gpu, field[i].result) || (!big && field[i].type != NVML_VALUE_UNSIGNED)) continue;
        sum += big ? (double)field[i].value.big : field[i].value.number;
        v->gpu_nvlink_errors = sum;
    }
}

/* ECC errors of other slices are none of this run's; those of its own slice are reported by an XID, too. */
static void errors_read(Watch *w, Gpu *gpu, DeviceTelemetry *v)
{
    unsigned number;
    unsigned long long big;
    if (ASK_OF(part, DeviceGetTotalEccErrors, NVML_CORRECTED, NVML_SINCE_DRIVER, &big))
        v->gpu_ecc_corrected = (double)big;
    if (ASK_OF(part, DeviceGetTotalEccErrors, NVML_UNCORRECTED, NVML_SINCE_DRIVER, &big)) {
        if (!gpu->ecc_begun) gpu->uncorrected = big;
        gpu->ecc_begun = true;
        v->gpu_ecc_uncorrected = (double)big;
    }
    if (ASK(DeviceGetPcieReplayCounter, &number)) v->gpu_pcie_replays = number;
    links_read(w, gpu, v);
}

static Status nvml_read(void *watch, int device, DeviceTelemetry *telemetry)
{
    Watch *w = watch;
    Gpu *gpu = &w->gpu[device];
    DeviceTelemetry v = telemetry_unknown();
    energy_read(w, gpu, &v);
    speed_read(w, gpu, &v);
    memory_read(w, gpu, &v);
    errors_read(w, gpu, &v);
    *telemetry = v;
    if (gpu->broken)
        return FAIL(ERR_DEVICE, "%s: %s (NVML %u); dmesg has the cause", gpu->name, w->ErrorString(gpu->broken),
                    gpu->broken);
    if (v.gpu_ecc_uncorrected > (double)gpu->uncorrected)
        return FAIL(
            ERR_DEVICE,
            "%s: its memory has lost data: %.0f ECC errors that could not be corrected since the run began; reset "
            "the GPU, and replace it if they return",
            gpu->name, v.gpu_ecc_uncorrected - (double)gpu->uncorrected);
    return OK;
}

/* ---- events */

/* XIDs of NVIDIA's catalog (docs.nvidia.com/deploy/xid-errors). Those that `continues` are an error of some program on the GPU,
 * which ends that program (NVIDIA's device plugin for Kubernetes passes over them, too), or a note for the administrator;
 * any other ends the run. */
static const struct {
    unsigned number;
    bool continues;
    const char *text;
} xids[] = {{13, true, "a program's kernel failed"},
            {31, true, "a program's kernel used memory that is not its own"},
            {43, true, "a program's channel was stopped"},
            {45, true, "a program's channel was removed"},
            {48, false, "an ECC error that could not be corrected"},
            {62, false, "its microcontroller has stopped"},
            {63, true, "a damaged row of memory will be replaced at the next reset"},
            {64, false, "a damaged row of memory cannot be replaced"},
            {68, true, "a program's video decoder failed"},
            {74, false, "an NVLink has failed"},
            {79, false, "it has fallen off the bus"},
            {92, true, "many ECC errors, all corrected"},
            {94, false, "an ECC error that could not be corrected, contained in one program"},
            {95, false, "an ECC error that could not be corrected or contained"},
            {109, true, "a program's context switch took too long"},
            {119, false, "its system processor does not answer"},
            {120, false, "its system processor has failed"}};

/* Others that the catalog says to ignore, and those that concern only power or another XID (154). A GB200 reports corrected
 * errors of its link to the CPU (121) again and again. */
static const unsigned char harmless[] = {37,  38,  44,  66,  67,  93,  106, 107, 121, 137,
                                         141, 154, 157, 160, 161, 162, 163, 164, 165};

static Status xid_report(const Gpu *gpu, uint64_t number, char *note, size_t bytes)
{
    const char *text = "see NVIDIA's catalog of XIDs";
    bool continues = number <= UCHAR_MAX && memchr(harmless, (int)number, sizeof harmless);
    for (size_t i = 0; i < sizeof xids / sizeof *xids; i++)
        if (xids[i].number == number) text = xids[i].text, continues = xids[i].continues;
    if (!continues) return FAIL(ERR_DEVICE, "%s reports XID %" PRIu64 ": %s; dmesg has more", gpu->name, number, text);
    snprintf(note, bytes, "%s reports XID %" PRIu64 ": %s", gpu->name, number, text);
    return OK;
}

static Status nvml_wait(void *watch, int ms, int *device, char *note, size_t bytes)
{
    Watch *w = watch;
    NvmlEvent event = {0};
    unsigned code = w->events ? w->EventSetWait_v2(w->events, &event, (unsigned)ms) : NVML_TIMED_OUT;
    *note = 0;
    if (!w->events) nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000l}, NULL);
    if (w->events && code != NVML_DONE && code != NVML_TIMED_OUT) { /* readings show what there is */
        (void)w->EventSetFree(w->events);
        w->events = NULL;
    }
    if (code != NVML_DONE || !(event.type & NVML_EVENT_XID)) return OK;
    for (int g = 0; g < w->count; g++) {
        bool concerns = event.gpu_instance == NVML_NO_INSTANCE || event.gpu_instance == w->gpu[g].instance;
        if (w->gpu[g].device != event.device || !concerns) continue;
        *device = g;
        return xid_report(&w->gpu[g], event.data, note, bytes);
    }
    return OK;
}

const TelemetryOps cuda_telemetry = {.open = nvml_open, .wait = nvml_wait, .read = nvml_read, .close = nvml_close};
