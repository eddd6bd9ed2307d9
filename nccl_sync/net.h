/* Net: TCP connections between the hosts of a run: listen, connect, settings of a socket. */
#ifndef TOWERS_NCCL_SYNC_NET_H
#define TOWERS_NCCL_SYNC_NET_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/status.h"

/* Listen on a port of all addresses of this host, IPv6 and IPv4. The descriptor does not block, and is closed by exec.
 * ERR_COMM says so if another program has the port. */
NODISCARD Status net_listen(int port, int *fd);
/* One attempt at all addresses of `host`, of at most NET_ATTEMPT_MS each. The descriptor, prepared as below, or -1; then
 * `why` says what failed last, and whether the name leads to this host itself (127.0.1.1 in /etc/hosts). */
enum { NET_ATTEMPT_MS = 2000 };
int net_connect(const char *host, int port, char *why, size_t bytes);
/* For small messages, without blocking: no delay, keepalive, closed by exec. */
void net_prepare(int fd);

#endif
