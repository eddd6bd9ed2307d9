/* Addresses of objects on servers: http://HOST[:PORT]/PATH, https://HOST[:PORT]/PATH, and s3://BUCKET/KEY (s3.h).
 *
 * An address becomes the name of a file in a cache, stands in records and in messages. So it has no user name, password, query or
 * fragment, which may hold secrets, and no part of its path may leave a folder or be hidden in it, nor hold by %XX what a path of this
 * machine, or a list of such, reads otherwise. */
#pragma once

#include "kernels/base/status.h"

/* The parts of an address, which they point into. */
typedef struct Address {
    const char *scheme, *host, *path; /* host: or the bucket; path: behind the first slash after the host */
    int scheme_bytes, host_bytes;
} Address;

/* Whether a text is meant as an address: it begins with http://, https:// or s3://. */
bool is_address(const char *text);
bool is_address_of_s3(const char *text);
/* HOST or HOST:PORT, a name or an IPv4 address. */
bool is_host(const char *host, size_t bytes);

/* The address of an object, or of a folder if it ends with a slash, as a whole bucket does: its path is "". ERR_ARG says what is wrong
 * without repeating what may be a secret. */
NODISCARD Status address_parse(const char *text, Address *made);

/* Whether an address that messages only repeat, with any path and host, has a part that may hold a secret. */
bool address_may_hide(const char *text);

/* A path of an address as names of files have it: %XX becomes the byte XX. Returns the bytes without the NUL; no more than before. `plain`
 * may be `path`. */
size_t path_decode(const char *path, size_t bytes, char *plain);
/* The other way: what no address has in its path, as blanks, letters with accents and %, becomes %XX. False if it does not fit. */
bool path_encode(const char *plain, char *path, size_t bytes);
