/* Counts, identifies and locates the CUDA devices without initializing CUDA in this process.
 *
 * CUDA does not work in processes forked by one that has initialized it. So a short-lived child process looks at the
 * devices at the first call; the result is kept, and later children inherit it. A program that has used CUDA before it opens
 * libtowers looks itself: its child is one of those in which CUDA does not work. */
#include "kernels/cuda/cuda.h"

#include "kernels/base/clock.h"
#include "kernels/base/timeouts.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct Answer {
    Status status;
    bool begun; /* CUDA was initialized before the fork */
    int count;
    DeviceId id[BACKEND_DEVICES_MAX];
    char address[BACKEND_DEVICES_MAX][NEAR_ADDRESS_BYTES];
    DeviceLinks links;
    char message[400];
} Answer;

/* Atomic operations between two GPUs are native over NVLink, not over PCI Express. */
static bool has_nvlink(int devices)
{
    for (int a = 0; a < devices; a++) {
        for (int b = 0; b < devices; b++) {
            int native = 0;
            if (a != b &&
                cudaDeviceGetP2PAttribute(&native, cudaDevP2PAttrNativeAtomicSupported, a, b) == cudaSuccess && native)
                return true;
        }
    }
    return devices == 1; /* the others are hidden from this program */
}

static Status devices_find(Answer *answer)
{
    int driver = 0, wanted = 0, found = 0;
    if (cudaRuntimeGetVersion(&wanted) != cudaSuccess) wanted = CUDART_VERSION;
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
        return FAIL(ERR_DEVICE,
                    "no NVIDIA driver was found (libcuda.so.1): install one for CUDA %d.%d or newer; in a container, "
                    "docker run --gpus all",
                    wanted / 1000, wanted % 1000 / 10);
    cudaError_t error = cudaGetDeviceCount(&found); /* does not write its result if it fails */
    if (error == cudaErrorNoDevice) return OK;
    answer->begun = error == cudaErrorInitializationError;
    if (error != cudaSuccess)
        return FAIL(
            ERR_DEVICE,
            "CUDA cannot start: %s (%s); the driver is for CUDA %d.%d, this build for %d.%d: see nvidia-smi and "
            "dmesg, leave out a broken GPU (CUDA_VISIBLE_DEVICES), or use --device cpu",
            cudaGetErrorString(error), cudaGetErrorName(error), driver / 1000, driver % 1000 / 10, wanted / 1000,
            wanted % 1000 / 10);
    answer->links.nvlink = answer->links.multicast = has_nvlink(found);
    for (int i = 0; i < found && i < BACKEND_DEVICES_MAX; i++) {
        struct cudaDeviceProp p;
        error = cudaGetDeviceProperties(&p, i);
        if (error != cudaSuccess)
            return FAIL(ERR_DEVICE,
                        "cuda device %d does not answer: %s (%s): see nvidia-smi and dmesg, or leave it out "
                        "(CUDA_VISIBLE_DEVICES)",
                        i, cudaGetErrorString(error), cudaGetErrorName(error));
        memcpy(answer->id[i].uuid, &p.uuid, sizeof answer->id[i].uuid);
        snprintf(answer->address[i], sizeof answer->address[i], "%04x:%02x:%02x.0", p.pciDomainID, p.pciBusID,
                 p.pciDeviceID);
        answer->links.multicast &= p.major >= 9;
    }
    answer->count = found;
    return OK;
}

static void answer_find(Answer *answer)
{
    *answer = (Answer){0};
    answer->status = devices_find(answer);
    if (answer->status != OK) snprintf(answer->message, sizeof answer->message, "%s", status_message());
}

static void answer_write(int to)
{
    Answer answer;
    answer_find(&answer);
    _exit(write(to, &answer, sizeof answer) == (ssize_t)sizeof answer ? 0 : 1);
}

/* A child that hangs in the driver may not even end when it is killed, so nobody waits for it. */
static Status answer_read(int from, pid_t child, Answer *answer)
{
    size_t got = 0;
    int ending = 0;
    int64_t end = clock_ns() + DEVICE_SEARCH_SECONDS * (int64_t)1000000000;
    struct pollfd pipe = {.fd = from, .events = POLLIN};
    while (got < sizeof *answer) {
        int64_t left = (end - clock_ns()) / 1000000;
        int ready = poll(&pipe, 1, left > 0 ? (int)left : 0);
        if (ready == 0) {
            kill(child, SIGKILL);
            return FAIL(ERR_DEVICE,
                        "the search for CUDA devices did not end within %d s: the driver does not answer; see "
                        "nvidia-smi and dmesg, or use --device cpu",
                        DEVICE_SEARCH_SECONDS);
        }
        ssize_t n = ready < 0 ? -1 : read(from, (char *)answer + got, sizeof *answer - got);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        got += (size_t)n;
    }
    while (waitpid(child, &ending, 0) < 0 && errno == EINTR) continue;
    if (got == sizeof *answer) return OK;
    return FAIL(ERR_DEVICE, "the search for CUDA devices ended with %s %d: check nvidia-smi",
                WIFSIGNALED(ending) ? "signal" : "code", WIFSIGNALED(ending) ? WTERMSIG(ending) : WEXITSTATUS(ending));
}

static Status answer_ask(Answer *answer)
{
    int ends[2];
    if (pipe(ends) != 0) return FAIL(ERR_DEVICE, "search for CUDA devices: %s", strerror(errno));
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) answer_write(ends[1]);
    close(ends[1]);
    Status st = child < 0 ? FAIL(ERR_MEMORY, "no memory to search for CUDA devices: %s", strerror(errno))
                          : answer_read(ends[0], child, answer);
    close(ends[0]);
    return st;
}

static Answer answer = {.status = STATUS_COUNT};

Status cuda_device_list(DeviceId *id, int *count)
{
    if (answer.status == STATUS_COUNT) {
        Answer fresh = {0};
        TRY(answer_ask(&fresh));
        if (fresh.begun) answer_find(&fresh);
        answer = fresh;
    }
    *count = answer.count;
    if (id) memcpy(id, answer.id, sizeof answer.id);
    return answer.status == OK ? OK : FAIL(answer.status, "%s", answer.message);
}

void cuda_near_cores(int ordinal, NearCores *near)
{
    bool listed = answer.status == OK && ordinal < answer.count && ordinal < BACKEND_DEVICES_MAX;
    near_cores_read("", listed ? answer.address[ordinal] : "", near);
}

void cuda_links(DeviceLinks *links)
{
    *links = answer.links;
}
