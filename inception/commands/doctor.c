/* Measurements and verdicts of doctor.h. Sources: /proc/cpuinfo, /proc/meminfo, cgroup v2 (cpu.max, memory.max) and v1,
 * getrlimit, statvfs("/dev/shm"), and the backends' descriptions. */
#include "inception/commands/doctor.h"
#include "kernels/base/open.h"
#include "kernels/base/text.h"

#include <jansson.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "kernels/backend.h"
#include "kernels/base/cores.h"
#include "kernels/base/limits.h"
#include "nccl_sync/comm.h"
#include "towers/files/json.h"

enum { FILE_BYTES = 16384 };

static const int64_t MIB = 1 << 20, GIB = 1 << 30;

/* ---- measuring */

/* The value in the first line "key ...: value"; "" if there is none. */
static void find_field(const char *text, const char *key, char *value, size_t bytes)
{
    value[0] = 0;
    for (const char *line = text; line && *line; line = strchr(line, '\n'), line += line != NULL) {
        if (strncmp(line, key, strlen(key))) continue;
        const char *from = line + strcspn(line, ":\n");
        from += strspn(from, ": \t");
        snprintf(value, bytes, "%.*s", (int)strcspn(from, "\n"), from);
        return;
    }
}

static bool has_word(const char *words, const char *word)
{
    size_t bytes = strlen(word);
    for (const char *p = words; (p = strstr(p, word)); p += bytes)
        if ((p == words || p[-1] == ' ') && (p[bytes] == ' ' || !p[bytes])) return true;
    return false;
}

static void measure_cpu(DoctorMachine *machine)
{
    static const char *const wanted[] = {"sse4_2",      "avx",      "avx2", "fma",   "avx512f", "avx512_vnni",
                                         "avx512_bf16", "amx_bf16", "sve",  "asimd", "bf16"};
    char text[FILE_BYTES], flags[FILE_BYTES];
    Text features = text_start(machine->cpu_features, sizeof machine->cpu_features);
    (void)system_text("/proc/cpuinfo", text, sizeof text);
    find_field(text, "model name", machine->cpu_model, sizeof machine->cpu_model);
    find_field(text, "flags", flags, sizeof flags);
    if (!*flags) find_field(text, "Features", flags, sizeof flags);
    for (size_t k = 0; k < sizeof wanted / sizeof wanted[0]; k++)
        if (has_word(flags, wanted[k])) text_add(&features, "%s%s", features.used ? " " : "", wanted[k]);
}

static void measure_memory(DoctorMachine *machine)
{
    struct statvfs shm;
    machine->memory_bytes = 1024 * system_number("/proc/meminfo", "MemTotal:", 0);
    machine->memory_free_bytes = 1024 * system_number("/proc/meminfo", "MemAvailable:", 0);
    machine->shm_bytes = machine->shm_free_bytes = -1;
    if (statvfs("/dev/shm", &shm)) return;
    machine->shm_bytes = (int64_t)(shm.f_blocks * shm.f_frsize);
    machine->shm_free_bytes = (int64_t)(shm.f_bavail * shm.f_frsize);
}

static int64_t soft_limit(__rlimit_resource_t resource)
{
    struct rlimit limit;
    if (getrlimit(resource, &limit) || limit.rlim_cur == RLIM_INFINITY) return -1;
    return (int64_t)limit.rlim_cur;
}

static bool describe_device(const Backend *backend, int ordinal, int threads, char *text, size_t bytes)
{
    Device device = {.backend = backend};
    DeviceConfig config = {DEVICE_USUAL, .ordinal = ordinal, .threads = threads, .allow_reference = true};
    Status st = backend->open(&config, &device);
    if (st != OK) {
        snprintf(text, bytes, "%s", status_message());
        return false;
    }
    backend->describe(&device, text, bytes);
    backend->close(&device);
    return true;
}

static void measure_cuda_backend(DoctorMachine *machine)
{
    char text[512];
    const Backend *backend = NULL;
    int count = 0;
    machine->gpu_expected = backend_gpu_expected();
    (void)system_text("/proc/driver/nvidia/version", text, sizeof text);
    find_field(text, "NVRM version", machine->driver, sizeof machine->driver);
    if (backend_find("cuda", &backend, NULL, 0) != OK || backend_device_count(backend, &count) != OK) {
        snprintf(machine->cuda_backend, sizeof machine->cuda_backend, "%s", status_message());
        return;
    }
    machine->gpu_count = count < DOCTOR_GPU_MAX ? count : DOCTOR_GPU_MAX;
    machine->cuda_works = count > 0;
    for (int k = 0; k < machine->gpu_count; k++) {
        if (!describe_device(backend, k, 1, machine->gpus[k], sizeof machine->gpus[k])) machine->cuda_works = false;
        backend->near_cores(k, &machine->near[k]);
    }
    snprintf(machine->cuda_backend, sizeof machine->cuda_backend, "%d GPU%s", count, count == 1 ? "" : "s");
}

void doctor_measure(DoctorMachine *machine)
{
    *machine = (DoctorMachine){0};
    measure_cpu(machine);
    const char *omp = getenv("OMP_NUM_THREADS");
    machine->cores_online = (int)sysconf(_SC_NPROCESSORS_ONLN);
    machine->omp_threads = omp ? (int)strtol(omp, NULL, 10) : 0;
    measure_memory(machine);
    Limits limits;
    limits_read("", &limits);
    Cores cores;
    cores_read("", &cores);
    machine->cores_bound = cores.bound;
    machine->cgroup_cores = cores.quota;
    if (limits.memory_bytes < machine->memory_bytes) machine->cgroup_memory_bytes = limits.memory_bytes;
    if (limits.memory_left_bytes < machine->memory_free_bytes) machine->memory_free_bytes = limits.memory_left_bytes;
    machine->open_files = soft_limit(RLIMIT_NOFILE);
    machine->locked_bytes = soft_limit(RLIMIT_MEMLOCK);
    machine->stack_bytes = soft_limit(RLIMIT_STACK);
    const Backend *backend = NULL;
    if (backend_find("cpu", &backend, NULL, 0) != OK)
        snprintf(machine->cpu_backend, sizeof machine->cpu_backend, "%s", status_message());
    else
        machine->cpu_works =
            describe_device(backend, 0, cores_allowed(), machine->cpu_backend, sizeof machine->cpu_backend);
    measure_cuda_backend(machine);
    comm_mpi_text(machine->mpi, sizeof machine->mpi);
}

/* ---- verdicts */

__attribute__((format(printf, 3, 4))) static DoctorFinding *add(DoctorReport *report, const char *topic,
                                                                const char *format, ...)
{
    DoctorFinding *finding = &report->findings[report->count++];
    va_list args;
    *finding = (DoctorFinding){.topic = topic};
    va_start(args, format);
    vsnprintf(finding->found, sizeof finding->found, format, args);
    va_end(args);
    return finding;
}

static void advise(DoctorReport *report, DoctorFinding *finding, DoctorVerdict verdict, const char *fix)
{
    finding->verdict = verdict;
    report->hints += verdict == DOCTOR_HINT;
    report->problems += verdict == DOCTOR_PROBLEM;
    snprintf(finding->fix, sizeof finding->fix, "%s", fix);
}

/* "8.0 GiB", "64 MiB", "unlimited" */
static const char *bytes_text(int64_t bytes, char text[32])
{
    if (bytes < 0)
        snprintf(text, 32, "unlimited");
    else if (bytes < GIB)
        snprintf(text, 32, "%" PRId64 " %s", bytes < MIB ? bytes / 1024 : bytes / MIB, bytes < MIB ? "KiB" : "MiB");
    else
        snprintf(text, 32, "%.1f GiB", (double)bytes / (double)GIB);
    return text;
}

static void check_cpu(const DoctorMachine *machine, DoctorReport *report)
{
    const char *features = machine->cpu_features;
    DoctorFinding *cpu = add(report, "processor", "%s: %s", *machine->cpu_model ? machine->cpu_model : "unknown",
                             *features ? features : "unknown vector extensions");
    if (!has_word(features, "avx2") && !has_word(features, "asimd"))
        advise(report, cpu, DOCTOR_HINT,
               "training on a CPU without AVX2 is slow; use a newer processor or --device cuda");
    DoctorFinding *backend = add(report, "cpu backend", "%s", machine->cpu_backend);
    if (!machine->cpu_works)
        advise(report, backend, DOCTOR_PROBLEM, "install libdnnl-dev (apt-get), then configure and build again");
}

static void check_cores(const DoctorMachine *machine, DoctorReport *report)
{
    char quota[64] = "", fix[DOCTOR_LINE_BYTES];
    if (machine->cgroup_cores > 0) snprintf(quota, sizeof quota, ", container quota %.1f", machine->cgroup_cores);
    int usable = cores_within(machine->cores_bound, machine->cgroup_cores);
    DoctorFinding *cores = add(report, "cores", "%d, of which this process may use %d%s", machine->cores_online,
                               machine->cores_bound, quota);
    if (usable < machine->cores_bound) {
        snprintf(fix, sizeof fix,
                 "towers compute with %d thread%s here, as more would be throttled; docker run --cpus=%d gives all",
                 usable, usable == 1 ? "" : "s", machine->cores_bound);
        advise(report, cores, DOCTOR_HINT, fix);
    } else if (machine->omp_threads > usable) {
        snprintf(fix, sizeof fix, "OMP_NUM_THREADS=%d exceeds the number of cores; unset it", machine->omp_threads);
        advise(report, cores, DOCTOR_HINT, fix);
    }
}

static void check_memory(const DoctorMachine *machine, DoctorReport *report)
{
    char all[32], spare[32], limit[32], container[64] = "";
    if (machine->cgroup_memory_bytes)
        snprintf(container, sizeof container, ", container limit %s", bytes_text(machine->cgroup_memory_bytes, limit));
    DoctorFinding *memory = add(report, "memory", "%s, %s free%s", bytes_text(machine->memory_bytes, all),
                                bytes_text(machine->memory_free_bytes, spare), container);
    bool tight = machine->cgroup_memory_bytes && machine->cgroup_memory_bytes < 2 * GIB;
    if (machine->memory_free_bytes < 2 * GIB || tight)
        advise(report, memory, DOCTOR_HINT,
               "less than 2 GiB are free; close other programs, use a smaller --batch-size, or docker run --memory=8g");
}

static void check_shm(const DoctorMachine *machine, DoctorReport *report)
{
    char all[32], spare[32];
    if (machine->shm_bytes < 0) {
        advise(report, add(report, "shared memory", "/dev/shm does not exist"), DOCTOR_PROBLEM,
               "mount -t tmpfs tmpfs /dev/shm");
        return;
    }
    DoctorFinding *shm = add(report, "shared memory", "/dev/shm has %s, %s free", bytes_text(machine->shm_bytes, all),
                             bytes_text(machine->shm_free_bytes, spare));
    if (machine->shm_bytes < 256 * MIB)
        advise(report, shm, DOCTOR_PROBLEM, "docker run --shm-size=1g, or mount -o remount,size=1G /dev/shm");
    else if (machine->shm_free_bytes < 256 * MIB)
        advise(report, shm, DOCTOR_PROBLEM, "delete files that ended programs left in /dev/shm");
}

static void check_limits(const DoctorMachine *machine, DoctorReport *report)
{
    char text[32];
    DoctorFinding *files = machine->open_files < 0 ? add(report, "open files", "unlimited")
                                                   : add(report, "open files", "%" PRId64, machine->open_files);
    if (machine->open_files >= 0 && machine->open_files < 1024)
        advise(report, files, DOCTOR_PROBLEM, "ulimit -n 4096, or docker run --ulimit nofile=4096");
    DoctorFinding *locked = add(report, "locked memory", "%s", bytes_text(machine->locked_bytes, text));
    if (machine->cuda_works && machine->locked_bytes >= 0 && machine->locked_bytes < 64 * MIB)
        advise(report, locked, DOCTOR_HINT,
               "NCCL and pinned memory need more; use ulimit -l unlimited or docker run --ulimit memlock=-1");
    DoctorFinding *stack = add(report, "stack", "%s", bytes_text(machine->stack_bytes, text));
    if (machine->stack_bytes < 0)
        advise(report, stack, DOCTOR_HINT,
               "NCCL needs a limited stack; use ulimit -s 8192 or docker run --ulimit stack=67108864");
    else if (machine->stack_bytes < MIB)
        advise(report, stack, DOCTOR_PROBLEM, "ulimit -s 8192");
}

static void check_near_cores(int gpu, const NearCores *near, DoctorReport *report)
{
    int usable = CPU_COUNT(&near->usable);
    if (near->node < 0) {
        add(report, "gpu cores", "%d: unknown, as is the memory node of %s", gpu, near->address);
        return;
    }
    DoctorFinding *cores = add(report, "gpu cores", "%d: %s on memory node %d, of which this process may use %d", gpu,
                               near->text, near->node, usable);
    if (!usable)
        advise(report, cores, DOCTOR_HINT,
               "its uploads come from another socket; allow these cores with docker run --cpuset-cpus or taskset -c");
}

/* What --device auto is here, in so many words: the one line that whoever bought a GPU looks for. */
static void check_device(const DoctorMachine *machine, DoctorReport *report)
{
    if (machine->cuda_works) {
        add(report, "training", "on %d GPU%s, if --device is not given", machine->gpu_count,
            machine->gpu_count == 1 ? "" : "s");
        return;
    }
    DoctorFinding *device = add(report, "training", "on the CPU: there is no GPU that this build can use");
    if (machine->gpu_expected && !*machine->driver) /* with one, the line of the backend has the problem */
        advise(report, device, DOCTOR_HINT,
               "install NVIDIA's driver, or see nvidia-smi and CUDA_VISIBLE_DEVICES; --device cuda ends with an error "
               "instead of training on the CPU");
}

void doctor_check(const DoctorMachine *machine, DoctorReport *report)
{
    *report = (DoctorReport){0};
    check_cpu(machine, report);
    check_cores(machine, report);
    check_memory(machine, report);
    check_shm(machine, report);
    check_limits(machine, report);
    DoctorFinding *cuda = add(report, "cuda backend", "%s", machine->cuda_backend);
    for (int k = 0; k < machine->gpu_count; k++) {
        add(report, "gpu", "%d: %s", k, machine->gpus[k]);
        check_near_cores(k, &machine->near[k], report);
    }
    add(report, "mpi", "%s", *machine->mpi ? machine->mpi : "none in this build: towers on several hosts need GPUs");
    if (*machine->driver) add(report, "nvidia driver", "%s", machine->driver);
    check_device(machine, report);
    if (machine->cuda_works || !*machine->driver) return;
    advise(report, cuda, DOCTOR_PROBLEM,
           "a driver is installed, but towers cannot use it; build with the preset cuda, and in a container use docker "
           "run --gpus all");
}

/* ---- output */

static const char *const verdict_names[] = {[DOCTOR_FINE] = "ok", [DOCTOR_HINT] = "hint", [DOCTOR_PROBLEM] = "problem"};

void doctor_print(const DoctorReport *report, bool color, FILE *to)
{
    static const char *const colors[] = {
        [DOCTOR_FINE] = "\033[32m", [DOCTOR_HINT] = "\033[33m", [DOCTOR_PROBLEM] = "\033[31m"};
    for (int k = 0; k < report->count; k++) {
        const DoctorFinding *finding = &report->findings[k];
        text_printf(to, "%s%-8s%s %-14s %s\n", color ? colors[finding->verdict] : "", verdict_names[finding->verdict],
                    color ? "\033[0m" : "", finding->topic, finding->found);
        if (*finding->fix) text_printf(to, "%-23s fix: %s\n", "", finding->fix);
    }
    text_printf(to, "\n%d problem%s, %d hint%s\n", report->problems, report->problems == 1 ? "" : "s", report->hints,
                report->hints == 1 ? "" : "s");
}

Status doctor_print_json(const DoctorReport *report, FILE *to)
{
    json_t *findings = json_array();
    for (int k = 0; k < report->count; k++) {
        const DoctorFinding *finding = &report->findings[k];
        json_array_append_new(findings, json_pack("{s:s, s:s, s:o, s:s}", "topic", finding->topic, "verdict",
                                                  verdict_names[finding->verdict], "found", json_text(finding->found),
                                                  "fix", finding->fix));
    }
    bool all = json_array_size(findings) == (size_t)report->count;
    json_t *root =
        json_pack("{s:i, s:i, s:o}", "problems", report->problems, "hints", report->hints, "findings", findings);
    if (!all) json_decref(root);
    return json_emit(all ? root : NULL, JSON_COMPACT, to);
}
