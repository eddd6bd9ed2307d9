/* Why a request failed, and whether another try may end better: one table for connections and one for the answers of servers.
 * Which answers are tried again is what RFC 9110 says of them, and what the clients of object stores do. */
#pragma once

#include <curl/curl.h>

#include "kernels/base/status.h"

typedef enum NetRetry {
    NET_FINAL,   /* another try ends in the same way */
    NET_CONTACT, /* it may pass; but of a host that has never answered, it is rather a wrong name or no network */
    NET_PASSES,  /* it passes, sooner or later */
} NetRetry;

typedef struct NetCause {
    NetRetry retry;
    const char *text;   /* static: "the connection broke off", "is forbidden" */
    const char *remedy; /* static: what to do about it, NULL: nothing in particular */
} NetCause;

/* The cause of a failed request: `code` of libcurl, and the status of the answer, 0 if there was none. */
NetCause net_cause(CURLcode code, long answer);
/* Of an answer to who writes an object only if it is not there (If-None-Match). */
NetCause claim_cause(long answer);
/* That of CURLE_PEER_FAILED_VERIFICATION; `verified` is what CURLINFO_SSL_VERIFYRESULT says of the certificate. */
NetCause certificate_cause(long verified);

/* The pause before the next try, after `tries` failed ones in a row: it doubles from half a second to half a minute; `chance` in
 * [0, 1) takes up to half of it away, so that many clients do not come at once. At least what the server asks for (Retry-After), 0 if
 * it asks for nothing. */
int64_t net_pause_ms(int tries, double chance, int64_t retry_after_s);
