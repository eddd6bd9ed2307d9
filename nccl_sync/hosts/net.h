/* Net: TCP connections between the hosts of a run: listen, connect, send and receive without ever waiting. */
#pragma once

#include "kernels/base/status.h"
#include "kernels/base/timeouts.h"

/* Listen on a port where `master` is the name by which the others reach this host: of its loopback address alone if that
 * is the name (127.0.0.1, localhost), else of all its addresses, IPv6 and IPv4. The descriptor does not block, and is
 * closed by exec. ERR_COMM says so if another program has the port. */
NODISCARD Status net_listen(const char *master, int port, int *fd);
/* One attempt at all addresses of `host`, of at most NET_ATTEMPT_MS each. The descriptor, prepared as below, or -1; then
 * `why` says what failed last, and whether the name leads to this host itself (127.0.1.1 in /etc/hosts). */
int net_connect(const char *host, int port, char *why, size_t bytes);
/* For small messages, without blocking: no delay, keepalive, closed by exec. */
void net_prepare(int fd);

/* A connection with a buffer in each direction. Bytes to send are queued and leave as the connection takes them. */
typedef struct NetPeer {
    int fd;            /* owned; -1: none, then there is nothing to do for any call */
    uint8_t *in, *out; /* owned: received and not skipped yet; queued and not sent yet */
    size_t in_used, in_room, out_used, out_room;
    bool closed; /* by the other side, or broken; everything that came before is in `in` */
} NetPeer;

/* Queue a head and its content (NULL if `bytes` is 0), and send what the connection takes now. ERR_MEMORY. */
NODISCARD Status net_send(NetPeer *peer, const void *head, size_t head_bytes, const void *content, size_t bytes);
void net_flush(NetPeer *peer);
/* Receive what has come, until at least `most` bytes are in `in`. ERR_MEMORY. */
NODISCARD Status net_receive(NetPeer *peer, size_t most);
/* Remove the first bytes of `in`. */
void net_skip(NetPeer *peer, size_t bytes);
/* Frees both buffers; what is still queued is lost. */
void net_close(NetPeer *peer);
