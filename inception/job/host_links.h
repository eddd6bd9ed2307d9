/* Host links: bandwidth, round trip and clock difference from one host to another, measured over a TCP connection.
 *
 * The client connects to the server and says who it is. Then it sends its clock PINGS times, and the server answers each
 * with its own. Finally it sends 64 MB, of which the server counts what arrives within a second, and tells how many bytes
 * came in which time. The round trip is the shortest one. The clock of the server at the middle of that round trip, minus that of the
 * client, is the difference of their clocks; it is uncertain by half of the round trip (RFC 5905, section 8). */
#ifndef TOWERS_INCEPTION_CLI_HOST_LINKS_H
#define TOWERS_INCEPTION_CLI_HOST_LINKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/status.h"
#include "nccl_sync/handshake.h"
#include "towers/replica/launch.h"
#include "towers/train/control.h"

/* From this host to another; the same layout in every build. */
typedef struct HostLink {
    int32_t to;                                /* rank of a program on the other host; -1: not measured */
    int32_t connected;                         /* else `why` tells why not */
    double bytes_per_s, round_trip_s, clock_s; /* 0 if unknown; clock_s: theirs minus ours */
    char address[64], why[96];                 /* "10.0.0.2, port 40123" */
} HostLink;

/* Listen on a free port, as rank 0 does at `master` (net_listen). */
NODISCARD Status host_links_listen(const char *master, int *listener, int *port);
/* The address of this host from which `master` is reached, as digits; "" if there is no route. */
void host_address(const char *master, char *address, size_t bytes);

/* Measure the link to the server at an address. Never waits longer than HOST_LINK_MS, and cannot fail: the link tells. */
enum { HOST_LINK_MS = 6000 };
void host_link_measure(const char *address, int port, const Secret *secret, int me, HostLink *link);
/* A link as another program has sent it: its texts get ends, numbers that are none become 0. */
void host_link_clean(HostLink *link);
/* Serve the client that rank `from` is, which begins within wait_ms; strangers are turned away. */
void host_link_serve(int listener, const Secret *secret, int from, int wait_ms);

/* Before the fork; collective. Whether each program can connect to each other one, at a free port, as MPI wants to. In
 * `text`, on every rank: "" or who cannot connect to whom, at which port, and why. Takes seconds only if some cannot. */
NODISCARD Status host_links_check(Control *control, const Launch *launch, char *text, size_t bytes);

#endif
