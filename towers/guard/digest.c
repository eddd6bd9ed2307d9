/* Compares all replicas. Every tower applies the same update to the same values, so after every step weights,
 * optimizer states and weight averages must be equal bit for bit; a difference means that memory was damaged.
 *
 * Each process hashes its replica (XXH3, 64 bits; where the device can, by Backend.hash, without copying it), and all gather
 * the digests. Only if they differ are the tensors
 * compared one by one, and the first that differs is compared element by element with a process of the majority. With
 * two replicas there is no majority. Padding between parameters and the towers' own batch-norm statistics are not
 * compared. */
#include "towers/guard/digest.h"

#include <xxhash.h>

enum { PARTS_MAX = 2 + OPTIMIZER_STATES, NAMES_BYTES = 256 };

/* An arena in the layout of the parameters that must be equal on all replicas. */
typedef struct DigestPart {
    const char *name;
    const float *memory; /* on the device */
    int entries;         /* the first `entries` parameters of the layout are compared */
} DigestPart;

static int parts_list(const Replica *r, DigestPart parts[PARTS_MAX])
{
    int all = r->layout->param_count, trained = r->layout->trained_count;
    static const char *const state_names[OPTIMIZER_STATES] = {"first optimizer slot", "second optimizer slot"};
    int count = 0;
    parts[count++] = (DigestPart){"weights", r->arena[ARENA_PARAM], all};
    for (int s = 0; s < OPTIMIZER_STATES; s++)
        if (r->optimizer_state[s]) parts[count++] = (DigestPart){state_names[s], r->optimizer_state[s], trained};
    if (r->ema) parts[count++] = (DigestPart){"average of the weights", r->ema, all};
    return count;
}

static Status part_fetch(TowerProcess *p, const DigestPart *part)
{
    const Layout *layout = p->replica->layout;
    size_t elements = part->entries == layout->param_count ? layout->param_elements : layout->trained_elements;
    return replica_download(p->replica, p->scratch, part->memory, elements * sizeof(float));
}

static uint64_t entry_digest(const TowerProcess *p, const LayoutEntry *entry, uint64_t seed)
{
    return XXH3_64bits_withSeed(p->scratch + entry->first, entry->count * sizeof(float), seed);
}

/* The digest by the device: a sum for every part. */
static Status parts_hash(TowerProcess *p, const DigestPart *parts, int count, uint64_t *digest)
{
    Status st = OK;
    Device *device = &p->replica->device;
    const Backend *backend = device->backend;
    const LayoutEntry *entry = p->replica->layout->params;
    uint64_t sums[PARTS_MAX];
    void *memory;
    size_t bytes = (size_t)count * sizeof *sums;
    TRY(backend->alloc(device, bytes, &memory));
    for (int k = 0; k < count; k++)
        for (int i = 0; i < parts[k].entries; i++)
            TRY_OUT(backend->hash(device, parts[k].memory + entry[i].first, entry[i].count, entry[i].first,
                                  (uint64_t *)memory + k));
    TRY_OUT(replica_download(p->replica, sums, memory, bytes));
    *digest = XXH3_64bits(sums, bytes);
out:
    backend->release(device, memory);
    return st;
}

Status digest_replica(TowerProcess *p, uint64_t *digest)
{
    const Layout *layout = p->replica->layout;
    DigestPart parts[PARTS_MAX];
    int count = parts_list(p->replica, parts);
    if (p->replica->device.backend->hash) return parts_hash(p, parts, count, digest);
    *digest = 0;
    for (int k = 0; k < count; k++) {
        TRY(part_fetch(p, &parts[k]));
        for (int i = 0; i < parts[k].entries; i++) *digest = entry_digest(p, &layout->params[i], *digest);
    }
    return OK;
}

/* ---- the vote */

static int votes_for(const ReplicaFinding *all, int processes, int rank)
{
    int votes = 0;
    for (int r = 0; r < processes; r++) votes += all[r].digest == all[rank].digest;
    return votes;
}

/* A process of the largest group with equal digests; *votes receives the size of that group. */
static int majority_find(const ReplicaFinding *all, int processes, int *votes)
{
    int best = 0;
    *votes = votes_for(all, processes, 0);
    for (int r = 1; r < processes; r++) {
        if (votes_for(all, processes, r) <= *votes) continue;
        best = r;
        *votes = votes_for(all, processes, r);
    }
    return best;
}

/* Compare the digests of all processes, which p->findings receives. */
static Status digests_compare(TowerProcess *p, uint64_t digest, bool *equal)
{
    int votes;
    ReplicaFinding mine = {.digest = digest};
    TRY(comm_gather(p->comm, &mine, sizeof mine, p->findings));
    majority_find(p->findings, p->ledger->processes, &votes);
    *equal = votes == p->ledger->processes;
    return OK;
}

/* ---- locating the difference */

/* The first tensor that differs. Leaves the part's values in p->scratch and the tensor's digests in p->findings. */
static Status entry_find(TowerProcess *p, DigestPart *part, const LayoutEntry **entry)
{
    DigestPart parts[PARTS_MAX];
    const Layout *layout = p->replica->layout;
    int count = parts_list(p->replica, parts);
    *entry = NULL;
    for (int k = 0; k < count; k++) {
        TRY(part_fetch(p, &parts[k]));
        for (int i = 0; i < parts[k].entries; i++) {
            bool equal = false;
            TRY(digests_compare(p, entry_digest(p, &layout->params[i], 0), &equal));
            if (equal) continue;
            *part = parts[k];
            *entry = &layout->params[i];
            return OK;
        }
    }
    return OK;
}

/* Compare the tensor with that of process `good`, element by element; p->findings receives what every process found. */
static Status entry_compare(TowerProcess *p, const LayoutEntry *entry, int good)
{
    Status st = OK;
    ReplicaFinding finding = {.digest = p->findings[p->place.rank].digest};
    const float *mine = p->scratch + entry->first;
    float *theirs = malloc(entry->count * sizeof *theirs);
    if (!theirs) return FAIL(ERR_MEMORY, "no memory for %s of another replica", entry->name);
    memcpy(theirs, mine, entry->count * sizeof *theirs);
    TRY_OUT(comm_broadcast(p->comm, theirs, entry->count * sizeof *theirs, good));
    for (size_t i = 0; i < entry->count; i++) {
        if (memcmp(&mine[i], &theirs[i], sizeof *mine) == 0 || finding.wrong++) continue;
        finding.element = (int64_t)i;
        finding.wanted = (double)theirs[i];
        finding.got = (double)mine[i];
    }
    TRY_OUT(comm_gather(p->comm, &finding, sizeof finding, p->findings));
out:
    free(theirs);
    return st;
}

/* "tower 1, tower 5 (process 2)": the towers that differ from process `good`. Returns the first such process. */
static int minority_text(const TowerProcess *p, const ReplicaFinding *all, int good, char *buffer, size_t bytes)
{
    int first = -1;
    Text text = text_start(buffer, bytes);
    for (int r = 0; r < p->ledger->processes; r++) {
        char one[48];
        if (all[r].digest == all[good].digest) continue;
        towers_text(p->job, r, one, sizeof one);
        text_add(&text, "%s%s", first < 0 ? "" : ", ", one);
        if (first < 0) first = r;
    }
    return first;
}

static void drift_text(const TowerProcess *p, const DigestPart *part, const LayoutEntry *entry, char *buffer,
                       size_t bytes)
{
    const ReplicaFinding *all = p->findings;
    char names[NAMES_BYTES], others[48];
    int processes = p->ledger->processes, votes, good = majority_find(all, processes, &votes),
        bad = minority_text(p, all, good, names, sizeof names);
    const ReplicaFinding *f = &all[bad];
    towers_text(p->job, good, others, sizeof others);
    Text text = text_start(buffer, bytes);
    if (2 * votes > processes)
        text_add(&text, "after step %" PRId64 " the replica of %s differs from the %d others", p->run.step, names,
                 votes);
    else
        text_add(&text,
                 "after step %" PRId64
                 " the replicas of %s and %s differ; the %d replicas have no majority that shows which is "
                 "right",
                 p->run.step, others, names, processes);
    text_add(&text, ": %s, %s, element %" PRId64 " is %.9g in %s instead of %.9g (%" PRId64 " of %zu elements)",
             part->name, entry->name, f->element, f->got, names, f->wanted, f->wrong, entry->count);
}

static Status drift_describe(TowerProcess *p, char drift[DRIFT_TEXT])
{
    DigestPart part;
    const LayoutEntry *entry = NULL;
    int votes;
    TRY(entry_find(p, &part, &entry));
    if (!entry) { /* equal when read again: the first read was wrong */
        snprintf(drift, DRIFT_TEXT,
                 "after step %" PRId64 " the replicas' digests differed once, but not when compared again",
                 p->run.step);
        return OK;
    }
    TRY(entry_compare(p, entry, majority_find(p->findings, p->ledger->processes, &votes)));
    drift_text(p, &part, entry, drift, DRIFT_TEXT);
    return OK;
}

bool digest_is_due(const TowerProcess *p, bool now)
{
    int64_t every = p->job->sdc_check;
    if (every <= 0 || p->ledger->processes == 1 || p->compared_step == p->run.step) return false;
    return now || p->run.step % every == 0;
}

Status digest_compare(TowerProcess *p, char drift[DRIFT_TEXT])
{
    uint64_t digest;
    bool equal = false;
    *drift = 0;
    TRY(digest_replica(p, &digest));
    TRY(digests_compare(p, digest, &equal));
    if (is_root(&p->place)) atomic_fetch_add(&p->ledger->run.digests, 1);
    p->compared_step = p->run.step;
    return equal ? OK : drift_describe(p, drift);
}
