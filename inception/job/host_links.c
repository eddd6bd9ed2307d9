/* Round trips, clocks and bandwidth between two hosts; see host_links.h. */
#include "inception/job/host_links.h"

#include "kernels/clock.h"
#include "kernels/text.h"
#include "nccl_sync/net.h"

#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    MAGIC = 0x4b4c5754,
    PINGS = 20,
    PIECE = 1 << 18,
    BULK_BYTES = 64 << 20,
    BULK_MS = 1000,
    DRAIN_MS = 1000,
    NEAR = 128
};

typedef struct LinkHead {
    uint32_t magic;
    int32_t from;
    uint8_t nonce[NONCE_BYTES];
} LinkHead;

typedef struct LinkAnswer {
    int64_t bytes, ns;
} LinkAnswer;

static int64_t wall_clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t after_ms(int64_t ms)
{
    return clock_ns() + ms * 1000000;
}

/* Waits until one of `events` happens; false at the deadline. */
static bool ready_by(int fd, short events, int64_t deadline)
{
    struct pollfd polled = {fd, events, 0};
    int64_t left = deadline - clock_ns();
    return left > 0 && poll(&polled, 1, (int)(left / 1000000) + 1) > 0;
}

/* Sends or receives all bytes; false if the connection ends, or at the deadline. */
static bool move(int fd, bool sends, void *bytes, size_t count, int64_t deadline)
{
    char *at = bytes;
    while (count > 0) {
        ssize_t moved = sends ? send(fd, at, count, MSG_NOSIGNAL | MSG_DONTWAIT) : recv(fd, at, count, MSG_DONTWAIT);
        if (moved == 0 || (moved < 0 && errno != EAGAIN && errno != EINTR)) return false;
        if (moved < 0 && !ready_by(fd, sends ? POLLOUT : POLLIN, deadline)) return false;
        if (moved > 0) at += moved, count -= (size_t)moved;
    }
    return true;
}

Status host_links_listen(const char *master, int *listener, int *port)
{
    struct sockaddr_storage own;
    socklen_t bytes = sizeof own;
    if (net_listen(master, 0, listener) != OK)
        return FAIL(ERR_COMM, "cannot listen for connections of other hosts: %s", strerror(errno));
    if (getsockname(*listener, (struct sockaddr *)&own, &bytes) != 0)
        return FAIL(ERR_COMM, "cannot find the port of a socket: %s", strerror(errno));
    /* sin_port and sin6_port have the same place */
    *port = ntohs(((const struct sockaddr_in *)&own)->sin_port);
    return OK;
}

void host_address(const char *master, char *address, size_t bytes)
{
    struct addrinfo *found = NULL, wanted = {.ai_socktype = SOCK_DGRAM, .ai_family = AF_UNSPEC};
    struct sockaddr_storage own;
    socklen_t length = sizeof own;
    *address = 0;
    if (getaddrinfo(master, "1", &wanted, &found) != 0) return;
    int fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0); /* connecting it sends nothing */
    if (fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) == 0 &&
        getsockname(fd, (struct sockaddr *)&own, &length) == 0)
        (void)getnameinfo((struct sockaddr *)&own, length, address, (socklen_t)bytes, NULL, 0, NI_NUMERICHOST);
    if (fd >= 0) close(fd);
    freeaddrinfo(found);
}

static bool pings_measure(int fd, HostLink *link, int64_t deadline)
{
    for (int i = 0; i < PINGS; i++) {
        int64_t sent = wall_clock_ns(), begun = clock_ns(), theirs;
        if (!move(fd, true, &sent, sizeof sent, deadline) || !move(fd, false, &theirs, sizeof theirs, deadline))
            return false;
        double trip = (double)(clock_ns() - begun) * 1e-9;
        if (link->round_trip_s > 0 && trip >= link->round_trip_s) continue;
        link->round_trip_s = trip;
        link->clock_s = (double)(theirs - sent) * 1e-9 - trip / 2;
    }
    return true;
}

static bool bulk_measure(int fd, HostLink *link, int64_t deadline)
{
    static char piece[PIECE];
    LinkAnswer answer;
    for (size_t left = BULK_BYTES; left > 0;) {
        ssize_t sent = send(fd, piece, left < PIECE ? left : PIECE, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) left -= (size_t)sent;
        struct pollfd polled = {fd, POLLIN, 0};
        if (poll(&polled, 1, 0) > 0) break; /* the answer: it is enough, or the end */
        if (sent < 0 && errno != EAGAIN && errno != EINTR) return false;
        if (sent < 0 && !ready_by(fd, POLLIN | POLLOUT, deadline)) return false;
    }
    if (!move(fd, false, &answer, sizeof answer, deadline) || answer.bytes <= 0 || answer.ns <= 0) return false;
    link->bytes_per_s = (double)answer.bytes / ((double)answer.ns * 1e-9);
    return true;
}

static Hello hello_of(const LinkHead *head)
{
    return (Hello){"host link", head, sizeof *head};
}

static bool server_is_known(int fd, const Secret *secret, int me, int64_t deadline)
{
    LinkHead head = {MAGIC, me, {0}};
    Challenge challenge;
    Proof proof;
    const Hello hello = hello_of(&head);
    return random_bytes(head.nonce, sizeof head.nonce) == OK && move(fd, true, &head, sizeof head, deadline) &&
           move(fd, false, &challenge, sizeof challenge, deadline) &&
           handshake_prove(secret, &hello, &challenge, &proof) && move(fd, true, &proof, sizeof proof, deadline);
}

void host_link_measure(const char *address, int port, const Secret *secret, int me, HostLink *link)
{
    int64_t deadline = after_ms(HOST_LINK_MS);
    snprintf(link->address, sizeof link->address, "%.40s, port %d", address, port);
    int fd = net_connect(address, port, link->why, sizeof link->why);
    link->connected = fd >= 0;
    if (fd < 0) return;
    link->why[0] = 0;
    if (!server_is_known(fd, secret, me, deadline) || !pings_measure(fd, link, deadline) ||
        !bulk_measure(fd, link, deadline))
        snprintf(link->why, sizeof link->why, "the connection ended, or nothing came for seconds");
    close(fd);
}

static void client_serve(int fd, int64_t deadline)
{
    static char piece[PIECE];
    LinkAnswer answer = {0};
    int64_t first = 0, last = 0, theirs;
    for (int i = 0; i < PINGS; i++) {
        if (!move(fd, false, &theirs, sizeof theirs, deadline)) return;
        int64_t ours = wall_clock_ns();
        if (!move(fd, true, &ours, sizeof ours, deadline)) return;
    }
    for (int64_t left = BULK_BYTES; left > 0;) {
        ssize_t got = recv(fd, piece, PIECE, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return;
        int64_t now = clock_ns(), end = first ? first + BULK_MS * 1000000ll : deadline;
        if (got > 0) {
            if (first)
                answer.bytes += got; /* since the first piece came */
            else
                first = now;
            last = now;
            left -= got;
        }
        if (now >= end || (got < 0 && !ready_by(fd, POLLIN, end))) break;
    }
    answer.ns = last - first;
    if (answer.bytes == 0 && first) answer = (LinkAnswer){1, BULK_MS * 1000000ll}; /* no second piece within a second */
    if (!move(fd, true, &answer, sizeof answer, deadline)) return;
    /* A connection that is closed with unread bytes in it would be reset, and the answer could be lost. */
    for (int64_t end = after_ms(DRAIN_MS); ready_by(fd, POLLIN, end);)
        if (recv(fd, piece, PIECE, MSG_DONTWAIT) <= 0) break;
}

void host_link_clean(HostLink *link)
{
    double *const numbers[] = {&link->bytes_per_s, &link->round_trip_s, &link->clock_s};
    link->address[sizeof link->address - 1] = link->why[sizeof link->why - 1] = 0;
    for (int i = 0; i < 3; i++)
        if (!isfinite(*numbers[i])) *numbers[i] = 0;
}

static bool client_is_known(int fd, const Secret *secret, int from, int64_t deadline)
{
    LinkHead head = {0};
    Challenge challenge;
    Proof proof;
    const Hello hello = hello_of(&head);
    return move(fd, false, &head, sizeof head, deadline) && head.magic == MAGIC && head.from == from &&
           handshake_challenge(secret, &hello, &challenge) == OK &&
           move(fd, true, &challenge, sizeof challenge, deadline) && move(fd, false, &proof, sizeof proof, deadline) &&
           handshake_holds(secret, &hello, &challenge, &proof);
}

void host_link_serve(int listener, const Secret *secret, int from, int wait_ms)
{
    int64_t deadline = after_ms(wait_ms);
    while (ready_by(listener, POLLIN, deadline)) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0) continue;
        net_prepare(fd);
        bool known = client_is_known(fd, secret, from, after_ms(HOST_LINK_MS / 3));
        if (known) client_serve(fd, after_ms(HOST_LINK_MS));
        close(fd);
        if (known) return;
    }
}

/* ---- can each connect to each? */

typedef struct Door {
    int32_t port;
    char address[60];
} Door;

/* To whom a program cannot connect. */
typedef struct Closed {
    int32_t first, error, count; /* the first of them, and why; how many */
} Closed;

/* Begins to connect; -1 if there is nothing to be tried. */
static int connect_begin(const char *address, int port)
{
    char number[16];
    struct addrinfo *found = NULL, wanted = {.ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC};
    snprintf(number, sizeof number, "%d", port);
    if (getaddrinfo(address, number, &wanted, &found) != 0) return -1;
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0) (void)!connect(fd, found->ai_addr, found->ai_addrlen); /* SO_ERROR tells how it ends */
    freeaddrinfo(found);
    return fd;
}

/* Connects to all doors at once, in a large run to those of the ranks around this one, and opens the own one to others. */
static void doors_try(Control *control, const Launch *launch, const Door *door, int listener, struct pollfd *polled,
                      Closed *closed)
{
    int ranks = launch->ranks, left = 0;
    int64_t deadline = after_ms(NET_ATTEMPT_MS);
    for (int r = 0; r < ranks; r++) {
        const char *address = r == 0 ? launch->master : door[r].address;
        bool elsewhere = strcmp(control_host(control, r), control_host(control, launch->rank)) != 0;
        bool near = (r - launch->rank + ranks) % ranks <= NEAR || (launch->rank - r + ranks) % ranks <= NEAR;
        bool tried =
            near && r != launch->rank && *address && !(elsewhere && !strncmp(address, "127.", 4)); /* it has others */
        polled[r] = (struct pollfd){tried ? connect_begin(address, door[r].port) : -1, POLLOUT, 0};
        left += polled[r].fd >= 0;
    }
    polled[ranks] = (struct pollfd){listener, POLLIN, 0};
    *closed = (Closed){0};
    while (left > 0) {
        int64_t ms = (deadline - clock_ns()) / 1000000;
        bool late = ms <= 0 || poll(polled, (nfds_t)ranks + 1, (int)ms + 1) <= 0;
        int fd = late ? -1 : accept(listener, NULL, NULL);
        if (fd >= 0) close(fd);
        for (int r = 0; r < ranks; r++) {
            int error = ETIMEDOUT;
            socklen_t bytes = sizeof error;
            if (polled[r].fd < 0 || (!late && !polled[r].revents)) continue;
            if (!late) (void)getsockopt(polled[r].fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
            if (error && closed->count++ == 0) closed->first = r, closed->error = error;
            close(polled[r].fd);
            polled[r].fd = -1;
            left--;
        }
    }
}

Status host_links_check(Control *control, const Launch *launch, char *text, size_t bytes)
{
    Status st = OK;
    int listener = -1, port = 0, others = 0;
    size_t ranks = (size_t)launch->ranks;
    Door mine = {0}, *door = calloc(ranks, sizeof *door);
    Closed own, *closed = calloc(ranks, sizeof *closed);
    struct pollfd *polled = calloc(ranks + 1, sizeof *polled);
    Text told = text_start(text, bytes);
    if (!door || !closed || !polled) TRY_OUT(FAIL(ERR_MEMORY, "no memory for the links of %zu programs", ranks));
    TRY_OUT(host_links_listen(launch->master, &listener, &port));
    mine.port = port;
    host_address(launch->master, mine.address, sizeof mine.address);
    TRY_OUT(control_gather(control, &mine, sizeof mine, "where it listens", door));
    for (size_t r = 0; r < ranks; r++) door[r].address[sizeof door->address - 1] = 0;
    doors_try(control, launch, door, listener, polled, &own);
    TRY_OUT(control_gather(control, &own, sizeof own, "to whom it can connect", closed));
    for (int r = 0; r < launch->ranks; r++) {
        int to = closed[r].first >= 0 && closed[r].first < launch->ranks ? closed[r].first : r;
        others += closed[r].count - (closed[r].count && !told.used);
        if (!closed[r].count || told.used) continue;
        text_add(&told, "rank %d on %s cannot connect to rank %d on %s at %s, port %d: %s", r, control_host(control, r),
                 to, control_host(control, to), to == 0 ? launch->master : door[to].address, (int)door[to].port,
                 strerror(closed[r].error));
    }
    if (others) text_add(&told, ", nor %d other pair%s", others, others == 1 ? "" : "s");
out:
    if (listener >= 0) close(listener);
    free(door);
    free(closed);
    free(polled);
    return st;
}
