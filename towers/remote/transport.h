/* Transport: requests to servers over http and https, by libcurl, several at once in the thread of the caller.
 *
 * To stores with the interface of S3 a transfer may also bring something (Sending); it is sent whole at each try.
 *
 * A transfer brings an object to an open file, or asks for its length and version alone. What breaks off goes on where it ended: by
 * Range and If-Range (RFC 9110, 13.1.5 and 14.2), so that the bytes of two versions of an object are never joined; a server that does not
 * resume, or has another version, sends all, and the file begins anew. What may pass (causes.h) is tried again after a pause, until no new
 * bytes have come for `net_timeout` seconds, or fewer than 1,000 a second. Connections are used again. Redirects lead to http and https
 * only, and from https never to http. Nothing is printed; messages name addresses, but not those that a redirect leads to, which may hold
 * signatures. */
#pragma once

#include <stdatomic.h>

#include "kernels/base/status.h"

enum { VERSION_BYTES = 256 };

/* What a transfer reports while it runs. Each may be NULL. */
typedef struct TransferWatch {
    void (*progress)(void *context, int64_t done, int64_t all); /* bytes in the file; all < 0: not known */
    void (*again)(void *context, const char *line);             /* "ADDRESS: CAUSE; trying again in 2.1 s" */
    void *context;
} TransferWatch;

enum { SENDING_ANSWER_BYTES = 8192, SHA256_HEX_BYTES = 65, MD5_BASE64_BYTES = 25 };

/* What a request brings to a store of S3, which compares its digests. The caller fills in the first part. */
typedef struct Sending {
    const char *method; /* static: "PUT", "POST", "DELETE" */
    const char *query;  /* borrowed: what is behind "?", as it is signed, or "" */
    const void *bytes;  /* borrowed: the body */
    size_t count;
    bool only_new; /* a store that knows the condition (If-None-Match) answers 412 if the object is there already */
    char sha256[SHA256_HEX_BYTES], md5[MD5_BASE64_BYTES]; /* of the body; md5 may be "" */

    char answer[SENDING_ANSWER_BYTES]; /* the beginning of the answer's text */
    size_t answered;
    bool opaque; /* the store encrypts by keys of its own: the ETag says nothing of the content */
} Sending;

/* One request. The caller fills in the first part; a zeroed rest is fine. It stays where it is until it is done. */
typedef struct Transfer {
    const char *address; /* borrowed; http://, https:// or s3:// */
    const char *path;    /* borrowed; of the file, for messages */
    /* Not NULL: bring the list of what is in this folder of S3, from its beginning (""), or where the last page said that it goes on. */
    const char *list_from;
    Sending *sends; /* borrowed; not NULL: nothing comes but an answer, and there is no file. `bytes` is its count */
    int fd;         /* of the file, for writing, at its end; borrowed */
    bool head;      /* ask for length and version alone; there is no file */
    bool hashed;    /* a digest of the whole decides: bytes that are there go on even if their version is not known */
    bool only_version; /* another version than `version` ends the transfer with ERR_FORMAT; else the file begins anew */
    int64_t have;      /* bytes of the object that are in the file */
    int64_t bytes;     /* of the object; -1: not known, and then what the server says */
    int64_t limit;     /* more bytes are refused; 0: `bytes` */
    char version[VERSION_BYTES]; /* of the bytes that are there, then of the object: its ETag or date; "": not known */
    TransferWatch watch;

    bool done; /* status and what follows are valid */
    Status status;
    StatusText why; /* of a failure */
    long answer;    /* the status of the last answer, 0: none */
    bool passes;    /* it failed in a way that may pass */
    bool anew;      /* a server did not resume */
    bool unwritten; /* it failed because the file cannot be written */
    int retries;
    int64_t wait_ms;        /* in pauses between tries */
    struct NetRequest *own; /* private */
    struct Transfer *next;
} Transfer;

typedef struct TransportConfig {
    int64_t net_timeout;       /* seconds with fewer than 1,000 new bytes each, after which a transfer fails; 0: 300 */
    int64_t stall_seconds;     /* likewise, after which a connection is given up; 0: 60 */
    const struct S3Access *s3; /* for addresses that begin with s3:// (s3.h); borrowed, NULL if there are none */
    /* Borrowed, and shared by transports of one command: a server has answered one of them. Before, a host that cannot be reached is
     * given up after a few tries, because its name may be wrong. NULL: this transport's own. */
    _Atomic bool *met;
} TransportConfig;

typedef struct Transport Transport;
NODISCARD Status transport_create(const TransportConfig *config, Transport **made);
/* Ends what has been started. NULL is fine. */
void transport_destroy(Transport *transport);
/* Begin a transfer, which is borrowed until it is done. The first request is made at the next transport_wait. */
void transport_start(Transport *transport, Transfer *transfer);
/* End what has been started, without a status. */
void transport_abandon(Transport *transport);
bool transport_is_idle(const Transport *transport); /* no transfer is under way */
/* Run the transfers until one or more are done, or so many milliseconds have passed. Returns at once if there are none. ERR_IO if libcurl
 * fails; how a transfer ends is its own status. */
NODISCARD Status transport_wait(Transport *transport, int ms);
/* One transfer until it is done. Returns its status: ERR_IO for the network, a server's refusal and the disk, ERR_FORMAT for more bytes than
 * expected, or another version. */
NODISCARD Status transport_run(Transport *transport, Transfer *transfer);
