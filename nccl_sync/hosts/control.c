/* A control plane between nodes: its frames, and what a round does with them; see control.h. */
#include "kernels/base/clock.h"
#include "nccl_sync/hosts/control_internal.h"

#include <poll.h>
#include <stdarg.h>

enum { PENDING_BYTES = 4096 };

/* ---- sending */

void peer_send(Peer *peer, ControlKind kind, const void *content, size_t bytes)
{
    ControlHead head = {CONTROL_MAGIC, (uint32_t)kind, (uint32_t)bytes};
    if (net_send(&peer->net, &head, sizeof head, content, bytes) != OK) peer->starved = true;
}

void all_send(ControlPlane *c, ControlKind kind, const void *content, size_t bytes, int except)
{
    for (int r = 0; r < c->ranks; r++)
        if (r != except) peer_send(&c->peer[r], kind, content, bytes);
}

/* ---- receiving */

void failure_take(ControlPlane *c, const ControlEnd *end, int from)
{
    if (c->failed) return;
    c->failed = true;
    c->failure = *end;
    all_send(c, CONTROL_FAILED, end, sizeof *end, from);
}

void failure_make(ControlPlane *c, Status status, int rank, const char *format, ...)
{
    ControlEnd end = {.rank = rank, .status = (int32_t)status};
    va_list args;
    va_start(args, format);
    vsnprintf(end.message, sizeof end.message, format, args);
    va_end(args);
    failure_take(c, &end, -1);
}

Status failure_status(const ControlPlane *c)
{
    const ControlEnd *f = &c->failure;
    if (f->rank == 0 && f->status != ERR_COMM) return FAIL((Status)f->status, "%s", f->message);
    return FAIL((Status)f->status, "rank %d%s%s: %s", f->rank, *c->peer[f->rank].host ? " on " : "",
                c->peer[f->rank].host, f->message);
}

/* Of hosts_are_whole. */
static int names_count(const ControlFrame *frame)
{
    int count = 0;
    for (size_t i = 0; i < frame->bytes; i++) count += frame->content[i] == 0;
    return count;
}

bool frame_fits(const ControlPlane *c, const Peer *peer, const ControlFrame *frame)
{
    ControlEnd end;
    ControlMessage message;
    ControlBeat beat;
    ControlSender sender = control_frame_sender(frame->kind);
    if (!peer->proven) return frame->kind == CONTROL_CHALLENGE;
    if (sender != CONTROL_FROM_ANY && sender != (control_is_root(c) ? CONTROL_FROM_OTHER : CONTROL_FROM_ROOT))
        return false;
    switch (frame->kind) {
    case CONTROL_WELCOME: return names_count(frame) == c->ranks;
    case CONTROL_MESSAGE:
        memcpy(&message, frame->content, sizeof message);
        return message.from >= 0 && message.from < c->ranks && message.to >= 0 && message.to < c->ranks;
    case CONTROL_BEAT:
        memcpy(&beat, frame->content, sizeof beat);
        for (int i = 0; i < NODES_NAMED; i++)
            if (beat.behind.node[i] >= c->ranks) return false;
        return beat.behind.count <= c->ranks;
    case CONTROL_REFUSED:
    case CONTROL_RESULT:
    case CONTROL_ENDED:
    case CONTROL_FAILED: memcpy(&end, frame->content, sizeof end); return end.rank < c->ranks;
    default: return true;
    }
}

/* To this rank, or on to another one. Of many that nobody hears, the first suffice. */
static void message_take(ControlPlane *c, const ControlFrame *frame)
{
    ControlMessage message;
    memcpy(&message, frame->content, sizeof message);
    if (message.to != c->rank)
        peer_send(&c->peer[control_is_root(c) ? message.to : 0], CONTROL_MESSAGE, &message, sizeof message);
    else if (c->message_count < MESSAGES_MAX)
        c->message[(c->message_first + c->message_count++) % MESSAGES_MAX] = message;
}

static void frame_take(ControlPlane *c, int from, const ControlFrame *frame)
{
    Peer *peer = &c->peer[from];
    ControlEnd end;
    ControlBeat beat;
    int32_t number;
    const char *host = (const char *)frame->content;
    peer->heard_ns = clock_ns();
    switch (frame->kind) {
    case CONTROL_WELCOME:
        c->welcome = true;
        for (int r = 0; r < c->ranks; r++, host += strlen(host) + 1)
            snprintf(c->peer[r].host, sizeof c->peer[r].host, "%s", host);
        break;
    case CONTROL_BYTES:
        free(peer->bytes);
        peer->bytes = malloc(frame->bytes + 1);
        peer->byte_count = frame->bytes;
        peer->starved |= !peer->bytes;
        if (!peer->bytes) break;
        memcpy(peer->bytes, frame->content, frame->bytes);
        peer->bytes[frame->bytes] = 0;
        break;
    case CONTROL_MESSAGE: message_take(c, frame); break;
    case CONTROL_READY: peer->ready = true; break;
    case CONTROL_GO: c->go = true; break;
    case CONTROL_BEAT:
        memcpy(&beat, frame->content, sizeof beat);
        peer->alive_ns = beat.life < peer->heard_ns ? peer->heard_ns - beat.life : 0;
        peer->collective = beat.collective;
        if (from == 0) c->behind = beat.behind;
        break;
    case CONTROL_STOP:
        memcpy(&number, frame->content, sizeof number);
        if (c->stop_signal) break;
        c->stop_signal = number;
        all_send(c, CONTROL_STOP, &number, sizeof number, from);
        break;
    case CONTROL_REFUSED:
    case CONTROL_FAILED:
        memcpy(&end, frame->content, sizeof end);
        failure_take(c, &end, from);
        break;
    case CONTROL_ENDED:
        memcpy(&peer->end, frame->content, sizeof peer->end);
        peer->ended = true;
        peer->ended_ns = peer->heard_ns;
        break;
    case CONTROL_HAVE: memcpy(&c->unwanted, frame->content, sizeof c->unwanted); break;
    case CONTROL_RESULT:
        memcpy(&c->result, frame->content, sizeof c->result);
        c->decided = true;
        break;
    default: break;
    }
}

/* Rank 0 proves itself, and so does this rank; otherwise the connection and the run end here. */
static void challenge_take(ControlPlane *c, const ControlFrame *frame)
{
    Peer *root = &c->peer[0];
    Challenge challenge;
    Proof proof;
    const Hello hello = hello_of(c->config.channel, &c->hello);
    memcpy(&challenge, frame->content, sizeof challenge);
    root->proven = handshake_prove(&c->config.secret, &hello, &challenge, &proof);
    if (root->proven) {
        peer_send(root, CONTROL_PROOF, &proof, sizeof proof);
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

bool peer_receive(Peer *peer)
{
    size_t most = peer->pending ? PENDING_BYTES : 2 * (CONTROL_CONTENT_MAX + sizeof(ControlHead));
    peer->starved |= net_receive(&peer->net, most) != OK;
    return !peer->starved && !peer->net.closed;
}

/* Whether a frame cannot be taken yet: bytes, before those that came first have been taken, unless nobody will take them
 * any more; a part of a file, which control_file_next takes, or as long as rank 0 may still say that it takes files. */
static bool frame_waits(ControlPlane *c, const Peer *peer, ControlKind kind)
{
    if (kind == CONTROL_BYTES) return peer->bytes && !c->failed && !c->watching;
    if (kind != CONTROL_FILE && kind != CONTROL_PIECE) return false;
    if (c->takes) pthread_cond_signal(&c->came);
    return c->takes || !c->watching;
}

/* All complete frames of a peer, and then its end. */
static void peer_serve(ControlPlane *c, int rank)
{
    Peer *peer = &c->peer[rank];
    ControlFrame frame;
    int64_t length;
    if (peer->net.fd < 0 || c->taking == rank) return;
    bool open = peer_receive(peer);
    while ((length = control_frame_read(peer->net.in, peer->net.in_used, &frame)) > 0 && !peer->starved) {
        if (!frame_fits(c, peer, &frame)) {
            length = -1;
            break;
        }
        if (frame_waits(c, peer, frame.kind)) return;
        if (frame.kind == CONTROL_CHALLENGE)
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

static bool is_unheard(const ControlPlane *c, int rank, int64_t ms)
{
    int64_t heard = c->peer[rank].heard_ns > c->awake.since_ns ? c->peer[rank].heard_ns : c->awake.since_ns;
    return c->watching && c->taking < 0 && clock_ns() - heard > ms * 1000000ll;
}

bool is_silent(const ControlPlane *c, int rank)
{
    return is_unheard(c, rank, c->timeout_ms);
}

bool is_late(const ControlPlane *c, int rank)
{
    return rank != c->rank && is_unheard(c, rank, c->timeout_ms / 2);
}

/* The latest sign of life of any tower: by rank `rank`, and by the others. */
typedef struct Lives {
    int rank;
    int64_t latest, second; /* 0: none yet */
} Lives;

static Lives lives_find(const ControlPlane *c)
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

NodesBehind behind_find(const ControlPlane *c, int64_t *least)
{
    NodesBehind behind = {0};
    *least = INT64_MAX;
    for (int r = 0; r < c->ranks; r++) {
        int64_t collective = c->peer[r].collective;
        if (collective > 0 && is_late(c, r)) collective--; /* what it has said last is old */
        if (collective < *least) behind.count = 0;
        if (collective <= *least && behind.count < NODES_NAMED) behind.node[behind.count] = (int16_t)r;
        if (collective <= *least) behind.count++;
        if (collective < *least) *least = collective;
    }
    return behind;
}

void control_move(ControlPlane *c, int wait_ms)
{
    struct pollfd polled[1 + PENDING_MAX + CONTROL_RANKS_MAX];
    nfds_t count = 0;
    if (c->listener >= 0) polled[count++] = (struct pollfd){c->listener, POLLIN, 0};
    for (int i = 0; i < PENDING_MAX; i++)
        if (c->pending[i].peer.net.fd >= 0) polled[count++] = (struct pollfd){c->pending[i].peer.net.fd, POLLIN, 0};
    for (int r = 0; r < c->ranks; r++)
        if (c->peer[r].net.fd >= 0)
            polled[count++] =
                (struct pollfd){c->peer[r].net.fd, (short)(POLLIN | (c->peer[r].net.out_used ? POLLOUT : 0)), 0};
    (void)poll(polled, count, wait_ms);
    for (int r = 0; r < c->ranks; r++) {
        net_flush(&c->peer[r].net);
        peer_serve(c, r);
    }
}

void control_round(ControlPlane *c, int wait_ms)
{
    control_move(c, wait_ms);
    int64_t now = clock_ns();
    if (!c->watching) return;
    (void)silence_look(&c->awake, 0);
    bool beat = now - c->beaten_ns > CONTROL_BEAT_MS * 1000000ll;
    if (beat) c->beaten_ns = now;
    Lives lives = lives_find(c);
    ControlBeat told = {.collective = c->peer[c->rank].collective};
    if (beat && control_is_root(c)) told.behind = behind_find(c, &told.collective);
    for (int r = 0; r < c->ranks; r++) {
        Peer *peer = &c->peer[r];
        /* It has ended in consequence of a failure that nobody reports: no other message reports it. */
        bool alone = peer->ended && peer->end.status != OK && r != c->rank;
        if (alone && !c->failed && now - peer->ended_ns > CAUSE_MS * 1000000ll) failure_take(c, &peer->end, -1);
        if (peer->net.fd < 0) continue;
        /* Send each rank the latest sign of life of all ranks but itself. */
        int64_t alive = r == lives.rank ? lives.second : lives.latest;
        told.life = alive ? now - alive : INT64_MAX;
        if (beat && !peer->net.out_used) peer_send(peer, CONTROL_BEAT, &told, sizeof told);
        if (is_silent(c, r) && !c->failed && !peer->ended)
            failure_make(c, ERR_COMM, r, "no sign of life of its %s for %.1f s (--comm-timeout)", c->config.part,
                         (double)c->timeout_ms * 1e-3);
    }
}

/* ---- before the fork */

/* Waits until a rank has sent bytes; it may have ended since then. Rank 0, which may wait for another one itself, is given
 * twice the time. */
static Status bytes_await(ControlPlane *c, int rank, const char *what)
{
    const Peer *peer = &c->peer[rank];
    int64_t wait_ms = rank == 0 ? 2 * c->timeout_ms : c->timeout_ms, deadline = clock_ns() + wait_ms * 1000000;
    while (!peer->bytes && !c->failed && clock_ns() < deadline) control_round(c, CONTROL_LOOK_MS);
    if (peer->bytes) return OK;
    if (c->failed) return failure_status(c);
    return FAIL(ERR_COMM, "rank %d on %s has not sent %s within %.0f s (%s--comm-timeout)", rank, peer->host, what,
                (double)wait_ms * 1e-3, rank == 0 ? "twice " : "");
}

Status control_broadcast(ControlPlane *c, char **bytes, size_t *count)
{
    if (control_is_root(c)) {
        if (*count > CONTROL_CONTENT_MAX)
            return FAIL(ERR_INTERNAL, "%zu bytes are too many for a message between programs", *count);
        all_send(c, CONTROL_BYTES, *bytes, *count, 0);
        return OK;
    }
    TRY(bytes_await(c, 0, "the settings of the run"));
    *bytes = c->peer[0].bytes;
    *count = c->peer[0].byte_count;
    c->peer[0].bytes = NULL;
    return OK;
}

Status control_gather(ControlPlane *c, const void *mine, size_t bytes, const char *what, void *all)
{
    Status st = OK;
    char *text = all;
    size_t count = (size_t)c->ranks * bytes;
    if (!control_is_root(c)) {
        peer_send(&c->peer[0], CONTROL_BYTES, mine, bytes);
        TRY(control_broadcast(c, &text, &count));
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
    return control_broadcast(c, &text, &count);
}

Status control_barrier(ControlPlane *c, const char *what)
{
    int missing = 0;
    int64_t deadline = clock_ns() + c->timeout_ms * 1000000;
    if (!control_is_root(c)) peer_send(&c->peer[0], CONTROL_READY, NULL, 0);
    while (!c->failed && clock_ns() < deadline) {
        missing = 0;
        for (int r = 1; control_is_root(c) && r < c->ranks && !missing; r++) missing = c->peer[r].ready ? 0 : r;
        if (control_is_root(c) ? !missing : c->go) break;
        control_round(c, CONTROL_LOOK_MS);
    }
    if (c->failed) return failure_status(c);
    if (control_is_root(c) ? missing : !c->go) {
        failure_make(c, ERR_COMM, c->rank, "waited for rank %d on %s to %s for %.0f s (--comm-timeout)", missing,
                     c->peer[missing].host, what, (double)c->timeout_ms * 1e-3);
        return failure_status(c);
    }
    for (int r = 0; r < c->ranks; r++) c->peer[r].ready = false;
    c->go = false;
    if (control_is_root(c)) all_send(c, CONTROL_GO, NULL, 0, 0);
    return OK;
}

/* ---- without waiting */

Status control_pump(ControlPlane *c)
{
    pthread_mutex_lock(&c->mutex);
    control_round(c, 0);
    Status st = c->failed && !c->message_count ? failure_status(c) : OK;
    pthread_mutex_unlock(&c->mutex);
    return st;
}

void control_post(ControlPlane *c, int to, const void *bytes, size_t count)
{
    pthread_mutex_lock(&c->mutex);
    peer_send(&c->peer[to], CONTROL_BYTES, bytes, count);
    pthread_mutex_unlock(&c->mutex);
}

Status control_collect(ControlPlane *c, int from, void *to, size_t bytes, bool *came)
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

void control_notify(ControlPlane *c, int to, const void *content, size_t bytes)
{
    ControlMessage message = {.from = c->rank, .to = to};
    memcpy(message.content, content, bytes < sizeof message.content ? bytes : sizeof message.content);
    pthread_mutex_lock(&c->mutex);
    peer_send(&c->peer[control_is_root(c) ? to : 0], CONTROL_MESSAGE, &message, sizeof message);
    pthread_mutex_unlock(&c->mutex);
}

bool control_poll(ControlPlane *c, void *content, size_t bytes)
{
    pthread_mutex_lock(&c->mutex);
    bool heard = c->message_count > 0;
    if (heard) {
        memcpy(content, c->message[c->message_first].content, bytes);
        c->message_first = (c->message_first + 1) % MESSAGES_MAX;
        c->message_count--;
    }
    pthread_mutex_unlock(&c->mutex);
    return heard;
}

bool control_flushed(ControlPlane *c)
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
