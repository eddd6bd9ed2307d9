/* Messages between the leaders of all groups over TCP, where no MPI has started them: what NCCL needs beside its own
 * collectives. A star: group 0 listens, all others are connected to it, and it passes on what they say to each other. No
 * sums: send and receive are refused.
 *
 * A frame is {magic, kind, to, bytes} and that many bytes; integers in the order of the machine, all hosts are alike.
 * A connection begins with a handshake (handshake.h). When all have come they are WELCOME; if some have not by
 * the deadline, those that have are REFUSED with the names of the others. Of the collectives, one is in progress at a
 * time; a data frame that comes early is left unread until its collective begins. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "kernels/clock.h"
#include "kernels/progress.h"
#include "kernels/text.h"
#include "nccl_sync/link_frames.h"
#include "nccl_sync/net.h"

enum {
    STRANGERS_MAX = 32,
    RETRY_MS = 100,
    NEWS_ROOM = 64,
    FLUSH_MS = 2000,
    STRANGER_MS = 5000, /* for a handshake; a connection that is closed is tried again */
    REFUSAL_MS = 5000,  /* the hub's own deadline passes first, and it knows more */
    REFUSAL_BYTES = 1024
};

typedef struct Peer {
    NetPeer net;
    char host[64];
} Peer;

/* A connection that has not proven yet that it belongs to this job. */
typedef struct Stranger {
    Peer peer;
    int64_t since_ns; /* when it was accepted */
    bool greeted;     /* `hello` has come, and the challenge was sent */
    LinkHello hello;
    Challenge challenge;
} Stranger;

typedef enum TcpKind { TCP_NOTHING = 0, TCP_BROADCAST, TCP_GATHER } TcpKind;

typedef struct TcpLink {
    Link link;
    int group, groups;
    Secret secret;
    Peer *peer; /* owned: [groups]; group 0 is connected to all, the others to group 0 */
    /* the collective in progress */
    TcpKind kind;
    char *at;
    size_t bytes;
    int root, came; /* gather in group 0: parts that have come */
    bool *has_come; /* owned: [groups] */
    News news[NEWS_ROOM];
    int news_first, news_count;
} TcpLink;

/* ---- frames */

static Status peer_send(Peer *peer, FrameKind kind, int to, const void *content, size_t bytes)
{
    FrameHead head = {FRAME_MAGIC, (uint32_t)kind, to, (uint32_t)bytes};
    return net_send(&peer->net, &head, sizeof head, content, bytes);
}

static Status peer_receive(Peer *peer)
{
    return net_receive(&peer->net, 2 * FRAME_BYTES_MAX);
}

/* ---- collectives */

/* Takes a data frame if the collective in progress waits for it. */
static Status data_take(TcpLink *t, int from, const Frame *frame, bool *taken)
{
    bool hub = t->group == 0;
    size_t wanted = t->kind == TCP_GATHER && !hub ? t->bytes * (size_t)t->groups : t->bytes;
    *taken = t->kind == TCP_GATHER ? !t->has_come[from] : t->kind == TCP_BROADCAST && from == (hub ? t->root : 0);
    if (!*taken) return OK;
    if (frame->bytes != wanted)
        return FAIL(
            ERR_COMM,
            "host %s sends %zu bytes where %zu were expected: are all hosts running the same build with the same "
            "options?",
            t->peer[from].host, frame->bytes, wanted);
    memcpy(t->kind == TCP_GATHER && hub ? t->at + (size_t)from * t->bytes : t->at, frame->content, frame->bytes);
    if (t->kind == TCP_GATHER && hub) {
        t->has_come[from] = true;
        if (++t->came < t->groups - 1) return OK;
        wanted *= (size_t)t->groups;
    }
    for (int g = 1; hub && g < t->groups; g++)
        if (t->kind == TCP_GATHER || g != from) TRY(peer_send(&t->peer[g], FRAME_DATA, g, t->at, wanted));
    t->kind = TCP_NOTHING;
    return OK;
}

static Status news_take(TcpLink *t, const Frame *frame)
{
    if (frame->to > 0 && t->group == 0)
        return peer_send(&t->peer[frame->to], FRAME_NEWS, frame->to, frame->content, frame->bytes);
    if (t->news_count == NEWS_ROOM) return OK; /* of so many the first tell enough */
    memcpy(&t->news[(t->news_first + t->news_count++) % NEWS_ROOM], frame->content, sizeof(News));
    return OK;
}

/* Sends and receives what can be. */
static Status pump(TcpLink *t)
{
    for (int g = 0; g < t->groups; g++) {
        Peer *peer = &t->peer[g];
        Frame frame;
        int64_t length;
        if (peer->net.fd < 0) continue;
        net_flush(&peer->net);
        TRY(peer_receive(peer));
        while ((length = frame_read(peer->net.in, peer->net.in_used, t->groups, &frame)) > 0) {
            bool taken = true;
            if (frame.kind == FRAME_DATA) TRY(data_take(t, g, &frame, &taken));
            if (frame.kind == FRAME_NEWS) TRY(news_take(t, &frame));
            if (!taken) break;
            net_skip(&peer->net, (size_t)length);
        }
        if (length < 0) return FAIL(ERR_COMM, "host %s sends what is no message of this program", peer->host);
        if (peer->net.closed && length == 0 && !t->news_count)
            return FAIL(ERR_COMM, "host %s has closed its connection: its first tower process has ended", peer->host);
    }
    return OK;
}

static Status tcp_begin(TcpLink *t, TcpKind kind, void *at, size_t bytes, int root, int *request)
{
    bool hub = t->group == 0;
    t->kind = kind;
    t->at = at;
    t->bytes = bytes;
    t->root = root;
    t->came = 0;
    memset(t->has_come, 0, (size_t)t->groups * sizeof *t->has_come);
    *request = 0;
    if (kind == TCP_GATHER && !hub) return peer_send(t->peer, FRAME_DATA, 0, t->at + (size_t)t->group * bytes, bytes);
    if (kind != TCP_BROADCAST || root != t->group) return OK;
    for (int g = 0; g < t->groups; g++) TRY(peer_send(&t->peer[g], FRAME_DATA, g, at, bytes));
    t->kind = TCP_NOTHING;
    return OK;
}

static Status tcp_broadcast(Link *link, void *buf, size_t bytes, int root, int *request)
{
    return tcp_begin((TcpLink *)link, TCP_BROADCAST, buf, bytes, root, request);
}

static Status tcp_gather(Link *link, void *all, size_t bytes, int *request)
{
    return tcp_begin((TcpLink *)link, TCP_GATHER, all, bytes, 0, request);
}

static Status tcp_test(Link *link, int request, bool *ended)
{
    TcpLink *t = (TcpLink *)link;
    (void)request;
    Status st = pump(t);
    *ended = t->kind == TCP_NOTHING; /* then the others may have closed their connections already */
    return *ended ? OK : st;
}

static Status tcp_send(Link *link, int to, const void *from, size_t bytes, int *request)
{
    (void)link, (void)from, (void)bytes, (void)request;
    return FAIL(ERR_INTERNAL, "a sum with group %d over TCP: NCCL or MPI makes the sums", to);
}

static Status tcp_receive(Link *link, int from, void *to, size_t bytes, int *request)
{
    return tcp_send(link, from, to, bytes, request);
}

static Status tcp_tell(Link *link, int to, const News *news)
{
    TcpLink *t = (TcpLink *)link;
    return peer_send(&t->peer[t->group ? 0 : to], FRAME_NEWS, to, news, sizeof *news);
}

static Status tcp_hear(Link *link, News *news, bool *heard)
{
    TcpLink *t = (TcpLink *)link;
    TRY(pump(t));
    *heard = t->news_count > 0;
    if (!*heard) return OK;
    *news = t->news[t->news_first];
    t->news_first = (t->news_first + 1) % NEWS_ROOM;
    t->news_count--;
    return OK;
}

static bool tcp_told(Link *link)
{
    TcpLink *t = (TcpLink *)link;
    bool out = true;
    for (int g = 0; g < t->groups; g++) {
        if (t->peer[g].net.fd < 0) continue;
        net_flush(&t->peer[g].net);
        out &= t->peer[g].net.out_used == 0;
    }
    return out;
}

static void tcp_close(Link *link, bool orderly)
{
    TcpLink *t = (TcpLink *)link;
    struct timespec pause = {.tv_nsec = 1000000};
    int64_t end = clock_ns() + FLUSH_MS * 1000000ll;
    while (orderly && !tcp_told(link) && clock_ns() < end) nanosleep(&pause, NULL);
    for (int g = 0; t->peer && g < t->groups; g++) net_close(&t->peer[g].net);
    free(t->peer);
    free(t->has_come);
    free(t);
}

static const LinkOps tcp_ops = {
    .send = tcp_send,
    .receive = tcp_receive,
    .broadcast = tcp_broadcast,
    .gather = tcp_gather,
    .test = tcp_test,
    .tell = tcp_tell,
    .hear = tcp_hear,
    .told = tcp_told,
    .close = tcp_close,
};

/* ---- meeting */

static Hello hello_of(const LinkHello *hello)
{
    return (Hello){"link", hello, sizeof *hello};
}

/* Takes a connection that belongs to this job: whose is it? `refused` tells of those that were turned away. */
static Status group_take(TcpLink *t, Stranger *stranger, Text *refused)
{
    const LinkHello *hello = &stranger->hello;
    char why[REFUSAL_BYTES] = "";
    Peer *peer = &t->peer[hello->group];
    if (hello->groups != t->groups)
        snprintf(why, sizeof why, "host %s takes part in a run of %d groups, host %s in one of %d", hello->host,
                 (int)hello->groups, t->peer[0].host, t->groups);
    else if (peer->net.fd >= 0)
        snprintf(why, sizeof why, "hosts %s and %s both say that they are group %d", peer->host, hello->host,
                 (int)hello->group);
    if (!*why) {
        *peer = stranger->peer;
        snprintf(peer->host, sizeof peer->host, "%s", hello->host);
        *stranger = (Stranger){.peer.net.fd = -1};
        t->came++;
        return OK;
    }
    text_add(refused, "; %s", why);
    Status st = peer_send(&stranger->peer, FRAME_REFUSED, (int)hello->group, why, strlen(why) + 1);
    net_close(&stranger->peer.net);
    return st;
}

/* The next frame of a handshake. */
static void stranger_turn(TcpLink *t, Stranger *stranger, Text *refused)
{
    NetPeer *net = &stranger->peer.net;
    Frame frame;
    Proof proof;
    const Hello hello = hello_of(&stranger->hello);
    Status st = peer_receive(&stranger->peer);
    int64_t length = st == OK ? frame_read(net->in, net->in_used, t->groups, &frame) : -1;
    bool late = clock_ns() - stranger->since_ns > STRANGER_MS * 1000000ll;
    if (length > 0 && frame.kind == FRAME_HELLO && !stranger->greeted) {
        memcpy(&stranger->hello, frame.content, sizeof stranger->hello);
        net_skip(net, frame.length);
        stranger->greeted = true;
        st = handshake_challenge(&t->secret, &hello, &stranger->challenge);
        if (st == OK)
            st = peer_send(&stranger->peer, FRAME_CHALLENGE, (int)stranger->hello.group, &stranger->challenge,
                           sizeof stranger->challenge);
        if (st != OK) net_close(net);
        return;
    }
    if (length > 0 && frame.kind == FRAME_PROOF && stranger->greeted) {
        memcpy(&proof, frame.content, sizeof proof);
        net_skip(net, frame.length);
        if (handshake_holds(&t->secret, &hello, &stranger->challenge, &proof)) {
            st = group_take(t, stranger, refused);
            if (st != OK) net_close(net);
            return;
        }
    }
    if (length == 0 && !net->closed && !late) return;
    if (stranger->greeted)
        text_add(refused, "; host %s belongs to another job: its token differs", stranger->hello.host);
    net_close(net); /* it speaks another language, or does not speak */
}

static void strangers_turn(TcpLink *t, int listener, Stranger *strangers, Text *refused)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), free_one = -1;
    for (int i = 0; i < STRANGERS_MAX; i++)
        if (strangers[i].peer.net.fd >= 0)
            stranger_turn(t, &strangers[i], refused);
        else
            free_one = i;
    if (fd < 0) return;
    net_prepare(fd);
    if (free_one < 0)
        close(fd); /* it tries again */
    else
        strangers[free_one] = (Stranger){.peer.net.fd = fd, .since_ns = clock_ns()};
}

/* The names of the groups that have come, and the numbers of those that have not. */
static void missing_text(const TcpLink *t, int64_t timeout_ms, Text *text)
{
    text_add(text, "of %d groups these did not come within %.1f s (--comm-timeout):", t->groups,
             (double)timeout_ms / 1000);
    for (int g = 1; g < t->groups; g++)
        if (t->peer[g].net.fd < 0) text_add(text, " %d", g);
    text_add(text, "; there are: 0 (host %s)", t->peer[0].host);
    for (int g = 1; g < t->groups; g++)
        if (t->peer[g].net.fd >= 0) text_add(text, ", %d (host %s)", g, t->peer[g].host);
}

static Status hub_meet(TcpLink *t, const CommConfig *config)
{
    Stranger strangers[STRANGERS_MAX];
    char why[REFUSAL_BYTES], turned_away[512] = "";
    Text refused = text_start(turned_away, sizeof turned_away), text = text_start(why, sizeof why);
    int listener;
    int64_t end = clock_ns() + config->timeout_ms * 1000000;
    TRY(net_listen(config->master, config->port, &listener));
    for (int i = 0; i < STRANGERS_MAX; i++) strangers[i] = (Stranger){.peer.net.fd = -1};
    while (t->came < t->groups - 1 && clock_ns() < end) {
        struct pollfd polled = {listener, POLLIN, 0};
        (void)poll(&polled, 1, 10);
        progress_made("waiting for the other hosts");
        strangers_turn(t, listener, strangers, &refused);
    }
    bool all = t->came == t->groups - 1;
    if (!all) missing_text(t, config->timeout_ms, &text);
    text_add(&text, "%s", turned_away);
    for (int i = 0; i < STRANGERS_MAX; i++) net_close(&strangers[i].peer.net);
    close(listener);
    for (int g = 1; g < t->groups; g++)
        TRY(peer_send(&t->peer[g], all ? FRAME_WELCOME : FRAME_REFUSED, g, all ? t->peer[0].host : why,
                      all ? sizeof t->peer[0].host : strlen(why) + 1));
    return all ? OK : FAIL(ERR_COMM, "%s", why);
}

/* Takes group 0's answer. Nothing else counts before group 0 has proven that it belongs to this job. */
static Status answer_take(TcpLink *t, const CommConfig *config, const LinkHello *greeting, const Frame *frame,
                          bool *proven, bool *welcome)
{
    Peer *hub = &t->peer[0];
    Challenge challenge;
    Proof proof;
    const Hello hello = hello_of(greeting);
    if (*proven ? frame->kind != FRAME_WELCOME && frame->kind != FRAME_REFUSED : frame->kind != FRAME_CHALLENGE)
        return FAIL(ERR_COMM, "%s, port %d: another program listens there", config->master, config->port);
    if (frame->kind == FRAME_REFUSED) return FAIL(ERR_COMM, "%s", (const char *)frame->content);
    *welcome = frame->kind == FRAME_WELCOME;
    if (*welcome) {
        memcpy(hub->host, frame->content, sizeof hub->host);
        net_skip(&hub->net, frame->length);
        return OK;
    }
    memcpy(&challenge, frame->content, sizeof challenge);
    net_skip(&hub->net, frame->length);
    if (!handshake_prove(&t->secret, &hello, &challenge, &proof))
        return FAIL(ERR_COMM, "host %s belongs to another job than the program at %s, port %d: its token differs",
                    greeting->host, config->master, config->port);
    *proven = true;
    return peer_send(hub, FRAME_PROOF, 0, &proof, sizeof proof);
}

/* A connection that ends before the answer is tried again: group 0 may have had no room for it yet. */
static Status leaf_meet(TcpLink *t, const CommConfig *config)
{
    LinkHello hello = {.group = t->group, .groups = t->groups};
    Peer *hub = &t->peer[0];
    char why[512] = "";
    bool proven = false, welcome = false;
    struct timespec pause = {.tv_nsec = RETRY_MS * 1000000};
    int64_t end = clock_ns() + config->timeout_ms * 1000000;
    snprintf(hello.host, sizeof hello.host, "%s", config->place.host);
    while (clock_ns() < (hub->net.fd < 0 ? end : end + REFUSAL_MS * 1000000ll)) {
        Frame frame;
        struct pollfd polled = {.events = POLLIN};
        progress_made(hub->net.fd < 0 ? "connecting to the first host" : "waiting for the other hosts");
        if (hub->net.fd < 0) {
            hub->net.fd = net_connect(config->master, config->port, why, sizeof why);
            if (hub->net.fd < 0) nanosleep(&pause, NULL);
            proven = false;
            TRY(random_bytes(hello.nonce, sizeof hello.nonce));
            TRY(peer_send(hub, FRAME_HELLO, 0, &hello, sizeof hello));
            continue;
        }
        polled.fd = hub->net.fd;
        (void)poll(&polled, 1, 10);
        net_flush(&hub->net);
        TRY(peer_receive(hub));
        int64_t length = frame_read(hub->net.in, hub->net.in_used, t->groups, &frame);
        if (length < 0)
            return FAIL(ERR_COMM, "%s, port %d: another program listens there", config->master, config->port);
        if (length > 0) TRY(answer_take(t, config, &hello, &frame, &proven, &welcome));
        if (welcome) return OK;
        if (length > 0 || !hub->net.closed) continue;
        snprintf(why, sizeof why, "the connection was closed");
        net_close(&hub->net);
        nanosleep(&pause, NULL);
    }
    if (hub->net.fd >= 0)
        return FAIL(ERR_COMM, "group 0 at %s, port %d, does not answer", config->master, config->port);
    return FAIL(ERR_COMM, "cannot reach group 0 at %s, port %d, within %.1f s (--comm-timeout): %s", config->master,
                config->port, (double)config->timeout_ms / 1000, why);
}

Status link_tcp_open(const CommConfig *config, Link **made)
{
    const Placement *place = &config->place;
    TcpLink *t = calloc(1, sizeof *t);
    if (!t) return FAIL(ERR_MEMORY, "no memory for messages between %d groups", place->groups);
    t->link.ops = &tcp_ops;
    t->group = place->group;
    t->groups = place->groups;
    t->secret = config->secret;
    t->peer = calloc((size_t)place->groups, sizeof *t->peer);
    t->has_come = calloc((size_t)place->groups, sizeof *t->has_come);
    Status st = OK;
    if (!t->peer || !t->has_come) st = FAIL(ERR_MEMORY, "no memory for connections of %d groups", place->groups);
    for (int g = 0; st == OK && g < place->groups; g++) t->peer[g].net.fd = -1;
    if (st == OK) snprintf(t->peer[t->group].host, sizeof t->peer->host, "%s", place->host);
    if (st == OK) st = t->group == 0 ? hub_meet(t, config) : leaf_meet(t, config);
    if (st != OK) {
        tcp_close(&t->link, false);
        return st;
    }
    *made = &t->link;
    return OK;
}
