/* A network switch between namespaces, in user space: it delays, loses, slows down and refuses frames where it is told
 * to, on any kernel (netem and filters are modules that few have).
 *
 *   switch_driver LINK...
 *
 * Link i (from 0) is a network interface of this namespace whose other end has the hardware address 02:00:00:00:00:0i.
 * Commands on standard input, one per line, each answered by "ok"; the end of the input ends the switch:
 *
 *   delay MS             every frame is that late
 *   loss PERCENT         of all frames
 *   rate LINK MBIT       of what comes from this link; 0: unlimited. What would wait longer than 100 ms is lost
 *   refuse FROM TO PORT  requests for a TCP connection from link FROM to link TO are lost; PORT 0: to any port
 *   plain                forget all of these
 *
 * Frames come and go with virtio's header, so that checksums and segments are left to the kernel. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kernels/base/clock.h"

enum { LINKS = 16, RULES = 64, FRAME = 70000, BACKLOG_MS = 100, HEAD = sizeof(struct virtio_net_hdr) };

typedef struct Frame {
    struct Frame *next;
    int64_t due_ns;
    size_t bytes;
    uint8_t at[];
} Frame;

typedef struct Wire {
    int fd;
    Frame *first, **last; /* frames that came from it, by due_ns */
    int64_t free_ns;      /* when it has taken what came so far */
    double mbit;
} Wire;

typedef struct Rule {
    int from, to, port;
} Rule;

static Wire wire[LINKS];
static Rule rule[RULES];
static int links, rules;
static double delay_ms, loss_percent;

static void fail(const char *what)
{
    fprintf(stderr, "switch_driver: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int link_open(const char *name)
{
    int yes = 1, room = 8 << 20, fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
    struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};
    at.sll_ifindex = (int)if_nametoindex(name);
    if (fd < 0 || !at.sll_ifindex || setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &yes, sizeof yes) ||
        setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &yes, sizeof yes) ||
        bind(fd, (struct sockaddr *)&at, sizeof at))
        fail(name);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room);
    return fd;
}

/* The port that this frame asks for a connection to: the first of TCP's handshake; -1: it does not. */
static int port_asked(const uint8_t *ether, size_t bytes)
{
    const uint8_t *ip = ether + 14, *tcp = ip + (size_t)(ip[0] & 15) * 4;
    if (bytes < 14 + 20 || ether[12] != 8 || ether[13] != 0 || ip[9] != 6 || tcp + 14 > ether + bytes) return -1;
    return (tcp[13] & 0x12) == 0x02 ? tcp[2] << 8 | tcp[3] : -1;
}

static bool is_refused(int from, int to, int port)
{
    for (int i = 0; i < rules; i++)
        if (rule[i].from == from && rule[i].to == to && (rule[i].port == 0 || rule[i].port == port)) return true;
    return false;
}

static void frame_send(int from, const Frame *frame)
{
    const uint8_t *ether = frame->at + HEAD;
    int port = port_asked(ether, frame->bytes - HEAD);
    for (int to = 0; to < links; to++) {
        bool wanted = (ether[0] & 1) || (ether[0] == 2 && ether[5] == to);
        if (to == from || !wanted || (port >= 0 && is_refused(from, to, port))) continue;
        (void)!write(wire[to].fd, frame->at, frame->bytes); /* a full queue loses it, as in any switch */
    }
}

static void frames_take(int from)
{
    static uint8_t bytes[FRAME];
    Wire *w = &wire[from];
    for (int k = 0; k < 64; k++) {
        ssize_t got = recv(w->fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (got < HEAD + 14) return;
        int64_t now = clock_ns(), begins = w->free_ns > now ? w->free_ns : now;
        if (loss_percent > 0 && (double)(random() % 100000) < loss_percent * 1000) continue;
        if (w->mbit > 0) {
            if (begins - now > BACKLOG_MS * 1000000ll) continue;
            w->free_ns = begins + (int64_t)((double)got * 8e3 / w->mbit);
        }
        Frame *frame = malloc(sizeof *frame + (size_t)got);
        if (!frame) fail("memory");
        *frame = (Frame){.bytes = (size_t)got};
        frame->due_ns = (w->mbit > 0 ? w->free_ns : now) + (int64_t)(delay_ms * 1e6);
        memcpy(frame->at, bytes, (size_t)got);
        *w->last = frame;
        w->last = &frame->next;
    }
}

/* Milliseconds until the next frame is due; -1: there is none. */
static int frames_release(void)
{
    int64_t next = INT64_MAX, now = clock_ns();
    for (int i = 0; i < links; i++) {
        Wire *w = &wire[i];
        while (w->first && w->first->due_ns <= now) {
            Frame *frame = w->first;
            w->first = frame->next;
            if (!w->first) w->last = &w->first;
            frame_send(i, frame);
            free(frame);
        }
        if (w->first && w->first->due_ns < next) next = w->first->due_ns;
    }
    return next == INT64_MAX ? -1 : (int)((next - now) / 1000000) + 1;
}

static void command_take(const char *line)
{
    double number;
    int a, b, c;
    if (sscanf(line, "delay %lf", &number) == 1)
        delay_ms = number;
    else if (sscanf(line, "loss %lf", &number) == 1)
        loss_percent = number;
    else if (sscanf(line, "rate %d %lf", &a, &number) == 2 && a >= 0 && a < links)
        wire[a].mbit = number;
    else if (sscanf(line, "refuse %d %d %d", &a, &b, &c) == 3 && rules < RULES)
        rule[rules++] = (Rule){a, b, c};
    else if (!strcmp(line, "plain")) {
        delay_ms = loss_percent = rules = 0;
        for (int i = 0; i < links; i++) wire[i].mbit = 0;
    } else {
        fprintf(stderr, "switch_driver: not a command: %s\n", line);
        exit(2);
    }
    puts("ok");
    fflush(stdout);
}

/* False at the end of the commands. */
static bool commands_read(void)
{
    static char text[4096];
    static size_t used;
    ssize_t got = read(STDIN_FILENO, text + used, sizeof text - used);
    if (got <= 0) return false;
    used += (size_t)got;
    for (char *end; (end = memchr(text, '\n', used));) {
        *end = 0;
        command_take(text);
        used -= (size_t)(end + 1 - text);
        memmove(text, end + 1, used);
    }
    return true;
}

int main(int argc, char **argv)
{
    struct pollfd polled[LINKS + 1] = {{STDIN_FILENO, POLLIN, 0}};
    if (argc < 3 || argc - 1 > LINKS) return fputs("usage: switch_driver LINK LINK...\n", stderr), 2;
    links = argc - 1;
    for (int i = 0; i < links; i++) {
        wire[i] = (Wire){.fd = link_open(argv[i + 1]), .last = &wire[i].first};
        polled[i + 1] = (struct pollfd){wire[i].fd, POLLIN, 0};
    }
    for (;;) {
        (void)poll(polled, (nfds_t)links + 1, frames_release());
        for (int i = 0; i < links; i++)
            if (polled[i + 1].revents) frames_take(i);
        if (polled[0].revents && !commands_read()) return 0;
    }
}
