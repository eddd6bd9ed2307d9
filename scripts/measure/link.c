/* A link between two network namespaces that has a rate and a round trip, for kernels without netem: packets go from a tun device of one to
 * that of the other. Each direction sends at the rate, holds what comes meanwhile in a queue (QUEUE_MS, or as much as is on the way in a
 * round trip if that is more) and drops what finds it full, as a router does; half a round trip later the packet arrives. The devices take
 * segments that TCP has not cut yet (TSO), so that a thousand Mbit/s cost little of a processor; they are as many bytes on the link, with
 * the headers of the packets that they would be.
 *
 * usage: link NAMESPACE ADDRESS NAMESPACE ADDRESS MBIT_PER_SECOND ROUND_TRIP_MS      addresses of IPv4; needs root and iproute2
 * It prints "ready" when both devices, link0 in each namespace, are up, then carries packets until it is ended by SIGTERM, and prints how
 * many bytes each direction has carried and how many packets it has dropped. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { MTU = 1500, HEADERS = 40, FRAME = 24 /* what Ethernet has beside an IP packet */, QUEUE_MS = 50 };
enum { PACKET_BYTES = 65536 + sizeof(struct virtio_net_hdr), PACKETS = 1 << 15 };

typedef struct Packet {
    int64_t due; /* ns */
    int32_t count, wire;
    char *bytes; /* owned */
} Packet;

typedef struct Direction {
    int from, to;
    int64_t free;  /* ns: when the link has sent what is in it */
    int64_t bytes; /* carried */
    long dropped;
    Packet queue[PACKETS];
    unsigned first, end;
} Direction;

static volatile sig_atomic_t ended;

static void end(int number)
{
    (void)number;
    ended = 1;
}

static void die(const char *what)
{
    fprintf(stderr, "link: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* A device of the namespace, which this process leaves again, with a route to the other end. */
static int device_open(const char *name, const char *address, const char *peer)
{
    char path[256], command[512];
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR};
    int own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    snprintf(path, sizeof path, "/run/netns/%s", name);
    int there = open(path, O_RDONLY | O_CLOEXEC);
    if (own < 0 || there < 0 || setns(there, CLONE_NEWNET) != 0) die(path);
    int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC); /* it belongs to the namespace in which it is opened */
    strcpy(request.ifr_name, "link0");
    if (device < 0 || ioctl(device, TUNSETIFF, &request) != 0) die("/dev/net/tun");
    if (ioctl(device, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4) != 0) die("TUNSETOFFLOAD");
    snprintf(command, sizeof command, "ip addr add %s peer %s dev link0 && ip link set link0 mtu %d txqueuelen 10000 up && ip route replace %s dev link0 congctl cubic", address,
             peer, MTU, peer);
    if (system(command) != 0) die(command);
    if (setns(own, CLONE_NEWNET) != 0) die("the own namespace");
    close(own);
    close(there);
    return device;
}

/* What a packet is on a wire: each of the segments that it would be cut into has headers of its own. */
static int32_t wire_bytes(const char *bytes, ssize_t count)
{
    struct virtio_net_hdr header;
    memcpy(&header, bytes, sizeof header);
    int32_t packet = (int32_t)(count - (ssize_t)sizeof header);
    int32_t segments = header.gso_size && packet > MTU ? (packet - HEADERS + header.gso_size - 1) / header.gso_size : 1;
    return packet + (segments - 1) * HEADERS + segments * FRAME;
}

/* Take what has come to one end. */
static void packets_take(Direction *d, double ns_per_byte, int64_t delay, int64_t queue)
{
    static char bytes[PACKET_BYTES];
    ssize_t count;
    while (d->end - d->first < PACKETS && (count = read(d->from, bytes, sizeof bytes)) > (ssize_t)sizeof(struct virtio_net_hdr)) {
        int64_t now = now_ns();
        if (d->free < now) d->free = now;
        if (d->free - now > queue) {
            d->dropped++;
            continue;
        }
        int32_t wire = wire_bytes(bytes, count);
        d->free += (int64_t)(ns_per_byte * wire);
        Packet *p = &d->queue[d->end++ % PACKETS];
        *p = (Packet){.due = d->free + delay, .count = (int32_t)count, .wire = wire, .bytes = malloc((size_t)count)};
        if (!p->bytes) die("memory");
        memcpy(p->bytes, bytes, (size_t)count);
    }
}

/* Give the other end what is due; returns when the next packet is, or INT64_MAX. */
static int64_t packets_give(Direction *d)
{
    for (; d->first != d->end; d->first++) {
        Packet *p = &d->queue[d->first % PACKETS];
        if (p->due > now_ns()) return p->due;
        if (write(d->to, p->bytes, (size_t)p->count) != p->count) d->dropped++;
        else d->bytes += p->wire;
        free(p->bytes);
    }
    return INT64_MAX;
}

int main(int count, char **text)
{
    static Direction way[2];
    if (count != 7) {
        fprintf(stderr, "usage: link NAMESPACE ADDRESS NAMESPACE ADDRESS MBIT_PER_SECOND ROUND_TRIP_MS\n");
        return 2;
    }
    double rate = atof(text[5]), trip = atof(text[6]);
    if (!(rate > 0) || !(trip >= 0)) die("the rate is expected to be above 0, the round trip not below");
    int64_t delay = (int64_t)(trip * 1e6 / 2), queue = (int64_t)((trip > QUEUE_MS ? trip : QUEUE_MS) * 1e6);
    int one = device_open(text[1], text[2], text[4]), other = device_open(text[3], text[4], text[2]);
    way[0].from = way[1].to = one;
    way[0].to = way[1].from = other;
    signal(SIGTERM, end);
    signal(SIGINT, end);
    puts("ready");
    fflush(stdout);
    while (!ended) {
        int64_t due = INT64_MAX;
        for (int i = 0; i < 2; i++) {
            packets_take(&way[i], 8e3 / rate, delay, queue);
            int64_t next = packets_give(&way[i]);
            if (next < due) due = next;
        }
        struct pollfd wait[2] = {{.fd = one, .events = POLLIN}, {.fd = other, .events = POLLIN}};
        int64_t left = due == INT64_MAX ? 100000000 : due - now_ns();
        struct timespec time = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
        if (left > 0) ppoll(wait, 2, &time, NULL);
    }
    printf("%" PRId64 " %ld %" PRId64 " %ld\n", way[0].bytes, way[0].dropped, way[1].bytes, way[1].dropped);
    return 0;
}
