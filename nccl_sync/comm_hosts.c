/* Collectives between groups of tower processes: shared memory inside a group (comm_shared.h), and between their first
 * processes, the leaders, messages over a link (link.h), which is MPI, or TCP where NCCL makes the sums.
 *
 * The sum is a chain in the order of the towers. A range is cut into chunks. Group g receives the prefix of a chunk, the
 * sum of all towers of the groups before it, into its result area; each of its processes adds its part of the slots, in
 * tower order; the leader sends the chunk on to group g + 1. The last group has the result, which travels back the same
 * way. Every element is added from the left in tower order, as comm_shm.c does, hence the same bits on any number of
 * hosts; a tree would be faster on many hosts and round differently. Each host sends and receives a range twice, and the
 * last chunk is 2 (groups - 1) messages behind the first.
 *
 * Waits end by deadline, by an abort in the group, or by news of another group. A leader whose deadline has passed asks
 * all others whether they are there: those that do not answer are named, on every host. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/clock.h"
#include "kernels/text.h"
#include "nccl_sync/comm_ops.h"
#include "nccl_sync/comm_shared.h"
#include "nccl_sync/link.h"

enum {
    CHUNK = 1 << 16, /* floats */
    WINDOW = 4,      /* messages in progress, of each of the four flows */
    POLL_NS = 20000, /* after SPINS polls, and later longer, so that waiting costs nothing */
    POLL_MAX_NS = 1000000,
    SPINS = 200,
    LOOK_EVERY = 16,  /* polls */
    CENSUS_MS = 2000, /* in which a leader that waits answers */
    FAREWELL_MS = 1000
};

/* What the leaders tell each other at the start; the same layout in every build. */
typedef struct GroupCard {
    int32_t group, groups, processes, ranks, first_tower, towers, all_towers;
    int64_t max_count;
    char host[64];
} GroupCard;

typedef struct HostsComm {
    CommShared *shared; /* borrowed */
    int process;        /* number in the group */
    Link *link;         /* owned; NULL but in the leader */
    GroupCard *card;    /* owned: [groups], in the leader */
    int64_t *numbers;   /* owned: [groups], in the leader: of the collective that each has come to */
    int64_t *answers;   /* owned: [groups], in the leader: the same, as they answer when they are asked */
    bool *aware;        /* owned: [groups], in the leader: those that have told of a failure */
    int64_t collective; /* number of the current one; the same in all processes of the run */
    int64_t chunks;     /* of all sums so far; likewise */
    bool left;          /* the leader has told the others */
} HostsComm;

static HostsComm *hosts_of(Comm *comm)
{
    return comm->impl;
}

/* ---- leaving */

static void group_text(const HostsComm *c, int group, Text *text)
{
    int ranks = c->shared->ranks, first = group * ranks;
    text_add(text, "host %s (tower process%s %d", c->card[group].host, ranks > 1 ? "es" : "", first);
    if (ranks > 1) text_add(text, "..%d", first + ranks - 1);
    text_add(text, ")");
}

/* Tells all other leaders what has happened, once, and stays until all have said that they know or have found it
 * themselves: a library may end a process whose peer is gone in the middle of a message, before it reads the news. */
static void leader_tell(Comm *comm, HostsComm *c, const char *what)
{
    int groups = comm->config.place.groups, me = comm->config.place.group, unaware = groups;
    News news = {.kind = NEWS_ABORT, .from = me, .collective = c->collective}, answer;
    struct timespec pause = {.tv_nsec = POLL_NS};
    int64_t end = clock_ns() + FAREWELL_MS * 1000000ll;
    bool heard;
    if (!c->link || c->left) return;
    c->left = true;
    c->aware[me] = true;
    snprintf(news.text, sizeof news.text, "%s", what);
    for (int g = 0; g < groups; g++) {
        Status st = g == me ? OK : c->link->ops->tell(c->link, g, &news);
        (void)st; /* some may be gone */
    }
    while ((unaware > 0 || !c->link->ops->told(c->link)) && clock_ns() < end) {
        if (c->link->ops->hear(c->link, &answer, &heard) != OK) break;
        if (heard && answer.kind == NEWS_ABORT && answer.from >= 0 && answer.from < groups)
            c->aware[answer.from] = true;
        if (!heard) nanosleep(&pause, NULL);
        unaware = 0;
        for (int g = 0; g < groups; g++) unaware += !c->aware[g];
    }
}

/* A failure that this leader has found: ends the collectives of its own group and of all others. */
static Status leader_fail(Comm *comm, HostsComm *c, const char *what)
{
    comm_shared_abort_by(c->shared, what);
    leader_tell(comm, c, what);
    return shared_fail_aborted(&comm->config, c->shared);
}

/* Tells the others that a process of this group has left, or what the supervisor knows. */
static void leader_spread(Comm *comm, HostsComm *c)
{
    char what[COMM_NEWS_BYTES];
    int left = comm_shared_aborted(c->shared);
    if (left == COMM_ABORTED_ELSEWHERE)
        snprintf(what, sizeof what, "%s", c->shared->abort_text);
    else
        snprintf(what, sizeof what, "tower process %d (host %s) has left the run",
                 comm->config.place.rank - c->process + left, comm->config.place.host);
    leader_tell(comm, c, what);
}

/* ---- waiting for other groups */

/* Reads one piece of news, if there is any. A question is answered: this leader is there, in a collective. */
static Status news_hear(Comm *comm, HostsComm *c, News *news, bool *heard)
{
    TRY(c->link->ops->hear(c->link, news, heard));
    if (!*heard) return OK;
    if (news->from < 0 || news->from >= comm->config.place.groups)
        return FAIL(ERR_COMM, "news of group %d, of %d: not a message of this program", (int)news->from,
                    comm->config.place.groups);
    news->text[sizeof news->text - 1] = 0;
    if (news->kind == NEWS_ABORT) {
        c->aware[news->from] = true;
        return leader_fail(comm, c, news->text);
    }
    News here = {.kind = NEWS_HERE, .from = comm->config.place.group, .collective = c->collective};
    return news->kind == NEWS_ASK ? c->link->ops->tell(c->link, news->from, &here) : OK;
}

/* Finds who has not come, by asking. */
static Status late_find(Comm *comm, HostsComm *c)
{
    int groups = comm->config.place.groups, me = comm->config.place.group, missing = 0;
    News news = {.kind = NEWS_ASK, .from = me, .collective = c->collective};
    char what[COMM_NEWS_BYTES];
    struct timespec pause = {.tv_nsec = POLL_NS};
    int64_t end = clock_ns() + CENSUS_MS * 1000000ll;
    for (int g = 0; g < groups; g++) {
        c->answers[g] = g == me ? c->collective : -1;
        if (g != me) TRY(c->link->ops->tell(c->link, g, &news));
    }
    do {
        bool heard = false;
        TRY(news_hear(comm, c, &news, &heard));
        if (heard) c->answers[news.from] = news.collective;
        if (!heard) nanosleep(&pause, NULL);
        missing = 0;
        for (int g = 0; g < groups; g++) missing += c->answers[g] < c->collective;
        atomic_store(&c->shared->leader_ns, clock_ns());
    } while (missing && clock_ns() < end);
    Text text = text_start(what, sizeof what);
    for (int g = 0, named = 0; g < groups && named < 3; g++) {
        if (missing && c->answers[g] >= c->collective) continue;
        if (!missing && g == me) continue;
        text_add(&text, named++ ? ", " : "");
        group_text(c, g, &text);
    }
    if (missing > 3) text_add(&text, " and %d more", missing - 3);
    text_add(&text,
             missing ? " did not arrive at the collective within %.1f s (--comm-timeout)"
                     : " answered, but messages of the collective did not arrive within %.1f s (--comm-timeout)",
             (double)comm->config.timeout_ms / 1000);
    return leader_fail(comm, c, what);
}

/* Between two polls of a leader. */
static Status leader_look(Comm *comm, HostsComm *c, CommWait *wait, int polls)
{
    int64_t longer = (int64_t)POLL_NS * (polls / SPINS);
    struct timespec pause = {.tv_nsec = longer < POLL_MAX_NS ? longer : POLL_MAX_NS};
    News news;
    bool heard;
    if (polls >= SPINS) nanosleep(&pause, NULL);
    if (polls % LOOK_EVERY) return OK;
    atomic_store(&c->shared->leader_ns, clock_ns());
    if (comm_shared_aborted(c->shared) >= 0) {
        leader_spread(comm, c);
        return shared_fail_aborted(&comm->config, c->shared);
    }
    TRY(news_hear(comm, c, &news, &heard));
    comm_wait_look(wait, &comm->config, comm_shared_progress_of_others(c->shared, c->process));
    return wait->left_ms > 0 ? OK : late_find(comm, c);
}

/* An error of the link itself, such as a connection that broke. */
static Status link_failed(Comm *comm, HostsComm *c, Status st)
{
    char what[COMM_NEWS_BYTES];
    if (st == OK || c->left) return st;
    snprintf(what, sizeof what, "host %s: %.300s", comm->config.place.host, status_message());
    return leader_fail(comm, c, what);
}

static Status request_wait(Comm *comm, HostsComm *c, Status begun, int request)
{
    CommWait wait = {0};
    Status st = begun;
    bool ended = false;
    for (int polls = 1; st == OK && !ended; polls++) {
        st = c->link->ops->test(c->link, request, &ended);
        if (st == OK && !ended) st = leader_look(comm, c, &wait, polls);
    }
    return link_failed(comm, c, st);
}

/* All leaders have come to this collective. */
static Status leaders_meet(Comm *comm, HostsComm *c)
{
    int request = 0, me = comm->config.place.group;
    c->numbers[me] = c->collective;
    Status st = c->link->ops->gather(c->link, c->numbers, sizeof *c->numbers, &request);
    TRY(request_wait(comm, c, st, request));
    for (int g = 0; g < comm->config.place.groups; g++) {
        if (c->numbers[g] == c->collective) continue;
        char what[COMM_NEWS_BYTES];
        snprintf(what, sizeof what, "hosts %s and %s meet in different collectives, %lld and %lld", c->card[me].host,
                 c->card[g].host, (long long)c->collective, (long long)c->numbers[g]);
        return leader_fail(comm, c, what);
    }
    return OK;
}

/* ---- sums */

/* Chunks that go one way between this leader and a neighbour, in order. */
typedef struct Flow {
    bool sends;
    int peer; /* -1: there is no neighbour on this side */
    int64_t begun, ended;
    int request[WINDOW];
} Flow;

typedef struct Range {
    float *at; /* in the result area */
    size_t count;
    int64_t chunks;
} Range;

static size_t chunk_count(const Range *range, int64_t chunk)
{
    size_t left = range->count - (size_t)chunk * CHUNK;
    return left < CHUNK ? left : CHUNK;
}

/* Begins the messages of chunks below `limit`, and notes which have ended. */
static Status flow_move(HostsComm *c, const Range *range, Flow *flow, int64_t limit, bool *moved)
{
    const LinkOps *ops = c->link->ops;
    while (flow->begun < limit && flow->begun - flow->ended < WINDOW) {
        float *at = range->at + (size_t)flow->begun * CHUNK;
        size_t bytes = chunk_count(range, flow->begun) * sizeof *at;
        int *request = &flow->request[flow->begun % WINDOW];
        TRY(flow->sends ? ops->send(c->link, flow->peer, at, bytes, request)
                        : ops->receive(c->link, flow->peer, at, bytes, request));
        flow->begun++;
        *moved = true;
    }
    for (bool ended = true; ended && flow->ended < flow->begun;) {
        TRY(ops->test(c->link, flow->request[flow->ended % WINDOW], &ended));
        if (!ended) break;
        flow->ended++;
        *moved = true;
    }
    return OK;
}

/* Adds this process's part of a chunk to its prefix. */
static void chunk_add(const Comm *comm, HostsComm *c, const Range *range, int64_t chunk)
{
    CommShared *shared = c->shared;
    float *at = range->at + (size_t)chunk * CHUNK;
    size_t from, to;
    shared_part(&comm->config, shared, chunk_count(range, chunk), &from, &to);
    shared_add(shared, (size_t)(at - shared_result(shared)) + from, to - from, comm->config.place.group > 0, at + from,
               NULL);
    atomic_store(&shared->added[c->process], c->chunks + chunk + 1);
}

static void chunk_copy(const Range *range, int64_t chunk, float *to)
{
    memcpy(to + (size_t)chunk * CHUNK, range->at + (size_t)chunk * CHUNK, chunk_count(range, chunk) * sizeof *to);
}

/* Chunks of this range to which all processes of the group have added their parts. */
static int64_t chunks_added(const HostsComm *c)
{
    int64_t least = INT64_MAX;
    for (int r = 0; r < c->shared->ranks; r++) {
        int64_t added = atomic_load(&c->shared->added[r]);
        if (added < least) least = added;
    }
    return least - c->chunks;
}

static Status sum_lead(Comm *comm, HostsComm *c, const Range *range, float *to)
{
    int group = comm->config.place.group, last = comm->config.place.groups - 1;
    Flow prefix_in = {false, group - 1}, prefix_out = {true, group + 1};
    Flow result_in = {false, group + 1}, result_out = {true, group - 1};
    int64_t added = 0, copied = 0, prefixed = 0, resulted = 0;
    CommWait wait = {0};
    for (int polls = 1; copied < range->chunks || (group > 0 && result_out.ended < range->chunks); polls++) {
        bool moved = false;
        if (group > 0) TRY(flow_move(c, range, &prefix_in, range->chunks, &moved));
        int64_t came = group > 0 ? prefix_in.ended : range->chunks;
        if (came > prefixed) shared_chain_moved(c->shared, &c->shared->prefixed, c->chunks + (prefixed = came));
        if (added < prefixed) {
            chunk_add(comm, c, range, added++);
            moved = true;
        }
        int64_t ready = chunks_added(c);
        if (group < last) TRY(flow_move(c, range, &prefix_out, ready, &moved));
        if (group < last) TRY(flow_move(c, range, &result_in, prefix_out.ended, &moved));
        int64_t done = group < last ? result_in.ended : ready;
        if (done > resulted) shared_chain_moved(c->shared, &c->shared->resulted, c->chunks + (resulted = done));
        if (group > 0) TRY(flow_move(c, range, &result_out, resulted, &moved));
        if (copied < resulted) {
            chunk_copy(range, copied++, to);
            moved = true;
        }
        if (moved) polls = 0;
        if (moved) wait = (CommWait){0};
        TRY(leader_look(comm, c, &wait, polls));
    }
    return OK;
}

static Status sum_follow(Comm *comm, HostsComm *c, const Range *range, float *to)
{
    CommShared *shared = c->shared;
    int64_t copied = 0;
    for (int64_t chunk = 0; chunk < range->chunks; chunk++) {
        TRY(shared_chain_wait(&comm->config, shared, &shared->prefixed, c->chunks + chunk + 1));
        chunk_add(comm, c, range, chunk);
        while (copied <= chunk && atomic_load(&shared->resulted) > c->chunks + copied) chunk_copy(range, copied++, to);
    }
    for (; copied < range->chunks; copied++) {
        TRY(shared_chain_wait(&comm->config, shared, &shared->resulted, c->chunks + copied + 1));
        chunk_copy(range, copied, to);
    }
    return OK;
}

static Status hosts_allreduce_begin(Comm *comm, int tower, size_t first, float *from, size_t count)
{
    memcpy(shared_slot(hosts_of(comm)->shared, tower) + first, from, count * sizeof *from);
    return OK;
}

static Status hosts_allreduce_end(Comm *comm, size_t first, float *to, size_t count)
{
    HostsComm *c = hosts_of(comm);
    Range range = {shared_result(c->shared) + first, count, (int64_t)((count + CHUNK - 1) / CHUNK)};
    c->collective++;
    TRY(shared_barrier(&comm->config, c->shared)); /* all slots are filled, and the result area is read */
    TRY(c->link ? link_failed(comm, c, sum_lead(comm, c, &range, to)) : sum_follow(comm, c, &range, to));
    c->chunks += range.chunks;
    return OK;
}

/* ---- the other collectives */

static Status hosts_broadcast(Comm *comm, void *buf, size_t bytes, int root)
{
    HostsComm *c = hosts_of(comm);
    const Placement *place = &comm->config.place;
    char *shared = c->shared->broadcast, *at = buf;
    int request = 0;
    c->collective++;
    for (size_t done = 0; done < bytes; done += BROADCAST_BYTES) {
        size_t n = bytes - done < BROADCAST_BYTES ? bytes - done : BROADCAST_BYTES;
        if (place->rank == root) memcpy(shared, at + done, n);
        TRY(shared_barrier(&comm->config, c->shared));
        if (c->link) {
            Status st = c->link->ops->broadcast(c->link, shared, n, root / c->shared->ranks, &request);
            TRY(request_wait(comm, c, st, request));
        }
        TRY(shared_barrier(&comm->config, c->shared));
        if (place->rank != root) memcpy(at + done, shared, n);
        TRY(shared_barrier(&comm->config, c->shared)); /* the area is read */
    }
    return OK;
}

static Status hosts_gather(Comm *comm, const void *mine, size_t bytes, void *all)
{
    HostsComm *c = hosts_of(comm);
    const Placement *place = &comm->config.place;
    size_t ranks = (size_t)place->ranks, per = (size_t)c->shared->ranks, piece = BROADCAST_BYTES / ranks;
    char *shared = c->shared->broadcast;
    int request = 0;
    c->collective++;
    for (size_t done = 0; done < bytes; done += piece) {
        size_t n = bytes - done < piece ? bytes - done : piece;
        memcpy(shared + (size_t)place->rank * n, (const char *)mine + done, n);
        TRY(shared_barrier(&comm->config, c->shared));
        if (c->link) {
            Status st = c->link->ops->gather(c->link, shared, per * n, &request);
            TRY(request_wait(comm, c, st, request));
        }
        TRY(shared_barrier(&comm->config, c->shared));
        for (size_t r = 0; r < ranks; r++) memcpy((char *)all + r * bytes + done, shared + r * n, n);
        TRY(shared_barrier(&comm->config, c->shared)); /* the area is read */
    }
    return OK;
}

static Status hosts_barrier(Comm *comm)
{
    HostsComm *c = hosts_of(comm);
    c->collective++;
    TRY(shared_barrier(&comm->config, c->shared));
    if (c->link) TRY(leaders_meet(comm, c));
    return shared_barrier(&comm->config, c->shared);
}

static Status hosts_look(Comm *comm, CommWait *wait)
{
    HostsComm *c = hosts_of(comm);
    News news;
    bool heard;
    comm_wait_look(wait, &comm->config, comm_shared_progress_of_others(c->shared, c->process));
    if (c->link && !c->left) TRY(link_failed(comm, c, news_hear(comm, c, &news, &heard)));
    if (comm_shared_aborted(c->shared) < 0) return OK;
    leader_spread(comm, c);
    return shared_fail_aborted(&comm->config, c->shared);
}

static void hosts_abort(Comm *comm)
{
    HostsComm *c = hosts_of(comm);
    StatusText words;
    status_keep(&words);
    comm_shared_abort(c->shared, c->process);
    leader_spread(comm, c);
    Status st = status_restore(OK, &words); /* the error that led here */
    (void)st;
}

static void hosts_text(const Comm *comm, char *text, size_t bytes)
{
    char mpi[128];
    comm_mpi_text(mpi, sizeof mpi);
    snprintf(text, bytes, "%s sums over %d groups of processes, in tower order", mpi, comm->config.place.groups);
}

static void hosts_destroy(HostsComm *c, bool orderly)
{
    if (c->link) c->link->ops->close(c->link, orderly);
    free(c->card);
    free(c->numbers);
    free(c->answers);
    free(c->aware);
    free(c);
}

/* MPI is finalized only if all leaders do it. */
static void hosts_close(Comm *comm)
{
    HostsComm *c = hosts_of(comm);
    c->collective++;
    if (comm_shared_aborted(c->shared) >= 0) leader_spread(comm, c);
    bool orderly = c->link && !c->left && leaders_meet(comm, c) == OK;
    hosts_destroy(c, orderly);
}

static const CommOps hosts_ops = {
    .allreduce_begin = hosts_allreduce_begin,
    .allreduce_end = hosts_allreduce_end,
    .broadcast = hosts_broadcast,
    .gather = hosts_gather,
    .barrier = hosts_barrier,
    .text = hosts_text,
    .look = hosts_look,
    .abort = hosts_abort,
    .close = hosts_close,
};

/* ---- opening */

/* The groups agree on the run, and their towers follow each other. */
static Status cards_check(Comm *comm, HostsComm *c)
{
    const CommConfig *config = &comm->config;
    const GroupCard *mine = &c->card[config->place.group];
    int next = 0;
    for (int g = 0; g < config->place.groups; g++) {
        const GroupCard *card = &c->card[g];
        c->card[g].host[sizeof card->host - 1] = 0;
        if (card->group != g || card->groups != mine->groups || card->processes != mine->processes ||
            card->ranks != mine->ranks || card->all_towers != mine->all_towers || card->max_count != mine->max_count)
            return FAIL(
                ERR_COMM,
                "host %s takes part as group %d of %d, with %d processes of %d in all, %d towers in all and "
                "%lld floats; host %s: %d of %d, %d of %d, %d towers, %lld floats: start all with the same options "
                "and the same build",
                card->host, (int)card->group, (int)card->groups, (int)card->processes, (int)card->ranks,
                (int)card->all_towers, (long long)card->max_count, mine->host, (int)mine->group, (int)mine->groups,
                (int)mine->processes, (int)mine->ranks, (int)mine->all_towers, (long long)mine->max_count);
        if (card->first_tower != next || card->towers < 1)
            return FAIL(ERR_COMM, "host %s, group %d: its %d towers begin at tower %d, expected tower %d", card->host,
                        g, (int)card->towers, (int)card->first_tower, next);
        next += card->towers;
    }
    if (next == config->towers) return OK;
    return FAIL(ERR_COMM, "%d groups hold %d towers, expected %d", config->place.groups, next, config->towers);
}

static Status leader_open(Comm *comm, HostsComm *c, LinkOpen link_open)
{
    const Placement *place = &comm->config.place;
    int request = 0;
    c->card = calloc((size_t)place->groups, sizeof *c->card);
    c->numbers = calloc((size_t)place->groups, sizeof *c->numbers);
    c->answers = calloc((size_t)place->groups, sizeof *c->answers);
    c->aware = calloc((size_t)place->groups, sizeof *c->aware);
    if (!c->card || !c->numbers || !c->answers || !c->aware)
        return FAIL(ERR_MEMORY, "no memory for the names of %d groups", place->groups);
    TRY(link_open(&comm->config, &c->link));
    GroupCard *mine = &c->card[place->group];
    *mine = (GroupCard){.group = place->group,
                        .groups = place->groups,
                        .processes = c->shared->ranks,
                        .ranks = place->ranks,
                        .first_tower = place->first_tower,
                        .towers = c->shared->towers,
                        .all_towers = comm->config.towers,
                        .max_count = (int64_t)comm->config.max_count};
    snprintf(mine->host, sizeof mine->host, "%s", place->host);
    c->shared->first_tower = place->first_tower;
    Status st = c->link->ops->gather(c->link, c->card, sizeof *c->card, &request);
    TRY(request_wait(comm, c, st, request));
    return cards_check(comm, c);
}

Status comm_hosts_open(const CommConfig *config, CommShared *shared, LinkOpen link_open, Comm **made)
{
    Comm *comm = NULL;
    TRY(shared_check(config, shared));
    HostsComm *c = calloc(1, sizeof *c);
    if (!c) return FAIL(ERR_MEMORY, "no memory for the communicator of rank %d", config->place.rank);
    c->shared = shared;
    c->process = group_rank(&config->place);
    Status st = comm_create(config, &hosts_ops, c, &comm);
    if (st == OK && c->process == 0) st = leader_open(comm, c, link_open);
    if (st == OK) st = shared_barrier(config, shared); /* first_tower is known */
    if (st == OK) {
        *made = comm;
        return OK;
    }
    if (comm) hosts_abort(comm);
    hosts_destroy(c, false);
    free(comm);
    return st;
}
