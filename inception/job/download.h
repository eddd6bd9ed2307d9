/* Download a file over HTTP (towers/remote/transport.h), and keep it only if its SHA-256 is the expected one.
 *
 * The bytes go to FILE.part beside FILE; an interrupted download is resumed from there, also by another call. A server
 * that does not resume sends the file from its start. The finished file is hashed as a whole, then renamed; if it is not the
 * expected one and had a beginning from an earlier call, it is downloaded once more from its start. https never redirects
 * to http. Nothing that a server says is trusted but the bytes, after they are hashed. */
#pragma once

#include "inception/models/published.h"
#include "towers/remote/transport.h"

typedef struct Download {
    const char *address, *path; /* of the file to write */
    const char *sha256;         /* hexadecimal digits: all 64, or the first 8 or more */
    int64_t bytes;              /* 0: not known */
    TransportConfig patience;
    TransferWatch watch;
} Download;

/* Errors: ERR_IO for the network, a server's refusal and the disk; ERR_FORMAT if the file is not the expected one, whose
 * bytes are then removed. */
NODISCARD Status download(const Download *d);

/* Whether the file is there and has this digest (or the first digits of it). */
bool sha256_fits(const char *path, const char *digest);
