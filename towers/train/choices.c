/* Exchange of what devices choose by time; see choices.h. */
#include "towers/train/choices.h"
#include "kernels/base/place.h"

enum { LIMIT = 16 << 20 /* bytes of plans.txt */ };

/* The first line, which names a device and its libraries. */
static int title_length(const char *text)
{
    return (int)strcspn(text, "\n");
}

/* ---- rank 0 */

/* Take those of the run directory. `stored` is NULL if there are none. */
static Status stored_take(TowerProcess *p, const char *path, char **stored)
{
    size_t bytes;
    bool taken = false;
    char *own = NULL;
    int chosen;
    Device *device = &p->replica->device;
    if (place_access(path, F_OK) != 0) return OK;
    TRY(file_read(path, LIMIT, stored, &bytes));
    TRY(device->backend->choices_take(device, *stored, &taken));
    if (taken) return OK;
    TRY(device->backend->choices_text(device, &own, &chosen));
    ledger_note(
        p->ledger,
        "%s is for %.*s, this device is %.*s: kernels are chosen anew, so results may differ in their last bits "
        "from those of the steps before",
        CHOICES_FILE, title_length(*stored), *stored, title_length(own), own);
    free(own);
    return OK;
}

static bool is_listed(const int32_t *sizes, int32_t n)
{
    while (*sizes && *sizes != n) sizes++;
    return *sizes != 0;
}

/* The towers of other ranks may have other batch sizes. */
static Status sizes_choose(TowerProcess *p)
{
    Status st = OK;
    const int32_t *own = p->replica->config.train_n;
    int32_t *before = NULL, *sizes = NULL;
    for (int rank = 1; rank < p->place.ranks; rank++) {
        Placement place = job_placement(p->job, rank);
        ReplicaConfig other;
        TRY_OUT(process_config(p->job, &place, &other, &sizes));
        for (const int32_t *n = other.train_n; *n; n++)
            if (!is_listed(own, *n) && !is_listed(before ? before : own, *n))
                TRY_OUT(replica_choose_for(p->replica, *n));
        free(before);
        before = sizes; /* most ranks have the sizes of the one before */
        sizes = NULL;
    }
out:
    free(before);
    free(sizes);
    return st;
}

static Status choices_make(TowerProcess *p, char **text)
{
    Status st = OK;
    char path[PATH_BYTES] = "", *stored = NULL;
    int chosen = 0;
    Device *device = &p->replica->device;
    if (p->job->run_dir) {
        TRY(path_join(path, p->job->run_dir, CHOICES_FILE));
        TRY_OUT(stored_take(p, path, &stored));
    }
    TRY_OUT(replica_build(p->replica));
    TRY_OUT(sizes_choose(p));
    TRY_OUT(device->backend->choices_text(device, text, &chosen));
    if (chosen)
        ledger_note(p->ledger,
                    "%d kernels could not be taken from %s and were chosen anew: results may differ in their last bits "
                    "from those of the steps before",
                    chosen, CHOICES_FILE);
    if (*path && (!stored || strcmp(stored, *text))) TRY_OUT(file_replace(path, *text, strlen(*text)));
out:
    free(stored);
    return st;
}

/* ---- the others */

static Status choices_use(TowerProcess *p, const char *given)
{
    bool taken;
    int chosen = 0;
    char *own = NULL;
    Device *device = &p->replica->device;
    TRY(device->backend->choices_take(device, given, &taken));
    TRY(replica_build(p->replica));
    TRY(device->backend->choices_text(device, &own, &chosen));
    if (!taken)
        ledger_note(
            p->ledger,
            "tower %d computes on %.*s, rank 0 on %.*s: each chooses its own kernels, so results depend on which "
            "device computes which tower",
            p->place.first_tower, title_length(own), own, title_length(given), given);
    else if (chosen)
        ledger_note(p->ledger,
                    "tower %d: its device could not take %d kernels of rank 0 and chose others, so results depend on "
                    "which device computes which tower",
                    p->place.first_tower, chosen);
    free(own);
    return OK;
}

Status choices_build(TowerProcess *p)
{
    Status st = OK;
    char *text = NULL;
    size_t bytes = 0;
    const Device *device = &p->replica->device;
    if (!p->job->backend->choices_text) return replica_build(p->replica);
    if (is_root(&p->place)) {
        TRY_OUT(choices_make(p, &text));
        bytes = strlen(text) + 1;
    }
    TRY_OUT(comm_broadcast(p->comm, &bytes, sizeof bytes, 0));
    if (!is_root(&p->place)) {
        text = calloc(bytes, 1);
        if (!text) TRY_OUT(FAIL(ERR_MEMORY, "no memory for the kernels chosen by rank 0 (%zu bytes)", bytes));
    }
    TRY_OUT(comm_broadcast(p->comm, text, bytes, 0));
    if (!is_root(&p->place)) TRY_OUT(choices_use(p, text));
    if (device->unconfirmed)
        ledger_note(
            p->ledger,
            "tower %d: %d convolutions run by the library's first plan, because no second one gave the same result; "
            "--deterministic avoids the comparison, 'towers doctor' tests the device",
            p->place.first_tower, device->unconfirmed);
    if (device->refused.count)
        ledger_note(p->ledger,
                    "tower %d: %d candidates for kernels of convolutions were passed over, because the library failed "
                    "to make or to run them; others were taken; the first said: %s",
                    p->place.first_tower, device->refused.count, device->refused.first);
    TRY_OUT(comm_barrier(p->comm)); /* log.txt begins with the notes of all ranks */
out:
    free(text);
    return st;
}
