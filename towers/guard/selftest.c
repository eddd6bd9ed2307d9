/* Checks that the collectives deliver correct data, once before the first step, at the sizes that training uses.
 *
 * Every tower fills the gradient arena and the extras behind it with integers times powers of two, derived from
 * (tower, element, round). Their sums are exact in any order, so every received element can be compared for equality.
 * Then every process in turn broadcasts buckets. If a sum is wrong it is repeated with only one tower at a time
 * contributing values other than zero, to find out whose values are lost and where. On some machines GPUs are known to
 * lose peer-to-peer writes: training runs there, but the network learns nothing. */
#include "towers/guard/selftest.h"
#include "towers/replica/hooks.h"

enum { ROUNDS = 2, EVERYBODY = -1 };

static float *grads(const TowerProcess *p)
{
    return p->replica->arena[ARENA_GRAD];
}

static size_t grad_count(const TowerProcess *p)
{
    return p->replica->layout->trained_elements;
}

/* ---- the pattern */

typedef struct Pattern {
    int bits;    /* per tower's value, so that the sum over all towers is exact in the reduction's format */
    bool scaled; /* by powers of two, so that every bit of an f32 is used */
} Pattern;

static Pattern pattern_for(Dtype reduce, int towers)
{
    int bits = reduce == DTYPE_F32 ? 22 : reduce == DTYPE_F16 ? 9 : 6;
    for (int t = 1; t < towers && bits > 0; t *= 2) bits--;
    return (Pattern){bits, reduce == DTYPE_F32};
}

static float pattern_at(Pattern pattern, int tower, size_t element, int round)
{
    static const float scale[16] = {0x1p-64f, 0x1p-56f, 0x1p-48f, 0x1p-40f, 0x1p-32f, 0x1p-24f, 0x1p-16f, 0x1p-8f,
                                    0x1p0f,   0x1p8f,   0x1p16f,  0x1p24f,  0x1p32f,  0x1p40f,  0x1p48f,  0x1p56f};
    uint32_t h = (uint32_t)element * 2654435761u + (uint32_t)tower * 2246822519u + (uint32_t)round * 3266489917u;
    h = (h ^ h >> 15) * 2246822519u;
    h ^= h >> 13;
    float whole = (float)((int32_t)(h >> (31 - pattern.bits)) - (1 << pattern.bits));
    return pattern.scaled ? whole * scale[element & 15] : whole;
}

static Pattern sum_pattern(const TowerProcess *p)
{
    return pattern_for(p->job->comm.reduce, p->ledger->towers);
}

static float wanted_sum(const TowerProcess *p, int only, size_t element, int round)
{
    Pattern pattern = sum_pattern(p);
    float sum = 0;
    if (only != EVERYBODY) return pattern_at(pattern, only, element, round);
    for (int t = 0; t < p->ledger->towers; t++) sum += pattern_at(pattern, t, element, round);
    return sum;
}

/* ---- one sum */

/* The buckets of all phases, which together are the gradients; NULL behind the last. */
static const Bucket *bucket_at(const TowerProcess *p, int number)
{
    for (int phase = 0; phase < p->replica->phases; phase++) {
        const Buckets *buckets = &p->sums[phase].buckets;
        if (number < buckets->count) return &buckets->bucket[number];
        number -= buckets->count;
    }
    return NULL;
}

static int bucket_count(const TowerProcess *p)
{
    int count = 0;
    while (bucket_at(p, count)) count++;
    return count;
}

static const Bucket *last_bucket(const TowerProcess *p)
{
    return bucket_at(p, bucket_count(p) - 1);
}

static Status tower_give(TowerProcess *p, int tower, int only, int round)
{
    const Backend *backend = p->replica->device.backend;
    size_t count = grad_count(p);
    Pattern pattern = sum_pattern(p);
    memset(p->scratch, 0, (count + SUM_EXTRAS) * sizeof(float));
    for (size_t i = 0; (only == EVERYBODY || only == tower) && i < count + SUM_EXTRAS; i++)
        p->scratch[i] = pattern_at(pattern, tower, i, round);
    if (run_hooks) run_hooks->self_test(tower, ACTIVITY_START, p->scratch + last_bucket(p)->first);
    TRY(backend->upload(&p->replica->device, grads(p), p->scratch, count * sizeof(float)));
    for (int b = 0; b < bucket_count(p); b++) {
        const Bucket *bucket = bucket_at(p, b);
        TRY(comm_allreduce_begin(p->comm, tower, bucket->first, grads(p) + bucket->first, bucket->count));
    }
    TRY(comm_allreduce_begin(p->comm, tower, count, p->scratch + count, SUM_EXTRAS));
    return backend->finish(&p->replica->device, STREAM_COMPUTE);
}

static Status sum_take(TowerProcess *p)
{
    size_t count = grad_count(p);
    for (int b = 0; b < bucket_count(p); b++) {
        const Bucket *bucket = bucket_at(p, b);
        TRY(comm_allreduce_end(p->comm, bucket->first, grads(p) + bucket->first, bucket->count));
    }
    TRY(comm_allreduce_end(p->comm, count, p->scratch + count, SUM_EXTRAS));
    TRY(replica_download(p->replica, p->scratch, grads(p), count * sizeof(float)));
    if (run_hooks) run_hooks->self_test(p->place.first_tower, ACTIVITY_REDUCE, p->scratch + last_bucket(p)->first);
    return OK;
}

static int bucket_of(const TowerProcess *p, size_t element)
{
    int b = 0;
    while (b + 1 < bucket_count(p) && element >= bucket_at(p, b + 1)->first) b++;
    return b;
}

static void element_check(ReplicaFinding *finding, size_t element, float wanted, float got)
{
    if (memcmp(&wanted, &got, sizeof wanted) == 0 || wanted == got) return;
    if (finding->wrong++) return;
    finding->element = (int64_t)element;
    finding->wanted = (double)wanted;
    finding->got = (double)got;
}

/* All-reduce and compare every element; with `only`, that tower contributes and the others contribute zeros. */
static Status sum_check(TowerProcess *p, int only, int round, ReplicaFinding *finding)
{
    size_t count = grad_count(p) + SUM_EXTRAS;
    for (int local = 0; local < p->place.local_towers; local++)
        TRY(tower_give(p, p->place.first_tower + local, only, round));
    TRY(sum_take(p));
    *finding = (ReplicaFinding){0};
    for (size_t i = 0; i < count; i++) element_check(finding, i, wanted_sum(p, only, i, round), p->scratch[i]);
    return OK;
}

/* ---- agreement on the result */

/* Gathers all findings. The process with the most wrong elements, or -1; equal on all ranks. */
static Status worst_find(TowerProcess *p, const ReplicaFinding *mine, int *worst, int *seen, ReplicaFinding *finding)
{
    const ReplicaFinding *all = p->findings;
    *worst = -1;
    *seen = 0;
    TRY(comm_gather(p->comm, mine, sizeof *mine, p->findings));
    for (int r = 0; r < p->ledger->processes; r++) {
        if (!all[r].wrong) continue;
        ++*seen;
        if (*worst >= 0 && finding->wrong >= all[r].wrong) continue;
        *worst = r;
        *finding = all[r];
    }
    return OK;
}

static Status failure(const TowerProcess *p, const char *what, const char *who, const ReplicaFinding *f)
{
    size_t element = (size_t)f->element, end = grad_count(p);
    int b = bucket_of(p, element);
    char where[96];
    if (element >= end)
        snprintf(where, sizeof where, "extra %zu", element - end);
    else
        snprintf(where, sizeof where, "bucket %d of %d, element %zu", b, bucket_count(p),
                 element - bucket_at(p, b)->first);
    return FAIL(ERR_DEVICE,
                "self-test of the %s: %s: %s: expected %.9g, got %.9g (%" PRId64
                " elements are wrong); towers that do not "
                "receive each other's gradients cannot train together (GPUs: try NCCL_P2P_DISABLE=1, check ACS and "
                "IOMMU in the BIOS)",
                what, who, where, f->wanted, f->got, f->wrong);
}

/* Repeat the sum tower by tower to find out whose values do not arrive, and where. */
static Status sum_blame(TowerProcess *p, int round, int worst, ReplicaFinding finding)
{
    char who[160], receiver[48];
    int from = -1, from_seen = 0, senders = 0;
    int64_t most = 0;
    for (int t = 0; t < p->ledger->towers; t++) {
        int at, seen;
        ReplicaFinding mine, alone;
        TRY(sum_check(p, t, round, &mine));
        TRY(worst_find(p, &mine, &at, &seen, &alone));
        senders += at >= 0;
        if (at < 0 || alone.wrong <= most) continue;
        most = alone.wrong;
        from = t;
        from_seen = seen;
        worst = at;
        finding = alone;
    }
    towers_text(p->job, worst, receiver, sizeof receiver);
    if (from < 0)
        snprintf(who, sizeof who, "%s did not receive the sum (a repetition succeeded)", receiver);
    else if (senders == p->ledger->towers)
        snprintf(who, sizeof who, "values sent by all towers arrive changed at %s", receiver);
    else if (from_seen == p->ledger->processes)
        snprintf(who, sizeof who, "values sent by tower %d arrive changed everywhere, even at %s", from, receiver);
    else
        snprintf(who, sizeof who, "values sent by tower %d arrive changed at %s", from, receiver);
    return failure(p, "sum over the towers", who, &finding);
}

/* ---- broadcasts */

static Status broadcast_check(TowerProcess *p, int bucket_number, int root)
{
    const Bucket *bucket = bucket_at(p, bucket_number);
    ReplicaFinding finding = {0}, worst_finding;
    Pattern pattern = pattern_for(DTYPE_F32, 1);
    int worst, seen;
    float *values = p->scratch + bucket->first;
    for (size_t i = 0; i < bucket->count; i++)
        values[i] = p->place.rank == root ? pattern_at(pattern, root, bucket->first + i, ROUNDS) : 0;
    TRY(comm_broadcast(p->comm, values, bucket->count * sizeof *values, root));
    for (size_t i = 0; i < bucket->count; i++)
        element_check(&finding, bucket->first + i, pattern_at(pattern, root, bucket->first + i, ROUNDS), values[i]);
    TRY(worst_find(p, &finding, &worst, &seen, &worst_finding));
    if (worst < 0) return OK;
    char who[160], sender[48], receiver[48];
    towers_text(p->job, root, sender, sizeof sender);
    towers_text(p->job, worst, receiver, sizeof receiver);
    snprintf(who, sizeof who, "values sent by %s arrive changed at %s", sender, receiver);
    return failure(p, "broadcast", who, &worst_finding);
}

Status selftest_run(TowerProcess *p)
{
    int worst, seen, processes = p->ledger->processes;
    ReplicaFinding mine, finding;
    for (int round = 0; p->ledger->towers > 1 && round < ROUNDS; round++) {
        TRY(sum_check(p, EVERYBODY, round, &mine));
        TRY(worst_find(p, &mine, &worst, &seen, &finding));
        if (worst >= 0) return sum_blame(p, round, worst, finding);
    }
    /* From the first process and the last one in turn: as many broadcasts on any number of processes. */
    int buckets = bucket_count(p), rounds = buckets > 2 ? buckets : 2;
    for (int i = 0; processes > 1 && i < rounds; i++) TRY(broadcast_check(p, i % buckets, i % 2 ? processes - 1 : 0));
    return p->replica->device.backend->fill(&p->replica->device, grads(p), 0, grad_count(p));
}
