/* TCP connections between hosts; see net.h. */
#include "nccl_sync/hosts/net.h"

#include "kernels/base/array.h"
#include "kernels/base/errand.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

void net_prepare(int fd)
{
    int yes = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
}

/* A name of other hosts' may be an address of this one's loopback, too (/etc/hosts), hence no look-up. */
static bool is_loopback(const char *host)
{
    return !strcmp(host, "localhost") || !strcmp(host, "127.0.0.1");
}

Status net_listen(const char *master, int port, int *fd)
{
    int yes = 1, no = 0, error = 0;
    bool here = is_loopback(master);
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (here) four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int family = here; family < 2 && error != EADDRINUSE; family++) { /* IPv4 alone where there is no IPv6 */
        int made = socket(family == 0 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (made < 0) {
            error = errno;
            continue;
        }
        (void)setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        if (family == 0) (void)setsockopt(made, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
        int bound = family == 0 ? bind(made, (struct sockaddr *)&six, sizeof six)
                                : bind(made, (struct sockaddr *)&four, sizeof four);
        if (bound == 0 && listen(made, 128) == 0) {
            *fd = made;
            return OK;
        }
        error = errno;
        close(made);
    }
    return FAIL(ERR_COMM, "rank 0 cannot listen on port %d: %s%s", port, strerror(error),
                error == EADDRINUSE ? " (by another job? set TOWERS_MASTER_PORT to a free port, on all ranks)" : "");
}

/* A connection to a port of this host on which nobody listens may get that port as its own, and then leads to itself. */
static bool leads_to_itself(int fd)
{
    struct sockaddr_storage own = {0}, peer = {0};
    socklen_t own_bytes = sizeof own, peer_bytes = sizeof peer;
    return getsockname(fd, (struct sockaddr *)&own, &own_bytes) == 0 &&
           getpeername(fd, (struct sockaddr *)&peer, &peer_bytes) == 0 && own_bytes == peer_bytes &&
           !memcmp(&own, &peer, own_bytes);
}

/* The descriptor, or -1 and errno. */
static int address_connect(const struct addrinfo *address)
{
    int error = 0, fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t bytes = sizeof error;
    if (fd < 0) return -1;
    if (connect(fd, address->ai_addr, address->ai_addrlen) != 0) {
        struct pollfd polled = {fd, POLLOUT, 0};
        error = errno;
        if (error == EINPROGRESS) {
            error = ETIMEDOUT;
            if (poll(&polled, 1, NET_ATTEMPT_MS) == 1) getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
        }
    }
    if (error == 0 && leads_to_itself(fd)) error = ECONNREFUSED; /* to be tried again */
    if (error == 0) return fd;
    close(fd);
    errno = error;
    return -1;
}

/* ---- names */

enum { NAME_BYTES = 1024 };

/* A name server may answer late, or never. */
typedef struct Lookup {
    Errand errand;
    char host[NAME_BYTES], port[16];
    int error;
    struct addrinfo *found; /* owned */
} Lookup;

static void lookup_drop(void *context)
{
    Lookup *lookup = context;
    if (lookup->found) freeaddrinfo(lookup->found);
    free(lookup);
}

static void *lookup_run(void *context)
{
    Lookup *lookup = context;
    struct addrinfo wanted = {.ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC};
    lookup->error = getaddrinfo(lookup->host, lookup->port, &wanted, &lookup->found);
    if (lookup->error) lookup->found = NULL;
    errand_done(&lookup->errand);
    return NULL;
}

/* NULL, and `why`: it cannot be begun. */
static Lookup *lookup_begin(const char *host, const char *port, char *why, size_t bytes)
{
    Lookup *lookup = calloc(1, sizeof *lookup);
    if (!lookup) {
        snprintf(why, bytes, "no memory to look up its name");
        return NULL;
    }
    snprintf(lookup->host, sizeof lookup->host, "%s", host);
    snprintf(lookup->port, sizeof lookup->port, "%s", port);
    if (errand_start(&lookup->errand, lookup_run, lookup_drop)) return lookup;
    snprintf(why, bytes, "cannot start the thread that looks up its name");
    return NULL;
}

/* The addresses of a host, to be ended by errand_leave; NULL if there is no answer yet. The next call goes on waiting for it. */
static Lookup *lookup_make(const char *host, const char *port, char *why, size_t bytes)
{
    static _Thread_local Lookup *waiting;
    Lookup *answered = NULL;
    if (waiting && (strcmp(waiting->host, host) || strcmp(waiting->port, port))) {
        errand_leave(&waiting->errand);
        waiting = NULL;
    }
    if (!waiting) waiting = lookup_begin(host, port, why, bytes);
    if (!waiting) return NULL;
    if (errand_wait(&waiting->errand, NET_ATTEMPT_MS))
        answered = waiting, waiting = NULL;
    else
        snprintf(why, bytes, "the name server does not answer");
    return answered;
}

/* Tries all addresses; the descriptor, or -1. */
static int addresses_connect(const char *host, const struct addrinfo *found, char *why, size_t bytes)
{
    int fd = -1;
    for (const struct addrinfo *a = found; a && fd < 0; a = a->ai_next) {
        char numeric[64] = "?";
        getnameinfo(a->ai_addr, a->ai_addrlen, numeric, sizeof numeric, NULL, 0, NI_NUMERICHOST);
        fd = address_connect(a);
        bool itself = !strncmp(numeric, "127.", 4) && strcmp(host, numeric) != 0 && strcmp(host, "localhost") != 0;
        if (fd < 0)
            snprintf(why, bytes, "%s: %s%s", numeric, strerror(errno),
                     itself ? " (an address of this host itself, from /etc/hosts; use one that other hosts can reach)"
                            : "");
    }
    if (fd >= 0) net_prepare(fd);
    return fd;
}

int net_connect(const char *host, int port, char *why, size_t bytes)
{
    int fd = -1;
    char number[16];
    struct addrinfo *found, digits = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
    snprintf(number, sizeof number, "%d", port);
    if (getaddrinfo(host, number, &digits, &found) == 0) { /* an address, which nobody needs to look up */
        fd = addresses_connect(host, found, why, bytes);
        freeaddrinfo(found);
        return fd;
    }
    Lookup *lookup = lookup_make(host, number, why, bytes);
    if (!lookup) return -1;
    if (lookup->error) snprintf(why, bytes, "%s", gai_strerror(lookup->error));
    fd = addresses_connect(host, lookup->found, why, bytes);
    errand_leave(&lookup->errand);
    return fd;
}

/* Sends what the connection takes now; the number of bytes. If it is broken, all of them: what the other side has sent
 * before can still be read, and then its end. */
static size_t send_some(const NetPeer *peer, const uint8_t *from, size_t bytes, int flags)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t sent = send(peer->fd, from + done, bytes - done, MSG_NOSIGNAL | MSG_DONTWAIT | flags);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && errno == EAGAIN) break;
        if (sent <= 0) (void)shutdown(peer->fd, SHUT_RDWR);
        if (sent <= 0) return bytes;
        done += (size_t)sent;
    }
    return done;
}

void net_flush(NetPeer *peer)
{
    if (peer->fd < 0 || !peer->out_used) return;
    size_t sent = send_some(peer, peer->out, peer->out_used, 0);
    peer->out_used -= sent;
    memmove(peer->out, peer->out + sent, peer->out_used);
    if (peer->out_used) return;
    free(peer->out);
    peer->out = NULL;
    peer->out_room = 0;
}

Status net_send(NetPeer *peer, const void *head, size_t head_bytes, const void *content, size_t bytes)
{
    size_t of_head = 0, of_content = 0;
    if (peer->fd < 0 || peer->closed) return OK;
    if (!peer->out_used) of_head = send_some(peer, head, head_bytes, bytes ? MSG_MORE : 0);
    if (of_head == head_bytes && bytes) of_content = send_some(peer, content, bytes, 0);
    size_t left = head_bytes - of_head + bytes - of_content;
    if (!left) return OK;
    TRY(array_reserve(&peer->out, &peer->out_room, peer->out_used + left, 1, "a message between hosts"));
    memcpy(peer->out + peer->out_used, (const uint8_t *)head + of_head, head_bytes - of_head);
    peer->out_used += head_bytes - of_head;
    if (bytes) memcpy(peer->out + peer->out_used, (const uint8_t *)content + of_content, bytes - of_content);
    peer->out_used += bytes - of_content;
    net_flush(peer);
    return OK;
}

Status net_receive(NetPeer *peer, size_t most)
{
    enum { READ_BYTES = 1 << 16 };
    while (peer->fd >= 0 && !peer->closed && peer->in_used < most) {
        TRY(array_reserve(&peer->in, &peer->in_room, peer->in_used + READ_BYTES, 1, "a message between hosts"));
        ssize_t got = recv(peer->fd, peer->in + peer->in_used, READ_BYTES, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) return OK;
        if (got <= 0) peer->closed = true;
        if (got > 0) peer->in_used += (size_t)got;
    }
    return OK;
}

void net_skip(NetPeer *peer, size_t bytes)
{
    peer->in_used -= bytes;
    memmove(peer->in, peer->in + bytes, peer->in_used);
}

void net_close(NetPeer *peer)
{
    if (peer->fd >= 0) close(peer->fd);
    free(peer->in);
    free(peer->out);
    *peer = (NetPeer){.fd = -1};
}
