/* Sending files to a store with the interface of S3, verified: the store compares the digests of what it gets (SHA-256 in the signature, and
 * Content-MD5), and what it says of the object afterwards, its length and ETag, must be those of the file. A file of more than 16 MiB goes
 * in parts, several at once; until all of them are there the store shows none of it. What the store has already is not sent again. */
#pragma once

#include "towers/files/files.h"
#include "towers/remote/transport.h"

/* What sending reports. Each may be NULL. */
typedef struct SendWatch {
    void (*progress)(void *context, int64_t bytes); /* so many more have gone */
    void (*again)(void *context, const char *line); /* as in TransferWatch */
    void *context;
} SendWatch;

/* The first `bytes` of an open file become the object; it may grow meanwhile. `path`: for messages. *sent false: the store had it. Errors:
 * ERR_IO of network, store and disk; ERR_FORMAT of a store that has something else afterwards. */
NODISCARD Status send_file(Transport *transport, const SendWatch *watch, int fd, const char *path, int64_t bytes,
                           const char *address, bool *sent);
/* The same of a small file, whose object must not be there yet: *made is false if it is, and stays as it was. Not every store knows such
 * requests: of two who send at the same time the last one may have replaced the other one's, so who needs to know reads the object. */
NODISCARD Status send_new(Transport *transport, const SendWatch *watch, int fd, const char *path, int64_t bytes,
                          const char *address, bool *made);
