/* Watching devices; see device_watch.h. */
#include "towers/supervisor/device_watch.h"

#include "kernels/base/clock.h"
#include "kernels/base/timeouts.h"
#include "kernels/telemetry.h"

#include <pthread.h>

enum { NOTE_BYTES = 256 };

struct DeviceWatch {
    const TelemetryOps *ops;
    Ledger *ledger;
    int first, count;
    pthread_t thread;
    _Atomic bool ending, ended;
    _Atomic int failed; /* process + 1; 0: none. Written after the words */
    StatusText words;
    DeviceId id[]; /* [count]: of each process's device */
};

static void failure_keep(DeviceWatch *w, int process)
{
    status_keep(&w->words);
    atomic_store(&w->failed, process + 1);
}

static Status devices_read(DeviceWatch *w, void *watch)
{
    for (int r = 0; r < w->count; r++) {
        DeviceTelemetry telemetry;
        Status st = w->ops->read(watch, r, &telemetry);
        ledger_telemetry_put(w->ledger, w->first + r, &telemetry);
        if (st == OK) continue;
        failure_keep(w, r);
        return st;
    }
    return OK;
}

static void devices_watch(DeviceWatch *w)
{
    void *watch;
    int64_t due = 0;
    if (w->ops->open(w->id, w->count, &watch) != OK) {
        ledger_inform(w->ledger, "GPUs are not watched: %s", status_message());
        return;
    }
    for (bool works = true; works && !atomic_load(&w->ending);) {
        char note[NOTE_BYTES];
        int device = 0;
        if (clock_ns() >= due) {
            due = clock_ns() + DEVICE_READ_MS * 1000000ll;
            works = devices_read(w, watch) == OK;
        } else if (w->ops->wait(watch, DEVICE_WAIT_MS, &device, note, sizeof note) != OK) {
            failure_keep(w, device);
            works = false;
        } else if (*note) {
            ledger_note(w->ledger, "process %d: %s", w->first + device, note);
        }
    }
    w->ops->close(watch);
}

static void *watch_run(void *context)
{
    DeviceWatch *w = context;
    devices_watch(w);
    atomic_store(&w->ended, true); /* nothing of the ledger is used behind it */
    return NULL;
}

DeviceWatch *device_watch_start(const TrainJob *job, Ledger *ledger, int first, int count)
{
    DeviceId all[BACKEND_DEVICES_MAX];
    int visible;
    if (!job->backend->telemetry || backend_device_list(job->backend, all, &visible) != OK) return NULL;
    DeviceWatch *w = calloc(1, sizeof *w + (size_t)count * sizeof *w->id);
    if (!w) return NULL;
    w->ops = job->backend->telemetry;
    w->ledger = ledger;
    w->first = first;
    w->count = count;
    for (int r = 0; r < count; r++) {
        int ordinal = job_device(job, job_placement(job, first + r).local_rank).ordinal;
        if (ordinal < visible) w->id[r] = all[ordinal];
    }
    if (pthread_create(&w->thread, NULL, watch_run, w) == 0) return w;
    free(w);
    return NULL;
}

int device_watch_failed(const DeviceWatch *watch, const char **why)
{
    int failed = watch ? atomic_load(&watch->failed) : 0;
    if (failed) *why = watch->words.message;
    return failed - 1;
}

void device_watch_ask(DeviceWatch *watch)
{
    if (watch) atomic_store(&watch->ending, true);
}

bool device_watch_ended(const DeviceWatch *watch)
{
    return !watch || atomic_load(&watch->ended);
}

bool device_watch_leave(DeviceWatch *watch)
{
    if (!device_watch_ended(watch)) return false;
    if (watch) pthread_join(watch->thread, NULL);
    free(watch);
    return true;
}
