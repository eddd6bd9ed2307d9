/* A control plane while towers run: signs of life, stops, failures, files for rank 0, and the result of the run; see control.h. */
#include "kernels/base/clock.h"
#include "kernels/base/pause.h"
#include "nccl_sync/hosts/control_internal.h"

enum { WINDOW = 1 << 20 /* bytes of files that wait in a queue */ };

void control_watch(ControlPlane *c)
{
    pthread_mutex_lock(&c->mutex);
    c->awake = (Silence){0};
    (void)silence_look(&c->awake, 0);
    c->watching = true;
    pthread_mutex_unlock(&c->mutex);
}

void control_serve(ControlPlane *c, int64_t alive_ns)
{
    pthread_mutex_lock(&c->mutex);
    c->peer[c->rank].alive_ns = alive_ns;
    control_round(c, 0);
    pthread_mutex_unlock(&c->mutex);
}

int64_t control_others_alive(ControlPlane *c)
{
    int64_t alive = 0;
    pthread_mutex_lock(&c->mutex);
    for (int r = 0; r < c->ranks; r++)
        if (r != c->rank && c->peer[r].alive_ns > alive) alive = c->peer[r].alive_ns;
    pthread_mutex_unlock(&c->mutex);
    return alive;
}

void control_come(ControlPlane *c, int64_t collective)
{
    pthread_mutex_lock(&c->mutex);
    c->peer[c->rank].collective = collective;
    pthread_mutex_unlock(&c->mutex);
}

NodesBehind control_behind(ControlPlane *c)
{
    pthread_mutex_lock(&c->mutex);
    int64_t least = c->peer[0].collective - is_late(c, 0);
    if (is_late(c, 0)) c->behind = (NodesBehind){1, {0}};
    NodesBehind behind = control_is_root(c) ? behind_find(c, &least) : c->behind;
    bool ahead = c->peer[c->rank].collective > least;
    pthread_mutex_unlock(&c->mutex);
    return ahead ? behind : (NodesBehind){0};
}

void control_stop(ControlPlane *c, int signal_number)
{
    int32_t number = signal_number;
    pthread_mutex_lock(&c->mutex);
    if (!c->stop_signal) all_send(c, CONTROL_STOP, &number, sizeof number, -1);
    if (!c->stop_signal) c->stop_signal = signal_number;
    pthread_mutex_unlock(&c->mutex);
}

int control_stop_asked(ControlPlane *c)
{
    pthread_mutex_lock(&c->mutex);
    int number = c->stop_signal;
    pthread_mutex_unlock(&c->mutex);
    return number;
}

void control_fail(ControlPlane *c, const ControlEnd *end)
{
    pthread_mutex_lock(&c->mutex);
    if (!c->decided) failure_take(c, end, -1);
    pthread_mutex_unlock(&c->mutex);
}

bool control_failed(ControlPlane *c, ControlEnd *failure)
{
    pthread_mutex_lock(&c->mutex);
    bool failed = c->decided ? c->result.status != OK : c->failed;
    if (failed) *failure = c->decided ? c->result : c->failure;
    pthread_mutex_unlock(&c->mutex);
    return failed;
}

bool control_orphaned(ControlPlane *c)
{
    pthread_mutex_lock(&c->mutex);
    bool orphaned = c->orphaned;
    pthread_mutex_unlock(&c->mutex);
    return orphaned;
}

/* ---- files */

void control_take(ControlPlane *c, bool takes)
{
    pthread_mutex_lock(&c->mutex);
    c->takes = takes;
    if (!takes) { /* what storage still holds is nobody's any more, and nobody waits behind it */
        c->taking = -1;
        c->takings++;
    }
    pthread_cond_broadcast(&c->came);
    pthread_mutex_unlock(&c->mutex);
}

/* Disks may need long for it. The frames of this rank behind it wait meanwhile, and so do other files; silence is counted anew
 * afterwards, because frames have waited. */
static void file_frame_take(ControlPlane *c, int from, const ControlFrame *frame, ControlTake *take, void *context)
{
    Peer *peer = &c->peer[from];
    size_t bytes = frame->bytes;
    void *content = malloc(bytes + 1); /* the buffer of the connection may be freed meanwhile */
    peer->starved |= !content;
    if (!content) return;
    memcpy(content, frame->content, bytes);
    net_skip(&peer->net, sizeof(ControlHead) + bytes);
    c->taking = c->taken = from;
    int64_t mine = ++c->takings;
    c->file_ns = peer->heard_ns = clock_ns();
    pthread_mutex_unlock(&c->mutex);
    bool wanted = take(context, from, frame->kind, content, bytes);
    pthread_mutex_lock(&c->mutex);
    if (c->takings != mine) { /* it has taken too long: control_take */
        free(content);
        return;
    }
    c->taking = -1;
    c->file_ns = c->awake.since_ns = clock_ns();
    if (!wanted && frame->kind == CONTROL_FILE) peer_send(peer, CONTROL_HAVE, content, bytes);
    free(content);
}

/* The rank after the last one comes first. */
static bool file_frame_find(const ControlPlane *c, int *from, ControlFrame *frame)
{
    for (int i = 1; i <= c->ranks && c->takes && c->taking < 0; i++) {
        *from = (c->taken + i) % c->ranks;
        const Peer *peer = &c->peer[*from];
        if (peer->net.fd < 0 || peer->starved || control_frame_read(peer->net.in, peer->net.in_used, frame) <= 0)
            continue;
        bool part = frame->kind == CONTROL_FILE || frame->kind == CONTROL_PIECE;
        if (part && frame_fits(c, peer, frame)) return true;
    }
    return false;
}

bool control_file_next(ControlPlane *c, int seconds, ControlTake *take, void *context)
{
    int from;
    ControlFrame frame;
    struct timespec until = clock_deadline(seconds);
    pthread_mutex_lock(&c->mutex);
    bool found = file_frame_find(c, &from, &frame);
    if (!found && c->takes) {
        (void)pthread_cond_clockwait(&c->came, &c->mutex, CLOCK_MONOTONIC, &until);
        found = file_frame_find(c, &from, &frame);
    }
    if (found) file_frame_take(c, from, &frame, take, context);
    if (found && c->takes) control_move(c, 0); /* what comes next may be there */
    pthread_mutex_unlock(&c->mutex);
    return found;
}

Status control_send(ControlPlane *c, ControlKind kind, const void *content, size_t bytes)
{
    NetPeer *root = &c->peer[0].net;
    int64_t since = clock_ns();
    size_t queued = SIZE_MAX;
    for (;;) {
        pthread_mutex_lock(&c->mutex);
        control_move(c, 0);
        bool gone = root->fd < 0 || root->closed || c->left, room = root->out_used < WINDOW;
        if (root->out_used < queued) since = clock_ns();
        queued = root->out_used;
        bool heard =
            clock_ns() - c->peer[0].heard_ns < CONTROL_STALL_MS * 1000000ll; /* it is there: its disk needs long */
        int64_t limit = heard ? CONTROL_FILES_MS : CONTROL_STALL_MS;
        if (!gone && room) peer_send(&c->peer[0], kind, content, bytes);
        pthread_mutex_unlock(&c->mutex);
        if (gone || clock_ns() - since > limit * 1000000)
            return FAIL(ERR_COMM, "rank 0 on %s takes no more files", c->peer[0].host);
        if (room) return OK;
        pause_ns(MOMENT_NS);
    }
}

bool control_unwanted(ControlPlane *c, const ControlFile *file)
{
    pthread_mutex_lock(&c->mutex);
    bool unwanted = !memcmp(&c->unwanted, file, sizeof *file);
    pthread_mutex_unlock(&c->mutex);
    return unwanted;
}

bool control_over(ControlPlane *c)
{
    pthread_mutex_lock(&c->mutex);
    bool over = c->decided || c->peer[0].net.fd < 0 || is_silent(c, 0);
    pthread_mutex_unlock(&c->mutex);
    return over;
}

/* ---- the end */

/* The first failure that was reported; else the result of the lowest rank that failed by itself; else of the lowest that
 * failed at all; else success. */
static void result_choose(ControlPlane *c)
{
    c->result = c->peer[c->rank].end;
    for (int secondary = 1; secondary >= 0; secondary--)
        for (int r = c->ranks - 1; r >= 0; r--) {
            const ControlEnd *end = &c->peer[r].end;
            if (c->peer[r].ended && end->status != OK && (end->secondary != 0) == secondary) c->result = *end;
        }
    if (c->failed) c->result = c->failure;
    for (int r = 0; r < c->ranks && !c->result.signal; r++)
        if (c->peer[r].ended) c->result.signal = c->peer[r].end.signal;
}

/* Rank 0 waits longer while files come, and says so to the others by its heartbeats. */
static bool end_waits(ControlPlane *c)
{
    int64_t limit = c->failed || c->peer[c->rank].end.status != OK ? CONTROL_FAILED_MS : c->timeout_ms;
    bool waits = false;
    for (int r = 0; r < c->ranks; r++)
        waits |=
            c->peer[r].net.fd >= 0 && (!control_is_root(c) || !c->peer[r].ended) && !(c->failed && is_silent(c, r));
    int64_t latest = !control_is_root(c) ? c->peer[0].heard_ns : c->taking >= 0 ? clock_ns() : c->file_ns;
    if (latest > c->waits_ns && latest - c->ending_ns < CONTROL_FILES_MS * 1000000ll) c->waits_ns = latest;
    return waits && clock_ns() - c->waits_ns < limit * 1000000 && !c->left;
}

bool control_end(ControlPlane *c, const ControlEnd *mine, ControlEnd *result)
{
    Peer *own = &c->peer[c->rank];
    pthread_mutex_lock(&c->mutex);
    if (!own->ended) {
        own->end = *mine;
        own->ended = true;
        c->ending_ns = c->waits_ns = clock_ns();
        if (!control_is_root(c)) peer_send(&c->peer[0], CONTROL_ENDED, mine, sizeof *mine);
    }
    bool ends = c->decided || !end_waits(c);
    if (ends && !c->decided) result_choose(c);
    if (ends && control_is_root(c)) all_send(c, CONTROL_RESULT, &c->result, sizeof c->result, 0);
    if (ends) *result = c->result;
    c->decided |= ends;
    pthread_mutex_unlock(&c->mutex);
    return ends;
}

void control_again(ControlPlane *c)
{
    pthread_mutex_lock(&c->mutex);
    c->watching = c->decided = c->left = false;
    c->behind = (NodesBehind){0};
    for (int r = 0; r < c->ranks; r++) {
        Peer *peer = &c->peer[r];
        peer->ended = false;
        peer->alive_ns = peer->collective = 0;
        bool connected = r != c->rank && (control_is_root(c) || r == 0);
        if (!connected || peer->net.fd >= 0) continue;
        c->orphaned |= r == 0;
        failure_make(c, ERR_COMM, r, "its %s has ended without a message: it was killed, or its host is down",
                     c->config.part);
    }
    pthread_mutex_unlock(&c->mutex);
}

void control_leave(ControlPlane *c)
{
    pthread_mutex_lock(&c->mutex);
    c->left = true;
    pthread_mutex_unlock(&c->mutex);
}
