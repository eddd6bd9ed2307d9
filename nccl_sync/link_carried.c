/* A link that outlives tower processes: a process of its own, the carrier, opens it and makes all calls, for the leaders
 * that follow each other in a node. MPI needs this: in what a launcher has started it can be initialized only once, so
 * the second process that tries is ended (Open MPI 4.1, MPICH 4.0).
 *
 * Leader and carrier share the memory of `Carrier`. The leader copies what it sends into a message and gives its number to a
 * queue; the carrier begins operations in that order, and says in the message when one has ended. What leaders send each
 * other outside of collectives has two rings. */
#include "nccl_sync/link_carried.h"

#include "kernels/base/clock.h"
#include "kernels/base/pause.h"
#include "nccl_sync/hosts/control.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    CARRIED_BYTES = 1 << 19, /* a chunk of a sum, a piece of a broadcast, or the infos of all nodes */
    RING_MESSAGES = 4096,    /* one to each leader; a power of two, because counters wrap */
    LOOK_EVERY = 64          /* tests between looks whether the carrier lives */
};

typedef enum Operation {
    OPERATION_SEND = 0,
    OPERATION_RECEIVE,
    OPERATION_BROADCAST,
    OPERATION_GATHER, /* everywhere */
    OPERATION_GATHER_ROOT
} Operation;

typedef struct CarriedMessage {
    Operation operation;
    int peer; /* or the root of a broadcast */
    size_t bytes;
    int request; /* of the carrier's link */
    _Atomic bool ended;
    char data[CARRIED_BYTES];
} CarriedMessage;

/* Written by one side, read by the other. */
typedef struct MessageRing {
    _Atomic uint32_t written, read;
    int to[RING_MESSAGES];
    LeaderMessage message[RING_MESSAGES];
} MessageRing;

typedef enum CarrierState { CARRIER_CLOSED = 0, CARRIER_OPENING, CARRIER_OPEN, CARRIER_FAILED } CarrierState;

struct Carrier {
    pid_t pid; /* 0: it has ended */
    LinkOpen open;
    Placement place;          /* of a leader, but for its towers */
    _Atomic uint32_t wake_up; /* counts what there is to wake for; the carrier sleeps on it (futex) */
    _Atomic int state;        /* CarrierState */
    Status status;            /* of the failure */
    StatusText words;
    _Atomic bool orderly; /* the last leader has closed the link together with all others */
    _Atomic bool ends;
    _Atomic bool flushed;
    _Atomic uint32_t given;
    int queue[LINK_REQUESTS]; /* numbers of messages */
    CarriedMessage message[LINK_REQUESTS];
    MessageRing out, in;
};

static void carrier_wake(Carrier *c)
{
    atomic_fetch_add(&c->wake_up, 1);
    syscall(SYS_futex, &c->wake_up, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* False if it is full: a message may be lost. */
static bool ring_write(MessageRing *ring, int to, const LeaderMessage *message)
{
    uint32_t at = atomic_load(&ring->written);
    if (at - atomic_load(&ring->read) == RING_MESSAGES) return false;
    ring->to[at % RING_MESSAGES] = to;
    ring->message[at % RING_MESSAGES] = *message;
    atomic_store(&ring->written, at + 1);
    return true;
}

static bool ring_read(MessageRing *ring, int *to, LeaderMessage *message)
{
    uint32_t at = atomic_load(&ring->read);
    if (at == atomic_load(&ring->written)) return false;
    *to = ring->to[at % RING_MESSAGES];
    *message = ring->message[at % RING_MESSAGES];
    atomic_store(&ring->read, at + 1);
    return true;
}

/* ---- the carrier */

static Status message_begin(Link *link, CarriedMessage *p)
{
    const LinkOps *ops = link->ops;
    switch (p->operation) {
    case OPERATION_SEND: return ops->send(link, p->peer, p->data, p->bytes, &p->request);
    case OPERATION_RECEIVE: return ops->receive(link, p->peer, p->data, p->bytes, &p->request);
    case OPERATION_BROADCAST: return ops->broadcast(link, p->data, p->bytes, p->peer, &p->request);
    default: return ops->gather(link, p->data, p->bytes, p->operation == OPERATION_GATHER, &p->request);
    }
}

/* What the carrier has in progress. */
typedef struct CarriedInFlight {
    uint32_t taken;
    int active[LINK_REQUESTS], count;
} CarriedInFlight;

static Status operations_move(Carrier *c, Link *link, CarriedInFlight *work, bool *moved)
{
    for (; work->taken != atomic_load(&c->given); work->taken++) {
        int message = c->queue[work->taken % LINK_REQUESTS];
        TRY(message_begin(link, &c->message[message]));
        work->active[work->count++] = message;
        *moved = true;
    }
    for (int i = 0; i < work->count;) {
        bool ended;
        CarriedMessage *p = &c->message[work->active[i]];
        TRY(link->ops->test(link, p->request, &ended));
        if (!ended) {
            i++;
            continue;
        }
        work->active[i] = work->active[--work->count];
        atomic_store(&p->ended, true);
        *moved = true;
    }
    return OK;
}

/* Also after a failure, because the leader then notifies the others of it. */
static Status messages_move(Carrier *c, Link *link, bool *moved)
{
    int to;
    LeaderMessage message;
    bool heard;
    while (ring_read(&c->out, &to, &message)) {
        TRY(link->ops->notify(link, to, &message));
        *moved = true;
    }
    atomic_store(&c->flushed, link->ops->flushed(link));
    if (atomic_load(&c->in.written) - atomic_load(&c->in.read) == RING_MESSAGES)
        return OK; /* the link keeps the others */
    TRY(link->ops->poll(link, &message, &heard));
    if (heard) ring_write(&c->in, 0, &message);
    *moved |= heard;
    return OK;
}

static void carrier_fail(Carrier *c, Status st)
{
    if (st == OK || atomic_load(&c->state) == CARRIER_FAILED) return;
    c->status = st;
    status_keep(&c->words);
    atomic_store(&c->state, CARRIER_FAILED);
}

/* While an operation is in progress, or the leader is sending a message, with pauses that become longer; else until it
 * is woken. */
static void carrier_pause(Carrier *c, bool busy, int rounds, uint32_t wake_up)
{
    struct timespec idle = {.tv_nsec = CARRIER_IDLE_MS * 1000000l};
    if (busy) poll_pause(rounds, POLL_MAX_NS);
    if (!busy) syscall(SYS_futex, &c->wake_up, FUTEX_WAIT, wake_up, &idle, NULL, 0);
}

static _Noreturn void carrier_run(Carrier *c)
{
    Link *link = NULL;
    CarriedInFlight work = {0};
    for (int rounds = 0; !atomic_load(&c->ends); rounds++) {
        uint32_t wake_up = atomic_load(&c->wake_up);
        bool moved = false;
        if (atomic_load(&c->state) == CARRIER_OPENING) {
            CommConfig config = {.place = c->place};
            Status st = c->open(&config, &link);
            carrier_fail(c, st);
            if (st == OK) atomic_store(&c->state, CARRIER_OPEN);
        }
        if (atomic_load(&c->state) == CARRIER_OPEN) carrier_fail(c, operations_move(c, link, &work, &moved));
        if (link) carrier_fail(c, messages_move(c, link, &moved));
        if (moved) rounds = 0;
        bool failed = atomic_load(&c->state) == CARRIER_FAILED;
        carrier_pause(c, moved || (work.count > 0 && !failed), rounds, wake_up);
    }
    if (link) link->ops->close(link, atomic_load(&c->orderly));
    comm_exit(0);
}

Status carrier_start(LinkOpen open, const Placement *place, ControlPlane *control, Carrier **made)
{
    pid_t parent = getpid();
    Carrier *c = mmap(NULL, sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (c == MAP_FAILED)
        return FAIL(ERR_MEMORY, "cannot map %zu MiB for messages between programs: %s", sizeof *c >> 20,
                    strerror(errno));
    c->open = open;
    c->place = *place;
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0) {
        munmap(c, sizeof *c);
        return FAIL(ERR_MEMORY, "cannot start the process that carries messages between programs: %s", strerror(errno));
    }
    if (pid == 0) {
        control_forget(control);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(1);
        prctl(PR_SET_NAME, "carrier");
        static const int ignored[] = {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGHUP, SIGPIPE}; /* a supervisor's affair */
        for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) signal(ignored[i], SIG_IGN);
        carrier_run(c);
    }
    c->pid = pid;
    *made = c;
    return OK;
}

void carrier_end(Carrier *c)
{
    if (!c || !c->pid) return;
    int64_t end = clock_ns() + CARRIER_END_MS * 1000000ll;
    bool orderly = atomic_load(&c->orderly) && atomic_load(&c->state) == CARRIER_OPEN;
    atomic_store(&c->ends, true);
    carrier_wake(c);
    while (orderly && clock_ns() < end && waitpid(c->pid, NULL, WNOHANG) == 0) pause_ns(MOMENT_NS);
    if (waitpid(c->pid, NULL, WNOHANG) == 0) {
        kill(c->pid, SIGKILL);
        end = clock_ns() + LEAVE_MS * 1000000ll;
        while (clock_ns() < end && waitpid(c->pid, NULL, WNOHANG) == 0) pause_ns(MOMENT_NS);
    }
    c->pid = 0;
}

void carrier_destroy(Carrier *c)
{
    carrier_end(c);
    if (c) munmap(c, sizeof *c);
}

/* ---- the leader */

typedef struct CarriedLink {
    Link link;
    Carrier *carrier;        /* borrowed */
    void *to[LINK_REQUESTS]; /* where what comes goes; NULL: nowhere */
    size_t bytes[LINK_REQUESTS];
    bool used[LINK_REQUESTS];
    int tests;
} CarriedLink;

static Status carrier_check(CarriedLink *l)
{
    Carrier *c = l->carrier;
    if (atomic_load(&c->state) == CARRIER_FAILED) return status_restore(c->status, &c->words);
    if (l->tests++ % LOOK_EVERY || kill(c->pid, 0) == 0) return OK;
    return FAIL(ERR_COMM, "the process that carries messages to other programs, %ld, has ended", (long)c->pid);
}

/* from: what is sent, behind `before` bytes of the message; to: where all bytes of the message go in the end. */
static Status operation_give(Link *link, Operation operation, int peer, size_t bytes, const void *from, size_t before,
                             void *to, size_t all, int *request)
{
    CarriedLink *l = (CarriedLink *)link;
    Carrier *c = l->carrier;
    int i = 0;
    while (i < LINK_REQUESTS && l->used[i]) i++;
    if (i == LINK_REQUESTS || all > CARRIED_BYTES)
        return FAIL(ERR_INTERNAL, "a message of %zu bytes, or more than %d messages in progress", all, LINK_REQUESTS);
    CarriedMessage *p = &c->message[i];
    p->operation = operation;
    p->peer = peer;
    p->bytes = bytes;
    atomic_store(&p->ended, false);
    if (from) memcpy(p->data + before, from, bytes);
    l->to[i] = to;
    l->bytes[i] = all;
    l->used[i] = true;
    uint32_t given = atomic_load(&c->given);
    c->queue[given % LINK_REQUESTS] = i;
    atomic_store(&c->given, given + 1);
    carrier_wake(c);
    *request = i;
    return OK;
}

static Status carried_send(Link *link, int to, const void *from, size_t bytes, int *request)
{
    return operation_give(link, OPERATION_SEND, to, bytes, from, 0, NULL, bytes, request);
}

static Status carried_receive(Link *link, int from, void *to, size_t bytes, int *request)
{
    return operation_give(link, OPERATION_RECEIVE, from, bytes, NULL, 0, to, bytes, request);
}

static Status carried_broadcast(Link *link, void *buf, size_t bytes, int root, int *request)
{
    bool mine = ((CarriedLink *)link)->carrier->place.node == root;
    return operation_give(link, OPERATION_BROADCAST, root, bytes, mine ? buf : NULL, 0, mine ? NULL : buf, bytes,
                          request);
}

static Status carried_gather(Link *link, void *all, size_t bytes, bool everywhere, int *request)
{
    const Placement *place = &((CarriedLink *)link)->carrier->place;
    size_t before = (size_t)place->node * bytes;
    bool receives = everywhere || place->node == 0;
    return operation_give(link, everywhere ? OPERATION_GATHER : OPERATION_GATHER_ROOT, 0, bytes,
                          (const char *)all + before, before, receives ? all : NULL, (size_t)place->nodes * bytes,
                          request);
}

static Status carried_test(Link *link, int request, bool *ended)
{
    CarriedLink *l = (CarriedLink *)link;
    CarriedMessage *p = &l->carrier->message[request];
    *ended = atomic_load(&p->ended);
    if (!*ended) return carrier_check(l);
    if (l->to[request]) memcpy(l->to[request], p->data, l->bytes[request]);
    l->used[request] = false;
    return OK;
}

static Status carried_notify(Link *link, int to, const LeaderMessage *message)
{
    Carrier *c = ((CarriedLink *)link)->carrier;
    atomic_store(&c->flushed, false);
    ring_write(&c->out, to, message);
    carrier_wake(c);
    return OK;
}

static Status carried_poll(Link *link, LeaderMessage *message, bool *heard)
{
    int to;
    *heard = ring_read(&((CarriedLink *)link)->carrier->in, &to, message);
    return *heard ? OK : carrier_check((CarriedLink *)link);
}

static bool carried_flushed(Link *link)
{
    const Carrier *c = ((CarriedLink *)link)->carrier;
    return atomic_load(&c->flushed) && atomic_load(&c->out.read) == atomic_load(&c->out.written);
}

static void carried_close(Link *link, bool orderly)
{
    atomic_store(&((CarriedLink *)link)->carrier->orderly, orderly);
    free(link);
}

static const LinkOps carried_ops = {
    .send = carried_send,
    .receive = carried_receive,
    .broadcast = carried_broadcast,
    .gather = carried_gather,
    .test = carried_test,
    .notify = carried_notify,
    .poll = carried_poll,
    .flushed = carried_flushed,
    .close = carried_close,
};

Status link_carried_open(const CommConfig *config, Link **made)
{
    Carrier *c = config->carrier;
    CarriedLink *l = calloc(1, sizeof *l);
    if (!l) return FAIL(ERR_MEMORY, "no memory for messages between %d nodes", config->place.nodes);
    l->link.ops = &carried_ops;
    l->carrier = c;
    atomic_store(&c->in.read, atomic_load(&c->in.written)); /* of the leader before this one */
    int closed = CARRIER_CLOSED;
    bool first = atomic_compare_exchange_strong(&c->state, &closed, CARRIER_OPENING);
    bool clean = atomic_exchange(&c->orderly, false) || first; /* else messages may be in use */
    if (first) carrier_wake(c);
    progress_made("MPI_Init_thread");
    Status st = carrier_check(l);
    if (st == OK && !clean)
        st = FAIL(ERR_COMM, "the tower processes before these did not end their messages to other programs together");
    while (st == OK && atomic_load(&c->state) != CARRIER_OPEN) {
        st = carrier_check(l);
        pause_ns(MOMENT_NS);
    }
    progress_made("MPI_Init_thread");
    if (st == OK)
        *made = &l->link;
    else
        free(l);
    return st;
}
