/* The flight recorder of collectives; see comm_record.h. */
#include "nccl_sync/comm_record.h"

#include "kernels/base/clock.h"
#include "kernels/base/text.h"
#include "nccl_sync/comm_ops.h"
#include "nccl_sync/comm_shared.h"

void comm_record_in(Comm *comm, CommShared *shared)
{
    comm->record = &shared->record[process_in_node(&comm->config.place)];
}

void comm_record_begin(Comm *comm, const char *what, size_t first, size_t bytes)
{
    CommRecord *record = comm->record;
    if (!record || atomic_load(&record->waits)) return; /* the one that failed stays */
    atomic_store(&record->what, what);
    atomic_store(&record->first, (int64_t)first);
    atomic_store(&record->bytes, (int64_t)bytes);
    atomic_store(&record->at_ns, clock_ns());
    atomic_store(&record->waits, true);
    atomic_fetch_add(&record->number, 1);
}

/* One that fails stays as one that is waited for. */
Status comm_record_end(Comm *comm, Status st)
{
    if (!comm->record || st != OK) return st;
    atomic_store(&comm->record->waits, false);
    atomic_store(&comm->record->at_ns, clock_ns());
    return OK;
}

bool comm_record_text(const CommShared *shared, int first_rank, int64_t waited_ms, char *text, size_t bytes)
{
    bool hangs = false;
    Text list = text_start(text, bytes);
    for (int r = 0; r < shared->ranks; r++) {
        const CommRecord *record = &shared->record[r];
        bool waits = atomic_load(&record->waits);
        int64_t number = atomic_load(&record->number), age_ms = (clock_ns() - atomic_load(&record->at_ns)) / 1000000;
        if (number == 0) continue;
        hangs |= waits && age_ms > waited_ms;
        text_add(&list, "%srank %d %s collective %" PRId64 ", %s", list.used ? "; " : "", first_rank + r,
                 waits ? "waits in" : "ended", number, atomic_load(&record->what));
        if (atomic_load(&record->bytes))
            text_add(&list, " of %" PRId64 " bytes from element %" PRId64, atomic_load(&record->bytes),
                     atomic_load(&record->first));
        text_add(&list, waits ? ", for %.1f s" : ", %.1f s ago", (double)age_ms * 1e-3);
    }
    return hangs;
}
