/* Can each program of a run connect to each other one? See hosts.h. */
#include "inception/job/hosts.h"

#include "nccl_sync/hosts/net.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

enum { NEAR = 128 };

/* Listens on a free port, as rank 0 does at `master` (net_listen). */
static Status listen_anywhere(const char *master, int *listener, int *port)
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

/* The address of this host from which `master` is reached, as digits; "" if there is no route. */
static void own_address(const char *master, char *address, size_t bytes)
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
static void doors_try(ControlPlane *control, const Launch *launch, const Door *door, int listener,
                      struct pollfd *polled, Closed *closed)
{
    int ranks = launch->ranks, left = 0;
    int64_t deadline = clock_ns() + NET_ATTEMPT_MS * 1000000ll;
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

Status host_links_check(ControlPlane *control, const Launch *launch, char *text, size_t bytes)
{
    Status st = OK;
    int listener = -1, port = 0, others = 0;
    size_t ranks = (size_t)launch->ranks;
    Door mine = {0}, *door = calloc(ranks, sizeof *door);
    Closed own, *closed = calloc(ranks, sizeof *closed);
    struct pollfd *polled = calloc(ranks + 1, sizeof *polled);
    Text list = text_start(text, bytes);
    if (!door || !closed || !polled) TRY_OUT(FAIL(ERR_MEMORY, "no memory for the links of %zu programs", ranks));
    TRY_OUT(listen_anywhere(launch->master, &listener, &port));
    mine.port = port;
    own_address(launch->master, mine.address, sizeof mine.address);
    TRY_OUT(control_gather(control, &mine, sizeof mine, "where it listens", door));
    for (size_t r = 0; r < ranks; r++) door[r].address[sizeof door->address - 1] = 0;
    doors_try(control, launch, door, listener, polled, &own);
    TRY_OUT(control_gather(control, &own, sizeof own, "to whom it cannot connect", closed));
    for (int r = 0; r < launch->ranks; r++) {
        int to = closed[r].first >= 0 && closed[r].first < launch->ranks ? closed[r].first : r;
        others += closed[r].count - (closed[r].count && !list.used);
        if (!closed[r].count || list.used) continue;
        text_add(&list, "rank %d on %s cannot connect to rank %d on %s at %s, port %d: %s", r, control_host(control, r),
                 to, control_host(control, to), to == 0 ? launch->master : door[to].address, (int)door[to].port,
                 strerror(closed[r].error));
    }
    if (others) text_add(&list, ", nor %d other pair%s", others, others == 1 ? "" : "s");
out:
    if (listener >= 0) close(listener);
    free(door);
    free(closed);
    free(polled);
    return st;
}
