/* How the nodes of a run meet: handshakes, who is missing, opening and closing a control plane; see control.h. */
#include "kernels/base/clock.h"
#include "kernels/base/open.h"
#include "kernels/base/pause.h"
#include "kernels/base/progress.h"
#include "kernels/base/text.h"
#include "nccl_sync/hosts/control_internal.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <xxhash.h>

enum { FILES_OPEN = 256 /* descriptors beside those of connections */ };

uint64_t control_build(void)
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

/* It is one of another number of nodes, does not know the token, has seen that this rank does not, or has ended. */
static void pending_refuse(ControlPlane *c, const ControlHello *hello)
{
    c->refused++;
    c->claims = *hello;
}

/* A node of this job has come. */
static void rank_take(ControlPlane *c, Pending *pending)
{
    const ControlHello *hello = &pending->hello;
    if (hello->ranks != c->ranks) {
        ControlEnd end = {.status = ERR_ARG};
        snprintf(end.message, sizeof end.message,
                 "rank %d on %s is one of %d programs, but rank 0 is one of %d; start all with the same number",
                 hello->rank, hello->host, hello->ranks, c->ranks);
        pending_refuse(c, hello);
        peer_send(&pending->peer, CONTROL_REFUSED, &end, sizeof end);
        net_close(&pending->peer.net);
        return;
    }
    Peer *peer = &c->peer[hello->rank];
    bool twice = peer->net.fd >= 0;
    if (twice) {
        failure_make(c, ERR_ARG, 0, "rank %d has come twice, from %s and from %s; every program needs its own rank",
                     hello->rank, peer->host, hello->host);
        peer_send(&pending->peer, CONTROL_FAILED, &c->failure, sizeof c->failure);
        net_close(&pending->peer.net);
    } else {
        *peer = pending->peer;
        peer->proven = true;
        peer->pending = false;
        memcpy(peer->host, hello->host, sizeof peer->host);
        pending->peer = (Peer){.net.fd = -1};
        if (c->failed) peer_send(peer, CONTROL_FAILED, &c->failure, sizeof c->failure);
    }
    if (!twice && !c->config.any_build && hello->build != c->build)
        failure_make(c, ERR_ARG, 0,
                     "rank %d on %s runs another build of towers (version %s, digest %016" PRIx64 ") than rank 0 "
                     "(version " TOWERS_VERSION ", digest %016" PRIx64 "); install the same file on all hosts",
                     hello->rank, hello->host, hello->version, hello->build, c->build);
}

/* The next frame of a handshake. */
static void pending_serve(ControlPlane *c, Pending *pending)
{
    NetPeer *net = &pending->peer.net;
    ControlFrame frame;
    Proof proof;
    const Hello hello = hello_of(c->config.channel, &pending->hello);
    bool open = peer_receive(&pending->peer);
    int64_t length = control_frame_read(net->in, net->in_used, &frame);
    bool silent = clock_ns() - pending->peer.heard_ns > HELLO_MS * 1000000ll;
    if (length > 0 && frame.kind == CONTROL_HELLO && !pending->challenged) {
        memcpy(&pending->hello, frame.content, sizeof pending->hello);
        net_skip(net, (size_t)length);
        pending->challenged = handshake_challenge(&c->config.secret, &hello, &pending->challenge) == OK;
        if (pending->challenged)
            peer_send(&pending->peer, CONTROL_CHALLENGE, &pending->challenge, sizeof pending->challenge);
        else
            net_close(net);
        return;
    }
    if (length > 0 && frame.kind == CONTROL_PROOF && pending->challenged) {
        memcpy(&proof, frame.content, sizeof proof);
        net_skip(net, (size_t)length);
        if (handshake_holds(&c->config.secret, &hello, &pending->challenge, &proof)) {
            rank_take(c, pending);
            return;
        }
    }
    if (length == 0 && open && !silent) return;
    if (pending->challenged) pending_refuse(c, &pending->hello);
    net_close(net);
}

static void pending_serve_all(ControlPlane *c)
{
    for (int i = 0; i < PENDING_MAX; i++) {
        if (c->pending[i].peer.net.fd >= 0) continue;
        int fd = accept(c->listener, NULL, NULL);
        if (fd < 0) break;
        net_prepare(fd);
        c->pending[i] = (Pending){.peer = {.net.fd = fd, .heard_ns = clock_ns(), .pending = true}};
    }
    for (int i = 0; i < PENDING_MAX; i++)
        if (c->pending[i].peer.net.fd >= 0) pending_serve(c, &c->pending[i]);
}

/* Rank 0 has a connection to each of the others. */
static Status descriptors_allow(int ranks)
{
    struct rlimit limit;
    rlim_t wanted = (rlim_t)ranks + PENDING_MAX + FILES_OPEN;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted || ranks < FILES_OPEN) return OK;
    rlim_t was = limit.rlim_cur;
    limit.rlim_cur = wanted;
    if (wanted <= limit.rlim_max && setrlimit(RLIMIT_NOFILE, &limit) == 0) return OK;
    return FAIL(ERR_COMM,
                "%d programs need %" PRIu64 " descriptors, but this one may open %" PRIu64
                ": raise the limit (ulimit -n)",
                ranks, wanted, was);
}

/* Says for whom this node waits, if that is due. */
static void wait_note(ControlPlane *c, const char *for_whom)
{
    int64_t now = clock_ns();
    if (!c->config.waits || now < c->note_ns) return;
    c->config.waits(c->config.waits_context, (double)(now - c->met_from_ns) * 1e-9, for_whom);
    c->note_ns = now + MEET_AGAIN_MS * 1000000ll;
}

/* "1, 2, 5": the ranks that have not come. */
static const char *ranks_missing(const ControlPlane *c, char *text, size_t bytes)
{
    Text absent = text_start(text, bytes);
    for (int r = 1; r < c->ranks; r++)
        if (c->peer[r].net.fd < 0) text_add(&absent, "%s%d", absent.used ? ", " : "", r);
    return text;
}

static void root_wait_note(ControlPlane *c, int port)
{
    char missing[512], whom[768];
    snprintf(whom, sizeof whom, "for rank %s of %d programs to connect to port %d of %s",
             ranks_missing(c, missing, sizeof missing), c->ranks, port, c->peer[0].host);
    wait_note(c, whom);
}

static void other_wait_note(ControlPlane *c, const char *why)
{
    char whom[768];
    snprintf(whom, sizeof whom, "for rank 0 of %d programs at %s, port %d: %s", c->ranks, c->config.master,
             c->config.port, why);
    wait_note(c, whom);
}

static Status root_meet(ControlPlane *c, int port, int64_t deadline)
{
    int here = 1;
    TRY(descriptors_allow(c->ranks));
    TRY(net_listen(c->config.master, port, &c->listener));
    while (here < c->ranks && clock_ns() < deadline) {
        bool failed = c->failed;
        progress_made("waiting for the other hosts");
        root_wait_note(c, port);
        control_round(c, CONTROL_LOOK_MS);
        pending_serve_all(c);
        if (c->failed && !failed) deadline = clock_ns() + MEET_LATE_MS * 1000000ll;
        here = 1;
        for (int r = 1; r < c->ranks; r++) here += c->peer[r].net.fd >= 0;
    }
    if (!c->failed && here < c->ranks) {
        char missing[512], came[512], others[192] = "";
        Text present = text_start(came, sizeof came);
        for (int r = 0; r < c->ranks; r++)
            if (r == 0 || c->peer[r].net.fd >= 0)
                text_add(&present, "%s%d (%s)", present.used ? ", " : "", r, c->peer[r].host);
        if (c->refused)
            snprintf(others, sizeof others,
                     "; %d connections did not prove to be of this job (TOWERS_TOKEN, the number of programs), "
                     "the last as rank %d of %d on %s",
                     c->refused, c->claims.rank, c->claims.ranks, c->claims.host);
        failure_make(c, ERR_COMM, 0,
                     "of %d programs rank %s did not connect to port %d of %s within %.0f s (--comm-timeout); here are "
                     "%s%s",
                     c->ranks, ranks_missing(c, missing, sizeof missing), port, c->peer[0].host,
                     (double)c->timeout_ms * 1e-3, came, others);
    }
    close(c->listener);
    c->listener = -1;
    for (int i = 0; i < PENDING_MAX; i++) net_close(&c->pending[i].peer.net);
    if (c->failed) return failure_status(c);
    char *hosts = malloc((size_t)c->ranks * CONTROL_HOST_BYTES), *end = hosts;
    if (!hosts) return FAIL(ERR_MEMORY, "no memory for the names of %d hosts", c->ranks);
    for (int r = 0; r < c->ranks; r++) end = stpcpy(end, c->peer[r].host) + 1; /* all of them go to each: packed */
    all_send(c, CONTROL_WELCOME, hosts, (size_t)(end - hosts), 0);
    free(hosts);
    return OK;
}

/* Connect to rank 0 and wait until all have come. A connection that ends before is tried again: rank 0 may be that of an
 * earlier attempt. */
static Status other_meet(ControlPlane *c, const ControlConfig *config, int64_t deadline)
{
    char why[256] = "no attempt";
    ControlHello *hello = &c->hello;
    *hello = (ControlHello){.build = c->build, .rank = c->rank, .ranks = c->ranks};
    snprintf(hello->version, sizeof hello->version, "%s", TOWERS_VERSION);
    memcpy(hello->host, c->peer[c->rank].host, sizeof hello->host);
    Peer *root = &c->peer[0];
    while (clock_ns() < deadline && !c->welcome && !c->failed) {
        progress_made("connecting to the first host");
        other_wait_note(c, why);
        root->net.fd = net_connect(config->master, config->port, why, sizeof why);
        if (root->net.fd >= 0) {
            root->proven = false;
            TRY(random_bytes(hello->nonce, sizeof hello->nonce));
            peer_send(root, CONTROL_HELLO, hello, sizeof *hello);
            snprintf(why, sizeof why, "connected, but not all programs have come");
        }
        while (root->net.fd >= 0 && !c->welcome && !c->failed && clock_ns() < deadline + NET_ATTEMPT_MS * 1000000ll) {
            root->ended = true; /* its end is no failure yet */
            progress_made("waiting for the other hosts");
            other_wait_note(c, why);
            control_round(c, CONTROL_LOOK_MS);
        }
        root->ended = false;
        if (!c->welcome && !c->failed) pause_ms(CONTROL_LOOK_MS);
    }
    if (c->failed) return failure_status(c);
    c->orphaned = false; /* attempts that failed do not count */
    if (c->welcome) return OK;
    return FAIL(ERR_COMM, "rank %d on %s cannot meet rank 0 at %s, port %d, within %.0f s (--comm-timeout): %s",
                c->rank, hello->host, config->master, config->port, (double)c->timeout_ms * 1e-3, why);
}

Status control_open(const ControlConfig *config, ControlPlane **made)
{
    Status st = OK;
    ControlPlane *c = calloc(1, sizeof *c);
    if (!c) return FAIL(ERR_MEMORY, "no memory for connections between programs");
    *c = (ControlPlane){.rank = config->rank,
                        .ranks = config->ranks,
                        .timeout_ms = config->timeout_ms,
                        .build = config->any_build ? 0 : control_build(),
                        .config = *config,
                        .listener = -1,
                        .taking = -1,
                        .peer = calloc((size_t)config->ranks, sizeof *c->peer)};
    pthread_mutex_init(&c->mutex, NULL);
    pthread_cond_init(&c->came, NULL);
    for (int i = 0; i < PENDING_MAX; i++) c->pending[i].peer.net.fd = -1;
    for (int r = 0; c->peer && r < c->ranks; r++) c->peer[r] = (Peer){.net.fd = -1};
    if (!c->peer) TRY_OUT(FAIL(ERR_MEMORY, "no memory for connections of %d programs", config->ranks));
    char *host = c->peer[c->rank].host;
    if (config->host)
        snprintf(host, CONTROL_HOST_BYTES, "%.*s", CONTROL_HOST_BYTES - 1, config->host);
    else if (gethostname(host, CONTROL_HOST_BYTES - 1) != 0)
        snprintf(host, CONTROL_HOST_BYTES, "an unnamed host");
    c->met_from_ns = clock_ns();
    c->note_ns = c->met_from_ns + MEET_NOTE_MS * 1000000ll;
    int64_t deadline = c->met_from_ns + config->timeout_ms * 1000000;
    TRY_OUT(control_is_root(c) ? root_meet(c, config->port, deadline) : other_meet(c, config, deadline));
    *made = c;
    return OK;
out:
    control_close(c);
    return st;
}

void control_forget(ControlPlane *c)
{
    if (!c) return;
    for (int r = 0; c->peer && r < c->ranks; r++) net_close(&c->peer[r].net);
}

/* The last frames leave, as far as they can. A connection closed with unread bytes in it would be reset, and they would be lost. */
static bool frames_leave(ControlPlane *c)
{
    bool left = false;
    for (int r = 0; c->peer && r < c->ranks; r++) {
        Peer *peer = &c->peer[r];
        if (peer->net.fd < 0 || peer->net.closed) continue;
        net_flush(&peer->net);
        if (!peer->net.out_used) (void)shutdown(peer->net.fd, SHUT_WR);
        peer->net.in_used = 0;
        left |= peer_receive(peer);
    }
    return left;
}

static void control_free(ControlPlane *c)
{
    for (int r = 0; c->peer && r < c->ranks; r++) free(c->peer[r].bytes);
    free(c->peer);
    pthread_cond_destroy(&c->came);
    pthread_mutex_destroy(&c->mutex);
    free(c);
}

void control_close(ControlPlane *c)
{
    if (!c) return;
    int64_t deadline = clock_ns() + CONTROL_FLUSH_MS * 1000000ll;
    pthread_mutex_lock(&c->mutex);
    c->closed = true;
    while (frames_leave(c) && clock_ns() < deadline) pause_ms(CONTROL_SERVE_MS);
    for (int r = 0; c->peer && r < c->ranks; r++) net_close(&c->peer[r].net);
    bool used = c->users > 0;
    pthread_mutex_unlock(&c->mutex);
    if (!used) control_free(c);
}

void control_keep(ControlPlane *c)
{
    pthread_mutex_lock(&c->mutex);
    c->users++;
    pthread_mutex_unlock(&c->mutex);
}

void control_release(ControlPlane *c)
{
    pthread_mutex_lock(&c->mutex);
    bool last = --c->users == 0 && c->closed;
    pthread_mutex_unlock(&c->mutex);
    if (last) control_free(c);
}

int control_rank(const ControlPlane *c)
{
    return c->rank;
}

int control_ranks(const ControlPlane *c)
{
    return c->ranks;
}

const char *control_host(const ControlPlane *c, int rank)
{
    return c->peer[rank].host;
}
