/* A star of connections between programs, and the end of a run; see star.h. */
#include "nccl_sync/hosts/star.h"
#include "kernels/clock.h"
#include "kernels/open.h"
#include "kernels/progress.h"
#include "kernels/text.h"
#include "nccl_sync/hosts/net.h"

#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <xxhash.h>

enum {
    BEAT_MS = 1000,
    TURN_MS = 10,       /* between turns that others may interrupt */
    RETRY_MS = 100,     /* between attempts to connect */
    LATE_MS = 2000,     /* for the others to come and learn that the programs do not agree */
    HELLO_MS = 2000,    /* for the handshake of a connection */
    PAUSE_MS = 2000,    /* between turns: longer if this program was stopped itself */
    CAUSE_MS = 3000,    /* for the cause of a failure to be reported, after its consequence */
    FAILED_MS = 8000,   /* for the results of the others, after a failure */
    FLUSH_MS = 1000,    /* for the last frames to leave */
    FILES_MS = 120000,  /* for the files of all programs, which are brought before the results */
    STALL_MS = 8000,    /* without progress of a file, and without a sign of life of rank 0 */
    WINDOW = 1 << 20,   /* bytes of files that wait in a queue */
    STRANGERS_MAX = 32, /* connections that have not said who they are */
    STRANGER_BYTES = 4096,
    NEWS_ROOM = 64,  /* messages that nobody has heard */
    FILES_OPEN = 256 /* descriptors beside those of connections */
};

/* A connection. */
typedef struct Peer {
    NetPeer net;
    int64_t heard_ns, alive_ns; /* when the last frame came; the last sign of life of its towers, 0: none yet */
    int64_t ended_ns;           /* when its result came */
    bool proven;                /* it belongs to this job (handshake.h) */
    bool stranger;              /* it has not proven that to rank 0 */
    bool ready, ended;
    bool starved; /* no memory for what it sends, or for what is sent to it */
    StarEnd end;
    char host[STAR_HOST_BYTES];
    char *bytes; /* that it has sent, followed by a zero byte; of a gather, or of a broadcast from rank 0 */
    size_t byte_count;
} Peer;

/* A connection that has not proven yet that it belongs to this job. */
typedef struct Stranger {
    Peer peer;
    bool greeted; /* `hello` has come, and the challenge was sent */
    StarHello hello;
    Challenge challenge;
} Stranger;

struct Star {
    int rank, ranks;
    int64_t timeout_ms;
    uint64_t build;
    StarConfig config;
    StarHello hello; /* of this rank's connection to rank 0 */
    Peer *peer;      /* [ranks]: rank 0 is connected to all, the others only to rank 0 */
    int listener;
    Stranger stranger[STRANGERS_MAX];
    int refused; /* connections of other jobs */
    bool watching, welcome, go, failed, decided;
    bool orphaned; /* the connection to rank 0 has ended before the result came */
    int64_t beaten_ns, turned_ns, awake_ns;
    int stop_signal;
    StarEnd failure, result;
    StarTake *take;
    void *take_context;
    int taking;        /* the rank of which `take` is being called, without the lock; -1: none */
    StarFile unwanted; /* the last that rank 0 did not want */
    int64_t file_ns;   /* when rank 0 last received a part of a file */
    StarNews news[NEWS_ROOM];
    int news_first, news_count;
    bool left; /* star_leave */
    pthread_mutex_t mutex;
};

static bool is_root(const Star *c)
{
    return c->rank == 0;
}

/* ---- sending */

static void peer_send(Peer *peer, StarKind kind, const void *content, size_t bytes)
{
    StarHead head = {STAR_MAGIC, (uint32_t)kind, (uint32_t)bytes};
    if (net_send(&peer->net, &head, sizeof head, content, bytes) != OK) peer->starved = true;
}

/* To everybody that this rank is connected to, except one. */
static void all_send(Star *c, StarKind kind, const void *content, size_t bytes, int except)
{
    for (int r = 0; r < c->ranks; r++)
        if (r != except) peer_send(&c->peer[r], kind, content, bytes);
}

/* ---- receiving */

static void failure_take(Star *c, const StarEnd *end, int from)
{
    if (c->failed) return;
    c->failed = true;
    c->failure = *end;
    all_send(c, STAR_FAILED, end, sizeof *end, from);
}

__attribute__((format(printf, 4, 5))) static void failure_make(Star *c, Status status, int rank, const char *format,
                                                               ...)
{
    StarEnd end = {.rank = rank, .status = (int32_t)status};
    va_list args;
    va_start(args, format);
    vsnprintf(end.message, sizeof end.message, format, args);
    va_end(args);
    failure_take(c, &end, -1);
}

/* Whether a frame comes in its direction, and speaks of this run's ranks. Before rank 0 has proven itself it has nothing to
 * say but its challenge. */
static bool frame_fits(const Star *c, const Peer *peer, const StarFrame *frame)
{
    StarEnd end;
    StarNews news;
    StarSender sender = star_frame_sender(frame->kind);
    if (!peer->proven) return frame->kind == STAR_CHALLENGE;
    if (sender != STAR_FROM_ANY && sender != (is_root(c) ? STAR_FROM_OTHER : STAR_FROM_ROOT)) return false;
    switch (frame->kind) {
    case STAR_WELCOME: return frame->bytes == (size_t)c->ranks * STAR_HOST_BYTES;
    case STAR_NEWS:
        memcpy(&news, frame->content, sizeof news);
        return news.from >= 0 && news.from < c->ranks && news.to >= 0 && news.to < c->ranks;
    case STAR_REFUSED:
    case STAR_RESULT:
    case STAR_ENDED:
    case STAR_FAILED: memcpy(&end, frame->content, sizeof end); return end.rank < c->ranks;
    default: return true;
    }
}

/* To this rank, or on to another one. Of many that nobody hears, the first suffice. */
static void news_receive(Star *c, const StarFrame *frame)
{
    StarNews news;
    memcpy(&news, frame->content, sizeof news);
    if (news.to != c->rank)
        peer_send(&c->peer[is_root(c) ? news.to : 0], STAR_NEWS, &news, sizeof news);
    else if (c->news_count < NEWS_ROOM)
        c->news[(c->news_first + c->news_count++) % NEWS_ROOM] = news;
}

/* Disks may need long for a file. The star goes on meanwhile, but for the frames of this rank and for other files;
 * silence is counted anew afterwards, because frames have waited. */
static bool file_frame_take(Star *c, int from, const StarFrame *frame)
{
    if (!c->take) return true;
    c->taking = from;
    c->file_ns = clock_ns();
    pthread_mutex_unlock(&c->mutex);
    bool wanted = c->take(c->take_context, from, frame->kind, frame->content, frame->bytes);
    pthread_mutex_lock(&c->mutex);
    c->taking = -1;
    c->file_ns = c->awake_ns = clock_ns();
    return wanted;
}

static void frame_take(Star *c, int from, const StarFrame *frame)
{
    Peer *peer = &c->peer[from];
    StarEnd end;
    int32_t number;
    int64_t duration;
    peer->heard_ns = clock_ns();
    switch (frame->kind) {
    case STAR_WELCOME:
        c->welcome = true;
        for (int r = 0; r < c->ranks; r++)
            memcpy(c->peer[r].host, frame->content + (size_t)r * STAR_HOST_BYTES, STAR_HOST_BYTES);
        break;
    case STAR_BYTES:
        free(peer->bytes);
        peer->bytes = malloc(frame->bytes + 1);
        peer->byte_count = frame->bytes;
        peer->starved |= !peer->bytes;
        if (!peer->bytes) break;
        memcpy(peer->bytes, frame->content, frame->bytes);
        peer->bytes[frame->bytes] = 0;
        break;
    case STAR_NEWS: news_receive(c, frame); break;
    case STAR_READY: peer->ready = true; break;
    case STAR_GO: c->go = true; break;
    case STAR_BEAT:
        memcpy(&duration, frame->content, sizeof duration);
        peer->alive_ns = duration < peer->heard_ns ? peer->heard_ns - duration : 0;
        break;
    case STAR_STOP:
        memcpy(&number, frame->content, sizeof number);
        if (c->stop_signal) break;
        c->stop_signal = number;
        all_send(c, STAR_STOP, &number, sizeof number, from);
        break;
    case STAR_REFUSED:
    case STAR_FAILED:
        memcpy(&end, frame->content, sizeof end);
        failure_take(c, &end, from);
        break;
    case STAR_ENDED:
        memcpy(&peer->end, frame->content, sizeof peer->end);
        peer->ended = true;
        peer->ended_ns = peer->heard_ns;
        break;
    case STAR_FILE:
    case STAR_PIECE:
        if (!file_frame_take(c, from, frame) && frame->kind == STAR_FILE)
            peer_send(peer, STAR_HAVE, frame->content, frame->bytes);
        break;
    case STAR_HAVE: memcpy(&c->unwanted, frame->content, sizeof c->unwanted); break;
    case STAR_RESULT:
        memcpy(&c->result, frame->content, sizeof c->result);
        c->decided = true;
        break;
    default: break;
    }
}

static Hello hello_of(const char *channel, const StarHello *hello)
{
    return (Hello){channel, hello, sizeof *hello};
}

/* Rank 0 proves itself, and so does this rank; otherwise the connection and the run end here. */
static void challenge_take(Star *c, const StarFrame *frame)
{
    Peer *root = &c->peer[0];
    Challenge challenge;
    Proof proof;
    const Hello hello = hello_of(c->config.channel, &c->hello);
    memcpy(&challenge, frame->content, sizeof challenge);
    root->proven = handshake_prove(&c->config.secret, &hello, &challenge, &proof);
    if (root->proven) {
        peer_send(root, STAR_PROOF, &proof, sizeof proof);
        return;
    }
    net_close(&root->net);
    failure_make(
        c, ERR_ARG, c->rank,
        "has found the rank 0 of another job, or another program, at %s, port %d: it does not know this rank's "
        "token (from %s); if it is meant to be the same job set TOWERS_TOKEN to the same random text for all "
        "its programs, otherwise give each job its own TOWERS_MASTER_PORT",
        c->config.master, c->config.port, c->config.secret_from);
}

/* Takes what has come; false at the end of the connection. A stranger has little to say. */
static bool peer_receive(Peer *peer)
{
    size_t most = peer->stranger ? STRANGER_BYTES : 2 * (STAR_CONTENT_MAX + sizeof(StarHead));
    peer->starved |= net_receive(&peer->net, most) != OK;
    return !peer->starved && !peer->net.closed;
}

/* Whether a frame cannot be taken yet: bytes, before those that came first have been taken, unless nobody will take them
 * any more; a part of a file, while another one is being written. */
static bool frame_waits(const Star *c, const Peer *peer, StarKind kind)
{
    if (kind == STAR_BYTES) return peer->bytes && !c->failed && !c->watching;
    return (kind == STAR_FILE || kind == STAR_PIECE) && c->taking >= 0;
}

/* All complete frames of a peer, and then its end. */
static void peer_turn(Star *c, int rank)
{
    Peer *peer = &c->peer[rank];
    StarFrame frame;
    int64_t length;
    if (peer->net.fd < 0 || c->taking == rank) return;
    bool open = peer_receive(peer);
    while ((length = star_frame_read(peer->net.in, peer->net.in_used, &frame)) > 0 && !peer->starved) {
        if (frame_waits(c, peer, frame.kind)) return;
        if (!frame_fits(c, peer, &frame)) {
            length = -1;
            break;
        }
        if (frame.kind == STAR_CHALLENGE)
            challenge_take(c, &frame);
        else
            frame_take(c, rank, &frame);
        if (peer->net.fd < 0) return;
        net_skip(&peer->net, (size_t)length);
    }
    if (peer->starved) {
        failure_make(c, ERR_MEMORY, c->rank, "no memory for the messages between it and rank %d", rank);
        return;
    }
    if (open && length == 0) return;
    net_close(&peer->net);
    c->orphaned |= rank == 0 && !c->decided;
    if (peer->ended || c->decided || c->failed) return;
    if (length < 0)
        failure_make(c, ERR_COMM, rank, "sent what is no message of this program");
    else
        failure_make(c, ERR_COMM, rank, "its %s has ended without a message: it was killed, or its host is down",
                     c->config.part);
}

/* Nothing has been heard of it for longer than the timeout, without the time in which this program was stopped itself. */
static bool is_silent(const Star *c, int rank)
{
    int64_t heard = c->peer[rank].heard_ns > c->awake_ns ? c->peer[rank].heard_ns : c->awake_ns;
    return c->watching && c->taking < 0 && clock_ns() - heard > c->timeout_ms * 1000000ll;
}

/* The latest sign of life of any tower: by rank `rank`, and by the others. */
typedef struct Lives {
    int rank;
    int64_t latest, second; /* 0: none yet */
} Lives;

static Lives lives_find(const Star *c)
{
    Lives lives = {.rank = -1};
    for (int r = 0; r < c->ranks; r++) {
        int64_t alive = c->peer[r].alive_ns;
        if (alive > lives.latest)
            lives = (Lives){r, alive, lives.latest};
        else if (alive > lives.second)
            lives.second = alive;
    }
    return lives;
}

/* One round: wait at most wait_ms for something to happen, then take and send what there is. */
static void turn(Star *c, int wait_ms)
{
    struct pollfd polled[1 + STRANGERS_MAX + STAR_RANKS_MAX];
    nfds_t count = 0;
    if (c->listener >= 0) polled[count++] = (struct pollfd){c->listener, POLLIN, 0};
    for (int i = 0; i < STRANGERS_MAX; i++)
        if (c->stranger[i].peer.net.fd >= 0) polled[count++] = (struct pollfd){c->stranger[i].peer.net.fd, POLLIN, 0};
    for (int r = 0; r < c->ranks; r++)
        if (c->peer[r].net.fd >= 0)
            polled[count++] =
                (struct pollfd){c->peer[r].net.fd, (short)(POLLIN | (c->peer[r].net.out_used ? POLLOUT : 0)), 0};
    (void)poll(polled, count, wait_ms);
    for (int r = 0; r < c->ranks; r++) {
        net_flush(&c->peer[r].net);
        peer_turn(c, r);
    }
    int64_t now = clock_ns();
    if (!c->watching) return;
    if (now - c->turned_ns > PAUSE_MS * 1000000ll) c->awake_ns = now; /* this program was stopped itself */
    c->turned_ns = now;
    bool beat = now - c->beaten_ns > BEAT_MS * 1000000ll;
    if (beat) c->beaten_ns = now;
    Lives lives = lives_find(c);
    for (int r = 0; r < c->ranks; r++) {
        Peer *peer = &c->peer[r];
        /* It has ended in consequence of a failure that nobody reports: this is the only news of it. */
        bool alone = peer->ended && peer->end.status != OK && r != c->rank;
        if (alone && !c->failed && now - peer->ended_ns > CAUSE_MS * 1000000ll) failure_take(c, &peer->end, -1);
        if (peer->net.fd < 0) continue;
        /* Tell each rank the latest sign of life of all ranks but itself. */
        int64_t alive = r == lives.rank ? lives.second : lives.latest, life = alive ? now - alive : INT64_MAX;
        if (beat && !peer->net.out_used) peer_send(peer, STAR_BEAT, &life, sizeof life);
        if (is_silent(c, r) && !c->failed && !peer->ended)
            failure_make(c, ERR_COMM, r, "no sign of life of its %s for %.1f s (--comm-timeout)", c->config.part,
                         (double)c->timeout_ms * 1e-3);
    }
}

/* ---- meeting */

uint64_t star_build(void)
{
    enum { PIECE = 1 << 20 };
    uint64_t digest = 0;
    int from = regular_open("/proc/self/exe", O_RDONLY, NULL);
    uint8_t *piece = malloc(PIECE);
    ssize_t got;
    while (from >= 0 && piece && (got = read(from, piece, PIECE)) > 0)
        digest = XXH3_64bits_withSeed(piece, (size_t)got, digest);
    if (from >= 0) close(from);
    free(piece);
    return digest;
}

/* A program of this job has come. */
static void rank_take(Star *c, Stranger *stranger)
{
    const StarHello *hello = &stranger->hello;
    if (hello->ranks != c->ranks) {
        StarEnd end = {.status = ERR_ARG};
        snprintf(end.message, sizeof end.message,
                 "rank %d on %s is one of %d programs, but rank 0 is one of %d; start all with the same number",
                 hello->rank, hello->host, hello->ranks, c->ranks);
        c->refused++;
        peer_send(&stranger->peer, STAR_REFUSED, &end, sizeof end);
        net_close(&stranger->peer.net);
        return;
    }
    Peer *peer = &c->peer[hello->rank];
    bool twice = peer->net.fd >= 0;
    if (twice) {
        failure_make(c, ERR_ARG, 0, "rank %d has come twice, from %s and from %s; every program needs its own rank",
                     hello->rank, peer->host, hello->host);
        peer_send(&stranger->peer, STAR_FAILED, &c->failure, sizeof c->failure);
        net_close(&stranger->peer.net);
    } else {
        *peer = stranger->peer;
        peer->proven = true;
        peer->stranger = false;
        memcpy(peer->host, hello->host, sizeof peer->host);
        stranger->peer = (Peer){.net.fd = -1};
        if (c->failed) peer_send(peer, STAR_FAILED, &c->failure, sizeof c->failure);
    }
    if (!twice && !c->config.any_build && hello->build != c->build)
        failure_make(c, ERR_ARG, 0,
                     "rank %d on %s runs another build of towers (version %s, digest %016llx) than rank 0 "
                     "(version " TOWERS_VERSION ", digest %016llx); install the same file on all hosts",
                     hello->rank, hello->host, hello->version, (unsigned long long)hello->build,
                     (unsigned long long)c->build);
}

/* The next frame of a handshake. */
static void stranger_turn(Star *c, Stranger *stranger)
{
    NetPeer *net = &stranger->peer.net;
    StarFrame frame;
    Proof proof;
    const Hello hello = hello_of(c->config.channel, &stranger->hello);
    bool open = peer_receive(&stranger->peer);
    int64_t length = star_frame_read(net->in, net->in_used, &frame);
    bool silent = clock_ns() - stranger->peer.heard_ns > HELLO_MS * 1000000ll;
    if (length > 0 && frame.kind == STAR_HELLO && !stranger->greeted) {
        memcpy(&stranger->hello, frame.content, sizeof stranger->hello);
        net_skip(net, (size_t)length);
        stranger->greeted = handshake_challenge(&c->config.secret, &hello, &stranger->challenge) == OK;
        if (stranger->greeted)
            peer_send(&stranger->peer, STAR_CHALLENGE, &stranger->challenge, sizeof stranger->challenge);
        else
            net_close(net);
        return;
    }
    if (length > 0 && frame.kind == STAR_PROOF && stranger->greeted) {
        memcpy(&proof, frame.content, sizeof proof);
        net_skip(net, (size_t)length);
        if (handshake_holds(&c->config.secret, &hello, &stranger->challenge, &proof)) {
            rank_take(c, stranger);
            return;
        }
    }
    if (length == 0 && open && !silent) return;
    c->refused += stranger->greeted; /* it does not know the token, or has seen that this rank does not */
    net_close(net);
}

static void strangers_turn(Star *c)
{
    for (int i = 0; i < STRANGERS_MAX; i++) {
        if (c->stranger[i].peer.net.fd >= 0) continue;
        int fd = accept(c->listener, NULL, NULL);
        if (fd < 0) break;
        net_prepare(fd);
        c->stranger[i] = (Stranger){.peer = {.net.fd = fd, .heard_ns = clock_ns(), .stranger = true}};
    }
    for (int i = 0; i < STRANGERS_MAX; i++)
        if (c->stranger[i].peer.net.fd >= 0) stranger_turn(c, &c->stranger[i]);
}

static Status failure_status(const Star *c)
{
    const StarEnd *f = &c->failure;
    if (f->rank == 0 && f->status != ERR_COMM) return FAIL((Status)f->status, "%s", f->message);
    return FAIL((Status)f->status, "rank %d%s%s: %s", f->rank, *c->peer[f->rank].host ? " on " : "",
                c->peer[f->rank].host, f->message);
}

/* Rank 0 has a connection to each of the others. */
static Status descriptors_allow(int ranks)
{
    struct rlimit limit;
    rlim_t wanted = (rlim_t)ranks + STRANGERS_MAX + FILES_OPEN;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted || ranks < FILES_OPEN) return OK;
    rlim_t was = limit.rlim_cur;
    limit.rlim_cur = wanted;
    if (wanted <= limit.rlim_max && setrlimit(RLIMIT_NOFILE, &limit) == 0) return OK;
    return FAIL(ERR_COMM, "%d programs need %llu descriptors, but this one may open %llu: raise the limit (ulimit -n)",
                ranks, (unsigned long long)wanted, (unsigned long long)was);
}

static Status root_meet(Star *c, int port, int64_t deadline)
{
    int here = 1;
    TRY(descriptors_allow(c->ranks));
    TRY(net_listen(c->config.master, port, &c->listener));
    while (here < c->ranks && clock_ns() < deadline) {
        bool failed = c->failed;
        progress_made("waiting for the other hosts");
        turn(c, RETRY_MS);
        strangers_turn(c);
        if (c->failed && !failed) deadline = clock_ns() + LATE_MS * 1000000ll;
        here = 1;
        for (int r = 1; r < c->ranks; r++) here += c->peer[r].net.fd >= 0;
    }
    if (!c->failed && here < c->ranks) {
        char missing[512], came[512], others[96] = "";
        Text absent = text_start(missing, sizeof missing), present = text_start(came, sizeof came);
        for (int r = 0; r < c->ranks; r++)
            if (r == 0 || c->peer[r].net.fd >= 0)
                text_add(&present, "%s%d (%s)", present.used ? ", " : "", r, c->peer[r].host);
            else
                text_add(&absent, "%s%d", absent.used ? ", " : "", r);
        if (c->refused)
            snprintf(others, sizeof others, "; %d connections of other jobs were refused (TOWERS_TOKEN)", c->refused);
        failure_make(c, ERR_COMM, 0,
                     "of %d programs rank %s did not connect to port %d of %s within %.0f s (--comm-timeout); here are "
                     "%s%s",
                     c->ranks, missing, port, c->peer[0].host, (double)c->timeout_ms * 1e-3, came, others);
    }
    close(c->listener);
    c->listener = -1;
    for (int i = 0; i < STRANGERS_MAX; i++) net_close(&c->stranger[i].peer.net);
    if (c->failed) return failure_status(c);
    char *hosts = malloc((size_t)c->ranks * STAR_HOST_BYTES);
    if (!hosts) return FAIL(ERR_MEMORY, "no memory for the names of %d hosts", c->ranks);
    for (int r = 0; r < c->ranks; r++) memcpy(hosts + (size_t)r * STAR_HOST_BYTES, c->peer[r].host, STAR_HOST_BYTES);
    all_send(c, STAR_WELCOME, hosts, (size_t)c->ranks * STAR_HOST_BYTES, 0);
    free(hosts);
    return OK;
}

/* Connect to rank 0 and wait until all have come. A connection that ends before is tried again: rank 0 may be that of an
 * earlier attempt. */
static Status other_meet(Star *c, const StarConfig *config, int64_t deadline)
{
    char why[256] = "no attempt";
    StarHello *hello = &c->hello;
    *hello = (StarHello){.build = c->build, .rank = c->rank, .ranks = c->ranks};
    snprintf(hello->version, sizeof hello->version, "%s", TOWERS_VERSION);
    memcpy(hello->host, c->peer[c->rank].host, sizeof hello->host);
    Peer *root = &c->peer[0];
    while (clock_ns() < deadline && !c->welcome && !c->failed) {
        progress_made("connecting to the first host");
        root->net.fd = net_connect(config->master, config->port, why, sizeof why);
        if (root->net.fd >= 0) {
            root->proven = false;
            TRY(random_bytes(hello->nonce, sizeof hello->nonce));
            peer_send(root, STAR_HELLO, hello, sizeof *hello);
            snprintf(why, sizeof why, "connected, but not all programs have come");
        }
        while (root->net.fd >= 0 && !c->welcome && !c->failed && clock_ns() < deadline + NET_ATTEMPT_MS * 1000000ll) {
            root->ended = true; /* its end is no failure yet */
            progress_made("waiting for the other hosts");
            turn(c, RETRY_MS);
        }
        root->ended = false;
        if (!c->welcome && !c->failed) nanosleep(&(struct timespec){0, RETRY_MS * 1000000l}, NULL);
    }
    if (c->failed) return failure_status(c);
    c->orphaned = false; /* attempts that failed do not count */
    if (c->welcome) return OK;
    return FAIL(ERR_COMM, "rank %d on %s cannot meet rank 0 at %s, port %d, within %.0f s (--comm-timeout): %s",
                c->rank, hello->host, config->master, config->port, (double)c->timeout_ms * 1e-3, why);
}

Status star_open(const StarConfig *config, Star **made)
{
    Status st = OK;
    Star *c = calloc(1, sizeof *c);
    if (!c) return FAIL(ERR_MEMORY, "no memory for connections between programs");
    *c = (Star){.rank = config->rank,
                .ranks = config->ranks,
                .timeout_ms = config->timeout_ms,
                .build = config->any_build ? 0 : star_build(),
                .config = *config,
                .listener = -1,
                .taking = -1,
                .peer = calloc((size_t)config->ranks, sizeof *c->peer)};
    pthread_mutex_init(&c->mutex, NULL);
    for (int i = 0; i < STRANGERS_MAX; i++) c->stranger[i].peer.net.fd = -1;
    for (int r = 0; c->peer && r < c->ranks; r++) c->peer[r] = (Peer){.net.fd = -1};
    if (!c->peer) TRY_OUT(FAIL(ERR_MEMORY, "no memory for connections of %d programs", config->ranks));
    char *host = c->peer[c->rank].host;
    if (config->host)
        snprintf(host, STAR_HOST_BYTES, "%.*s", STAR_HOST_BYTES - 1, config->host);
    else if (gethostname(host, STAR_HOST_BYTES - 1) != 0)
        snprintf(host, STAR_HOST_BYTES, "an unnamed host");
    int64_t deadline = clock_ns() + config->timeout_ms * 1000000;
    TRY_OUT(is_root(c) ? root_meet(c, config->port, deadline) : other_meet(c, config, deadline));
    *made = c;
    return OK;
out:
    star_close(c);
    return st;
}

void star_forget(Star *c)
{
    if (!c) return;
    for (int r = 0; c->peer && r < c->ranks; r++) net_close(&c->peer[r].net);
}

void star_close(Star *c)
{
    if (!c) return;
    int64_t deadline = clock_ns() + FLUSH_MS * 1000000ll;
    /* The last frames leave. A connection closed with unread bytes in it would be reset, and they would be lost. */
    for (bool left = true; left && clock_ns() < deadline;) {
        left = false;
        for (int r = 0; c->peer && r < c->ranks; r++) {
            Peer *peer = &c->peer[r];
            if (peer->net.fd < 0 || peer->net.closed) continue;
            net_flush(&peer->net);
            if (!peer->net.out_used) (void)shutdown(peer->net.fd, SHUT_WR);
            peer->net.in_used = 0;
            left |= peer_receive(peer);
        }
        if (left) nanosleep(&(struct timespec){0, 10000000l}, NULL);
    }
    for (int r = 0; c->peer && r < c->ranks; r++) {
        net_close(&c->peer[r].net);
        free(c->peer[r].bytes);
    }
    free(c->peer);
    pthread_mutex_destroy(&c->mutex);
    free(c);
}

int star_rank(const Star *c)
{
    return c->rank;
}

int star_ranks(const Star *c)
{
    return c->ranks;
}

const char *star_host(const Star *c, int rank)
{
    return c->peer[rank].host;
}

/* ---- before the fork */

/* Waits until a rank has sent bytes; it may have ended since then. Rank 0, which may wait for another one itself, is given
 * twice the time. */
static Status bytes_await(Star *c, int rank, const char *what)
{
    const Peer *peer = &c->peer[rank];
    int64_t wait_ms = rank == 0 ? 2 * c->timeout_ms : c->timeout_ms, deadline = clock_ns() + wait_ms * 1000000;
    while (!peer->bytes && !c->failed && clock_ns() < deadline) turn(c, RETRY_MS);
    if (peer->bytes) return OK;
    if (c->failed) return failure_status(c);
    return FAIL(ERR_COMM, "rank %d on %s has not sent %s within %.0f s (%s--comm-timeout)", rank, peer->host, what,
                (double)wait_ms * 1e-3, rank == 0 ? "twice " : "");
}

Status star_broadcast(Star *c, char **bytes, size_t *count)
{
    if (is_root(c)) {
        if (*count > STAR_CONTENT_MAX)
            return FAIL(ERR_INTERNAL, "%zu bytes are too many for a message between programs", *count);
        all_send(c, STAR_BYTES, *bytes, *count, 0);
        return OK;
    }
    TRY(bytes_await(c, 0, "the settings of the run"));
    *bytes = c->peer[0].bytes;
    *count = c->peer[0].byte_count;
    c->peer[0].bytes = NULL;
    return OK;
}

Status star_gather(Star *c, const void *mine, size_t bytes, const char *what, void *all)
{
    Status st = OK;
    char *text = all;
    size_t count = (size_t)c->ranks * bytes;
    if (!is_root(c)) {
        peer_send(&c->peer[0], STAR_BYTES, mine, bytes);
        TRY(star_broadcast(c, &text, &count));
        if (count == (size_t)c->ranks * bytes)
            memcpy(all, text, count);
        else
            st = FAIL(ERR_INTERNAL, "rank 0 on %s sent %zu bytes of %s, not %zu", c->peer[0].host, count, what,
                      (size_t)c->ranks * bytes);
        free(text);
        return st;
    }
    memcpy(text, mine, bytes);
    for (int r = 1; r < c->ranks; r++) {
        Peer *peer = &c->peer[r];
        TRY(bytes_await(c, r, what));
        if (peer->byte_count != bytes)
            return FAIL(ERR_INTERNAL, "rank %d on %s sent %zu bytes of %s, not %zu", r, peer->host, peer->byte_count,
                        what, bytes);
        memcpy(text + (size_t)r * bytes, peer->bytes, bytes);
        free(peer->bytes);
        peer->bytes = NULL;
    }
    return star_broadcast(c, &text, &count);
}

Status star_barrier(Star *c, const char *what)
{
    int missing = 0;
    int64_t deadline = clock_ns() + c->timeout_ms * 1000000;
    if (!is_root(c)) peer_send(&c->peer[0], STAR_READY, NULL, 0);
    while (!c->failed && clock_ns() < deadline) {
        missing = 0;
        for (int r = 1; is_root(c) && r < c->ranks && !missing; r++) missing = c->peer[r].ready ? 0 : r;
        if (is_root(c) ? !missing : c->go) break;
        turn(c, RETRY_MS);
    }
    if (c->failed) return failure_status(c);
    if (is_root(c) ? missing : !c->go) {
        failure_make(c, ERR_COMM, c->rank, "waited for rank %d on %s to %s for %.0f s (--comm-timeout)", missing,
                     c->peer[missing].host, what, (double)c->timeout_ms * 1e-3);
        return failure_status(c);
    }
    for (int r = 0; r < c->ranks; r++) c->peer[r].ready = false;
    c->go = false;
    if (is_root(c)) all_send(c, STAR_GO, NULL, 0, 0);
    return OK;
}

/* ---- without waiting */

Status star_pump(Star *c)
{
    pthread_mutex_lock(&c->mutex);
    turn(c, 0);
    Status st = c->failed && !c->news_count ? failure_status(c) : OK;
    pthread_mutex_unlock(&c->mutex);
    return st;
}

void star_post(Star *c, int to, const void *bytes, size_t count)
{
    pthread_mutex_lock(&c->mutex);
    peer_send(&c->peer[to], STAR_BYTES, bytes, count);
    pthread_mutex_unlock(&c->mutex);
}

Status star_collect(Star *c, int from, void *to, size_t bytes, bool *came)
{
    Status st = OK;
    pthread_mutex_lock(&c->mutex);
    Peer *peer = &c->peer[from];
    *came = peer->bytes != NULL;
    if (*came && peer->byte_count != bytes)
        st = FAIL(ERR_COMM,
                  "host %s sends %zu bytes where %zu were expected: are all hosts running the same build with the same "
                  "options?",
                  peer->host, peer->byte_count, bytes);
    else if (*came)
        memcpy(to, peer->bytes, bytes);
    free(peer->bytes);
    peer->bytes = NULL;
    pthread_mutex_unlock(&c->mutex);
    return st;
}

void star_tell(Star *c, int to, const void *content, size_t bytes)
{
    StarNews news = {.from = c->rank, .to = to};
    memcpy(news.content, content, bytes < sizeof news.content ? bytes : sizeof news.content);
    pthread_mutex_lock(&c->mutex);
    peer_send(&c->peer[is_root(c) ? to : 0], STAR_NEWS, &news, sizeof news);
    pthread_mutex_unlock(&c->mutex);
}

bool star_hear(Star *c, void *content, size_t bytes)
{
    pthread_mutex_lock(&c->mutex);
    bool heard = c->news_count > 0;
    if (heard) {
        memcpy(content, c->news[c->news_first].content, bytes);
        c->news_first = (c->news_first + 1) % NEWS_ROOM;
        c->news_count--;
    }
    pthread_mutex_unlock(&c->mutex);
    return heard;
}

bool star_flushed(Star *c)
{
    bool out = true;
    pthread_mutex_lock(&c->mutex);
    for (int r = 0; r < c->ranks; r++) {
        net_flush(&c->peer[r].net);
        out &= c->peer[r].net.out_used == 0;
    }
    pthread_mutex_unlock(&c->mutex);
    return out;
}

/* ---- while towers run */

void star_watch(Star *c)
{
    pthread_mutex_lock(&c->mutex);
    c->turned_ns = c->awake_ns = clock_ns();
    c->watching = true;
    pthread_mutex_unlock(&c->mutex);
}

void star_turn(Star *c, int64_t alive_ns)
{
    pthread_mutex_lock(&c->mutex);
    c->peer[c->rank].alive_ns = alive_ns;
    turn(c, 0);
    pthread_mutex_unlock(&c->mutex);
}

int64_t star_others_alive(Star *c)
{
    int64_t alive = 0;
    pthread_mutex_lock(&c->mutex);
    for (int r = 0; r < c->ranks; r++)
        if (r != c->rank && c->peer[r].alive_ns > alive) alive = c->peer[r].alive_ns;
    pthread_mutex_unlock(&c->mutex);
    return alive;
}

void star_stop(Star *c, int signal_number)
{
    int32_t number = signal_number;
    pthread_mutex_lock(&c->mutex);
    if (!c->stop_signal) all_send(c, STAR_STOP, &number, sizeof number, -1);
    if (!c->stop_signal) c->stop_signal = signal_number;
    pthread_mutex_unlock(&c->mutex);
}

int star_stop_asked(Star *c)
{
    pthread_mutex_lock(&c->mutex);
    int number = c->stop_signal;
    pthread_mutex_unlock(&c->mutex);
    return number;
}

void star_fail(Star *c, const StarEnd *end)
{
    pthread_mutex_lock(&c->mutex);
    if (!c->decided) failure_take(c, end, -1);
    pthread_mutex_unlock(&c->mutex);
}

bool star_failed(Star *c, StarEnd *failure)
{
    pthread_mutex_lock(&c->mutex);
    bool failed = c->decided ? c->result.status != OK : c->failed;
    if (failed) *failure = c->decided ? c->result : c->failure;
    pthread_mutex_unlock(&c->mutex);
    return failed;
}

bool star_orphaned(Star *c)
{
    pthread_mutex_lock(&c->mutex);
    bool orphaned = c->orphaned;
    pthread_mutex_unlock(&c->mutex);
    return orphaned;
}

/* ---- files */

void star_take(Star *c, StarTake *take, void *context)
{
    pthread_mutex_lock(&c->mutex);
    c->take = take;
    c->take_context = context;
    pthread_mutex_unlock(&c->mutex);
}

Status star_send(Star *c, StarKind kind, const void *content, size_t bytes)
{
    NetPeer *root = &c->peer[0].net;
    int64_t since = clock_ns();
    size_t queued = SIZE_MAX;
    for (;;) {
        pthread_mutex_lock(&c->mutex);
        turn(c, 0);
        bool gone = root->fd < 0 || root->closed || c->left, room = root->out_used < WINDOW;
        if (root->out_used < queued) since = clock_ns();
        queued = root->out_used;
        bool heard = clock_ns() - c->peer[0].heard_ns < STALL_MS * 1000000ll; /* it is there: its disk needs long */
        int64_t limit = heard ? FILES_MS : STALL_MS;
        if (!gone && room) peer_send(&c->peer[0], kind, content, bytes);
        pthread_mutex_unlock(&c->mutex);
        if (gone || clock_ns() - since > limit * 1000000)
            return FAIL(ERR_COMM, "rank 0 on %s takes no more files", c->peer[0].host);
        if (room) return OK;
        nanosleep(&(struct timespec){0, 1000000l}, NULL);
    }
}

bool star_unwanted(Star *c, const StarFile *file)
{
    pthread_mutex_lock(&c->mutex);
    bool unwanted = !memcmp(&c->unwanted, file, sizeof *file);
    pthread_mutex_unlock(&c->mutex);
    return unwanted;
}

/* ---- the end */

/* The first failure that was reported; else the result of the lowest rank that failed by itself; else of the lowest that
 * failed at all; else success. */
static void result_choose(Star *c)
{
    c->result = c->peer[c->rank].end;
    for (int secondary = 1; secondary >= 0; secondary--)
        for (int r = c->ranks - 1; r >= 0; r--) {
            const StarEnd *end = &c->peer[r].end;
            if (c->peer[r].ended && end->status != OK && (end->secondary != 0) == secondary) c->result = *end;
        }
    if (c->failed) c->result = c->failure;
    for (int r = 0; r < c->ranks && !c->result.signal; r++)
        if (c->peer[r].ended) c->result.signal = c->peer[r].end.signal;
}

void star_end(Star *c, const StarEnd *mine, StarEnd *result)
{
    pthread_mutex_lock(&c->mutex);
    int64_t begun = clock_ns(), since = begun;
    c->peer[c->rank].end = *mine;
    c->peer[c->rank].ended = true;
    if (!is_root(c)) peer_send(&c->peer[0], STAR_ENDED, mine, sizeof *mine);
    for (bool waits = true; waits && !c->decided;) {
        int64_t limit = c->failed || mine->status != OK ? FAILED_MS : c->timeout_ms;
        waits = false;
        for (int r = 0; r < c->ranks; r++)
            waits |= c->peer[r].net.fd >= 0 && (!is_root(c) || !c->peer[r].ended) && !(c->failed && is_silent(c, r));
        /* Rank 0 waits longer while files come; it still says so to the others by its heartbeats. */
        int64_t news = !is_root(c) ? c->peer[0].heard_ns : c->taking >= 0 ? clock_ns() : c->file_ns;
        if (news > since && news - begun < FILES_MS * 1000000ll) since = news;
        waits &= clock_ns() - since < limit * 1000000 && !c->left;
        if (!waits) break;
        turn(c, 0);
        pthread_mutex_unlock(&c->mutex); /* a request to stop can be passed on meanwhile */
        nanosleep(&(struct timespec){0, TURN_MS * 1000000l}, NULL);
        pthread_mutex_lock(&c->mutex);
    }
    if (!c->decided) result_choose(c);
    if (is_root(c)) all_send(c, STAR_RESULT, &c->result, sizeof c->result, 0);
    c->decided = true;
    *result = c->result;
    pthread_mutex_unlock(&c->mutex);
}

void star_leave(Star *c)
{
    pthread_mutex_lock(&c->mutex);
    c->left = true;
    pthread_mutex_unlock(&c->mutex);
}
