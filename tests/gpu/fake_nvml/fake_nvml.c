/* A stand-in for libnvidia-ml.so.1, after the descriptions in nvml.h of CUDA 13.4, for the fake GPUs of fake_cuda. It is stricter
 * than the library: what that leaves undefined, or refuses with a code, ends the program with the reason.
 *
 * FAKE_NVML is a list of words, read by nvmlInit: `permission` and `mute` (waiting for events fails), and for device D
 * slow:D (thermal slowdown), bare:D (an older GPU: no energy, ECC, links, reasons and events), mig:D (a GPU in MIG mode, of which the
 * program has a slice), and from the third reading on ecc:D, lost:D, hang:D (calls do not return), xid:D=NUMBER, other:D=NUMBER (an
 * XID of another slice). FAKE_NVML_LOG: a file that receives the process of each nvmlInit, and "later" at each device's third
 * reading. FAKE_NVML_BEHIND: a file without which nothing is later. FAKE_NVML_AGE 1 lacks what CUDA 11.8's library lacks, 2 a function that cannot be missing. */
#include "kernels/cuda/libraries/nvml.h"

#include "kernels/base/clock.h"

#include <unistd.h>

#define NVML(needed, name, parameters) unsigned nvml##name parameters;
#include "kernels/cuda/libraries/nvml.def"
const char *nvmlErrorString(unsigned code);

enum { DEVICES = 8, LATER = 3, NOT_SUPPORTED = 3, NO_PERMISSION = 4, OTHER_VERSION = 25, UNKNOWN = 999 };
enum { EVENTS_KNOWN = 0xf69f, BASE_ENERGY = 2000000000, OTHER_SLICE = 9 };

struct nvmlDevice_st {
    int number, readings;
    bool slow, bare, loses, ecc, hangs;
    int xid; /* not delivered yet; 0: none */
    bool registered, mig, other;
    NvmlDevice of; /* a slice: of this GPU */
};

struct nvmlEventSet_st {
    bool live;
};

static struct nvmlDevice_st devices[DEVICES], slices[DEVICES];
static struct nvmlEventSet_st set;
static int begun, waits;
static pid_t owner;
static bool mute, hangs;
static int64_t begun_ns;

#define CHECK(holds)                                                                                                   \
    do {                                                                                                               \
        if (holds) break;                                                                                              \
        fprintf(stderr, "fake NVML: %s: not so: %s\n", __func__, #holds);                                              \
        abort();                                                                                                       \
    } while (0)

static void entered(const char *of)
{
    if (begun > 0 && owner == getpid()) return;
    fprintf(stderr, "fake NVML: %s: %s\n", of, begun > 0 ? "NVML was begun in another process" : "NVML was not begun");
    abort();
}

static bool is_slice(NvmlDevice device)
{
    return device >= slices && device < slices + DEVICES;
}

static bool is_later(NvmlDevice device)
{
    const char *behind = getenv("FAKE_NVML_BEHIND");
    return device->readings >= LATER && (!behind || access(behind, F_OK) == 0);
}

/* The code for any call about a device. */
static unsigned device_enter(const char *of, NvmlDevice device)
{
    entered(of);
    if (is_slice(device)) return device_enter(of, device->of) == NVML_LOST ? NVML_LOST : NOT_SUPPORTED;
    if (device < devices || device >= devices + DEVICES) {
        fprintf(stderr, "fake NVML: %s: not a device: %p\n", of, (void *)device);
        abort();
    }
    while (device->hangs && is_later(device)) hangs = true, pause();
    return device->loses && is_later(device) ? NVML_LOST : NVML_DONE;
}

#define ENTER(device)                                                                                                  \
    do {                                                                                                               \
        unsigned entered_ = device_enter(__func__, device);                                                            \
        if (entered_) return entered_;                                                                                 \
    } while (0)

/* ---- the library */

const char *nvmlErrorString(unsigned code)
{
    return code == NO_PERMISSION    ? "Insufficient Permissions"
           : code == NVML_NOT_FOUND ? "Not Found"
           : code == NVML_LOST      ? "GPU is lost"
                                    : "Unknown Error";
}

static void word_take(const char *word)
{
    char name[16];
    int device = 0, number = 0, fields = sscanf(word, "%15[a-z]:%d=%d", name, &device, &number);
    CHECK(fields >= 1 && device >= 0 && device < DEVICES);
    struct nvmlDevice_st *d = &devices[device];
    mute |= !strcmp(name, "mute");
    d->slow |= !strcmp(name, "slow");
    d->bare |= !strcmp(name, "bare");
    d->ecc |= !strcmp(name, "ecc");
    d->loses |= !strcmp(name, "lost");
    d->hangs |= !strcmp(name, "hang");
    d->mig |= !strcmp(name, "mig");
    d->other |= !strcmp(name, "other");
    if (number) d->xid = number;
}

static void log_line(const char *format, int number)
{
    const char *log = getenv("FAKE_NVML_LOG");
    FILE *to = log ? fopen(log, "a") : NULL;
    if (!to) return;
    fprintf(to, format, number);
    fclose(to);
}

unsigned nvmlInit_v2(void)
{
    char words[256], *rest = words;
    const char *text = getenv("FAKE_NVML");
    snprintf(words, sizeof words, "%s", text ? text : "");
    if (strstr(words, "permission")) return NO_PERMISSION;
    if (begun++) return NVML_DONE;
    memset(devices, 0, sizeof devices);
    for (int i = 0; i < DEVICES; i++) devices[i].number = i, slices[i].of = &devices[i];
    for (char *word; (word = strsep(&rest, " "));)
        if (*word) word_take(word);
    owner = getpid();
    begun_ns = clock_ns();
    log_line("%d\n", (int)owner);
    return NVML_DONE;
}

unsigned nvmlShutdown(void)
{
    entered(__func__);
    CHECK(!set.live);
    begun--;
    return NVML_DONE;
}

__attribute__((destructor)) static void unloaded(void)
{
    CHECK(begun == 0 || owner != getpid() || hangs);
}

#if FAKE_NVML_AGE < 2
/* As fake_runtime.c. */
static uint64_t device_id(int number)
{
    const char *host = getenv("NCCL_HOSTID");
    uint64_t hash = 14695981039346656037u;
    for (const char *c = host ? host : ""; *c; c++) hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    return (hash ^ (uint64_t)number) * 1099511628211u;
}

unsigned nvmlDeviceGetHandleByUUID(const char *uuid, NvmlDevice *device)
{
    entered(__func__);
    CHECK(uuid && device);
    for (int i = 0; i < DEVICES; i++) {
        uint64_t id = device_id(i);
        unsigned char b[8];
        char name[48];
        memcpy(b, &id, sizeof b);
        snprintf(name, sizeof name, "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-0000-000000000000",
                 devices[i].mig ? "MIG" : "GPU", b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]);
        if (strcmp(name, uuid) != 0) continue;
        *device = devices[i].mig ? &slices[i] : &devices[i];
        return NVML_DONE;
    }
    return NVML_NOT_FOUND;
}

unsigned nvmlDeviceGetDeviceHandleFromMigDeviceHandle(NvmlDevice slice, NvmlDevice *device)
{
    entered(__func__);
    CHECK(is_slice(slice) && device);
    return *device = slice->of, NVML_DONE;
}

unsigned nvmlDeviceGetGpuInstanceId(NvmlDevice slice, unsigned *instance)
{
    entered(__func__);
    CHECK(is_slice(slice) && instance);
    return *instance = (unsigned)slice->of->number, NVML_DONE;
}
#endif

/* ---- readings */

unsigned nvmlDeviceGetPowerUsage(NvmlDevice device, unsigned *milliwatts)
{
    int *readings = &(is_slice(device) ? device->of : device)->readings;
    if (begun > 0 && ++*readings == LATER) log_line("later\n", 0); /* the first question of each reading */
    ENTER(device);
    CHECK(milliwatts);
    *milliwatts = 300500 + 1000 * (unsigned)device->number;
    return NVML_DONE;
}

unsigned nvmlDeviceGetTotalEnergyConsumption(NvmlDevice device, unsigned long long *millijoules)
{
    ENTER(device);
    CHECK(millijoules);
    if (device->bare) return NOT_SUPPORTED;
    *millijoules = BASE_ENERGY + (unsigned long long)((double)(clock_ns() - begun_ns) * 200e-6); /* 200 W */
    return NVML_DONE;
}

#if FAKE_NVML_AGE == 0
unsigned nvmlDeviceGetTemperatureV(NvmlDevice device, NvmlTemperature *temperature)
{
    ENTER(device);
    CHECK(temperature && temperature->sensor == NVML_SENSOR_GPU);
    if (temperature->version != (12 | 1u << 24)) return OTHER_VERSION;
    temperature->celsius = device->slow ? 88 : 60;
    return NVML_DONE;
}

unsigned nvmlDeviceGetCurrentClocksEventReasons(NvmlDevice device, unsigned long long *bits)
{
    return nvmlDeviceGetCurrentClocksThrottleReasons(device, bits);
}
#endif

unsigned nvmlDeviceGetTemperature(NvmlDevice device, unsigned sensor, unsigned *celsius)
{
    ENTER(device);
    CHECK(celsius && sensor == NVML_SENSOR_GPU);
    *celsius = device->slow ? 88 : 61;
    return NVML_DONE;
}

unsigned nvmlDeviceGetCurrentClocksThrottleReasons(NvmlDevice device, unsigned long long *bits)
{
    ENTER(device);
    CHECK(bits);
    if (device->bare) return NOT_SUPPORTED;
    *bits = device->slow ? 0x20 | 0x2 : 0x1; /* bits that are no slowdown besides */
    return NVML_DONE;
}

unsigned nvmlDeviceGetClockInfo(NvmlDevice device, unsigned clock, unsigned *mhz)
{
    ENTER(device);
    CHECK(mhz && clock <= 3);
    *mhz = clock == NVML_CLOCK_OF_MEMORY ? 2619 : device->slow ? 1215 : 1980;
    return NVML_DONE;
}

unsigned nvmlDeviceGetMaxClockInfo(NvmlDevice device, unsigned clock, unsigned *mhz)
{
    ENTER(device);
    CHECK(mhz && clock <= 3);
    *mhz = 1980;
    return NVML_DONE;
}

unsigned nvmlDeviceGetMemoryInfo(NvmlDevice device, NvmlMemory *memory)
{
    bool slice = is_slice(device);
    ENTER(slice ? device->of : device);
    CHECK(memory);
    *memory = (NvmlMemory){.total = (slice ? 10ull : 80ull) << 30, .used = (slice ? 512ull : 1024ull) << 20};
    memory->free = memory->total - memory->used;
    return NVML_DONE;
}

unsigned nvmlDeviceGetUtilizationRates(NvmlDevice device, NvmlUtilization *rates)
{
    ENTER(device);
    CHECK(rates);
    if (device->mig) return NOT_SUPPORTED;
    *rates = (NvmlUtilization){.gpu = 97, .memory = 41};
    return NVML_DONE;
}

unsigned nvmlDeviceGetTotalEccErrors(NvmlDevice device, unsigned type, unsigned counter, unsigned long long *errors)
{
    ENTER(device);
    CHECK(errors && type <= NVML_UNCORRECTED && counter <= 1);
    if (device->bare) return NOT_SUPPORTED;
    bool now = device->ecc && is_later(device);
    *errors = type == NVML_CORRECTED ? 5 : counter == NVML_SINCE_DRIVER ? 2 + now : 9;
    return NVML_DONE;
}

unsigned nvmlDeviceGetPcieReplayCounter(NvmlDevice device, unsigned *replays)
{
    ENTER(device);
    CHECK(replays);
    *replays = 6;
    return NVML_DONE;
}

/* A counter of each type, and one that the GPU lacks. Values that are not set are garbage. */
unsigned nvmlDeviceGetFieldValues(NvmlDevice device, int count, NvmlField *fields)
{
    ENTER(device);
    CHECK(count > 0 && fields);
    for (int i = 0; i < count; i++) {
        NvmlField *f = &fields[i];
        memset(&f->value, 0xa5, sizeof f->value);
        f->type = 0;
        f->result = device->bare || f->id == NVML_RECOVERY ? NOT_SUPPORTED : NVML_DONE;
        if (f->result) continue;
        CHECK(f->id == NVML_CRC_FLIT || f->id == NVML_CRC_DATA || f->id == NVML_REPLAY);
        f->type = f->id == NVML_CRC_FLIT ? NVML_VALUE_UNSIGNED_LONG_LONG
                  : f->id == NVML_REPLAY ? NVML_VALUE_UNSIGNED_LONG
                                         : NVML_VALUE_UNSIGNED;
        if (f->type == NVML_VALUE_UNSIGNED)
            f->value.number = 3;
        else
            f->value.big = 2;
    }
    return NVML_DONE;
}

/* ---- events */

unsigned nvmlEventSetCreate(NvmlEvents *events)
{
    entered(__func__);
    CHECK(events && !set.live);
    set.live = true;
    *events = &set;
    return NVML_DONE;
}

unsigned nvmlEventSetFree(NvmlEvents events)
{
    entered(__func__);
    CHECK(events == &set && set.live);
    set.live = false;
    return NVML_DONE;
}

unsigned nvmlDeviceRegisterEvents(NvmlDevice device, unsigned long long types, NvmlEvents events)
{
    ENTER(device);
    CHECK(events == &set && set.live && types && !(types & ~(unsigned long long)EVENTS_KNOWN) && !device->registered);
    if (device->bare) return NOT_SUPPORTED;
    return device->registered = true, NVML_DONE;
}

unsigned nvmlEventSetWait_v2(NvmlEvents events, NvmlEvent *event, unsigned ms)
{
    entered(__func__);
    CHECK(events == &set && set.live && event);
    if (mute) return UNKNOWN;
    for (int i = 0; i < DEVICES; i++) {
        struct nvmlDevice_st *d = &devices[i];
        if (!d->xid || !d->registered || !is_later(d)) continue;
        unsigned instance = d->other ? OTHER_SLICE : d->mig ? (unsigned)i : NVML_NO_INSTANCE;
        *event = (NvmlEvent){d, NVML_EVENT_XID, (unsigned long long)d->xid, instance, instance};
        d->xid = 0;
        return NVML_DONE;
    }
    usleep(++waits % 4 ? 1000 * ms : 0); /* an interrupt ends some waits */
    return NVML_TIMED_OUT;
}
