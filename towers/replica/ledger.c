/* The shared segment of a run; see ledger.h. */
#include "towers/replica/ledger.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static const char *const phase_names[PHASE_COUNT] = {
    [PHASE_START] = "start",     [PHASE_DATA] = "data",         [PHASE_COPY] = "copy",
    [PHASE_FORWARD] = "forward", [PHASE_BACKWARD] = "backward", [PHASE_REDUCE] = "all-reduce",
    [PHASE_UPDATE] = "update",   [PHASE_RECORD] = "record",     [PHASE_EVAL] = "evaluation",
    [PHASE_SAVE] = "checkpoint", [PHASE_DONE] = "done",
};

const char *phase_name(Phase phase)
{
    return (unsigned)phase < PHASE_COUNT ? phase_names[phase] : "unknown phase";
}

int64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

Status ledger_create(int towers, int processes, Ledger **made)
{
    size_t bytes = sizeof(Ledger) + (size_t)processes * sizeof(LedgerProcess) + (size_t)towers * sizeof(LedgerTower);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return FAIL(ERR_MEMORY, "no memory for ledger of %d towers (%zu KiB): %s", towers, bytes >> 10,
                    strerror(errno));
    Ledger *ledger = memory;
    ledger->towers = towers;
    ledger->processes = processes;
    ledger->bytes = bytes;
    ledger->tower = (LedgerTower *)(ledger + 1);
    ledger->process = (LedgerProcess *)(ledger->tower + towers);
    ledger->run.best_top1 = -1;
    for (int t = 0; t < towers; t++) {
        atomic_store(&ledger->tower[t].heartbeat_ns, clock_ns());
        for (int i = 0; i < LEDGER_STEPS; i++) ledger->tower[t].rows[i].step = -1;
    }
    *made = ledger;
    return OK;
}

void ledger_destroy(Ledger *ledger)
{
    if (ledger) munmap(ledger, ledger->bytes);
}

LedgerRow *ledger_row(Ledger *ledger, int tower, int64_t step)
{
    return &ledger->tower[tower].rows[step % LEDGER_STEPS];
}

void ledger_phase(Ledger *ledger, int tower, int64_t step, Phase phase)
{
    LedgerTower *row = &ledger->tower[tower];
    int64_t now = clock_ns(), before = atomic_load(&row->heartbeat_ns);
    int ended = atomic_load(&row->phase);
    if (atomic_load(&row->step) == step) ledger_row(ledger, tower, step)->phase_ns[ended] += now - before;
    atomic_store(&row->step, step);
    atomic_store(&row->phase, (int)phase);
    atomic_store(&row->heartbeat_ns, now);
}

void ledger_note(Ledger *ledger, const char *format, ...)
{
    LedgerRun *run = &ledger->run;
    int64_t number = atomic_load(&run->notes);
    va_list args;
    va_start(args, format);
    vsnprintf(run->note[number % LEDGER_NOTES], LEDGER_MESSAGE, format, args);
    va_end(args);
    atomic_store(&run->notes, number + 1);
}

void ledger_fail(Ledger *ledger, int process, Status status)
{
    LedgerProcess *row = &ledger->process[process];
    status_keep(&row->words);
    atomic_store(&row->status, (int)status);
    int nobody = 0;
    atomic_compare_exchange_strong(&ledger->first_failed, &nobody, process + 1);
}
