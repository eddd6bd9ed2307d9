/* The shared segment of a run; see ledger.h. */
#include "towers/replica/ledger.h"

#include <errno.h>
#include <stdarg.h>
#include <sys/mman.h>

static const char *const activity_names[ACTIVITY_COUNT] = {
    [ACTIVITY_START] = "start",     [ACTIVITY_DATA] = "data",         [ACTIVITY_COPY] = "copy",
    [ACTIVITY_FORWARD] = "forward", [ACTIVITY_BACKWARD] = "backward", [ACTIVITY_REDUCE] = "all-reduce",
    [ACTIVITY_UPDATE] = "update",   [ACTIVITY_RECORD] = "record",     [ACTIVITY_EVAL] = "evaluation",
    [ACTIVITY_SAVE] = "checkpoint", [ACTIVITY_DONE] = "done",
};

const char *activity_name(Activity activity)
{
    return (unsigned)activity < ACTIVITY_COUNT ? activity_names[activity] : "unknown activity";
}

Status ledger_create(int towers, int processes, Ledger **made)
{
    size_t bytes = sizeof(Ledger) + (size_t)processes * sizeof(LedgerProcess) + (size_t)towers * sizeof(LedgerTower);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return FAIL(ERR_MEMORY, "no memory for the ledger of %d towers (%zu KiB): %s", towers, bytes >> 10,
                    strerror(errno));
    Ledger *ledger = memory;
    ledger->towers = towers;
    ledger->processes = processes;
    ledger->bytes = bytes;
    ledger->tower = (LedgerTower *)(ledger + 1);
    ledger->process = (LedgerProcess *)(ledger->tower + towers);
    for (int i = 0; i < SCORES; i++) ledger->run.best[i] = ABSENT;
    for (int t = 0; t < towers; t++) {
        atomic_store(&ledger->tower[t].heartbeat_ns, clock_ns());
        for (int i = 0; i < LEDGER_STEPS; i++) ledger->tower[t].rows[i].step = -1;
    }
    *made = ledger;
    return OK;
}

double eval_score(const EvalResult *result)
{
    double score = result->multi_label ? result->mean_precision : (double)result->correct[0] / (double)result->count;
    return isfinite(result->loss) && isfinite(score) ? score : ABSENT;
}

Status ledger_samples(Ledger *ledger, int64_t count, int classes)
{
    void *memory =
        mmap(NULL, (size_t)count * sizeof(EvalSample), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return FAIL(ERR_MEMORY, "no memory for the predictions of %" PRId64 " samples: %s", count, strerror(errno));
    ledger->sample = memory;
    ledger->samples = count;
    if (!classes) return OK;
    size_t bytes = (size_t)count * (size_t)classes * sizeof(float);
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return FAIL(ERR_MEMORY, "no memory for the probabilities of %d classes for %" PRId64 " samples (%zu MiB): %s",
                    classes, count, bytes >> 20, strerror(errno));
    ledger->score = memory;
    ledger->classes = classes;
    return OK;
}

void ledger_destroy(Ledger *ledger)
{
    if (!ledger) return;
    if (ledger->sample) munmap(ledger->sample, (size_t)ledger->samples * sizeof *ledger->sample);
    if (ledger->score) munmap(ledger->score, (size_t)ledger->samples * (size_t)ledger->classes * sizeof(float));
    munmap(ledger, ledger->bytes);
}

LedgerRow *ledger_row(Ledger *ledger, int tower, int64_t step)
{
    return &ledger->tower[tower].rows[step % LEDGER_STEPS];
}

void ledger_activity(Ledger *ledger, int tower, int64_t step, Activity activity)
{
    LedgerTower *row = &ledger->tower[tower];
    int64_t now = clock_ns(), before = atomic_load(&row->heartbeat_ns);
    int ended = atomic_load(&row->activity);
    if (atomic_load(&row->step) == step) ledger_row(ledger, tower, step)->activity_ns[ended] += now - before;
    atomic_store(&row->step, step);
    atomic_store(&row->activity, (int)activity);
    atomic_store(&row->heartbeat_ns, now);
}

static void note_add(LedgerRun *run, bool informs, const char *format, va_list args)
{
    int64_t number = atomic_fetch_add(&run->notes, 1), place = number % LEDGER_NOTES;
    atomic_store(&run->noted[place], 0);
    vsnprintf(run->note[place], LEDGER_MESSAGE, format, args);
    run->informs[place] = informs;
    atomic_store(&run->noted[place], number + 1);
}

void ledger_note(Ledger *ledger, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    note_add(&ledger->run, false, format, args);
    va_end(args);
}

void ledger_inform(Ledger *ledger, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    note_add(&ledger->run, true, format, args);
    va_end(args);
}

const char *ledger_noted(const Ledger *ledger, int64_t n)
{
    const LedgerRun *run = &ledger->run;
    return atomic_load(&run->noted[n % LEDGER_NOTES]) == n + 1 ? run->note[n % LEDGER_NOTES] : NULL;
}

void ledger_telemetry_put(Ledger *ledger, int process, const DeviceTelemetry *telemetry)
{
    LedgerProcess *row = &ledger->process[process];
    int64_t number = atomic_load(&row->readings) + 1;
    row->telemetry[number % 2].value = *telemetry;
    row->telemetry[number % 2].at_ns = clock_ns();
    atomic_store(&row->readings, number);
}

int64_t ledger_telemetry(const Ledger *ledger, int process, DeviceTelemetry *telemetry)
{
    const LedgerProcess *row = &ledger->process[process];
    int64_t number = atomic_load(&row->readings);
    *telemetry = number ? row->telemetry[number % 2].value : telemetry_unknown();
    return number ? row->telemetry[number % 2].at_ns : 0;
}

void ledger_fail(Ledger *ledger, int process, Status status, bool follows)
{
    LedgerProcess *row = &ledger->process[process];
    status_keep(&row->words);
    atomic_store(&row->status, (int)status);
    int nobody = 0;
    atomic_compare_exchange_strong(follows ? &ledger->first_follower : &ledger->first_failed, &nobody, process + 1);
}

int ledger_failed(const Ledger *ledger)
{
    int first = atomic_load(&ledger->first_failed);
    return (first ? first : atomic_load(&ledger->first_follower)) - 1;
}
