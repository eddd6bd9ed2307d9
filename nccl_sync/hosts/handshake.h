/* Handshake: two nodes of a job prove to each other that they know its secret, before either believes the other.
 *
 *     connector                                          listener
 *     HELLO: who it is, and a nonce                 ->
 *                                                   <-   CHALLENGE: another nonce, and the listener's proof
 *     PROOF: the connector's proof                  ->
 *
 * A proof is HMAC-SHA256 under the secret of the side, the channel, the listener's nonce and the HELLO with the
 * connector's nonce (libcrypto's), so it holds for one connection in one direction. The secret never travels. Messages
 * after the handshake are neither encrypted nor signed: it keeps out whoever can connect or listen, not whoever can
 * change packets between the hosts. */
#pragma once

#include "kernels/base/status.h"

enum { SECRET_BYTES = 32, NONCE_BYTES = 32, PROOF_BYTES = 32, HELLO_BYTES_MAX = 256 };

typedef struct Secret {
    uint8_t key[SECRET_BYTES];
} Secret;

typedef struct Challenge {
    uint8_t nonce[NONCE_BYTES], proof[PROOF_BYTES];
} Challenge;

typedef struct Proof {
    uint8_t bytes[PROOF_BYTES];
} Proof;

/* What a connector says of itself on one kind of connection: the same bytes on both sides. */
typedef struct Hello {
    const char *channel;
    const void *content; /* borrowed; it contains the connector's nonce */
    size_t bytes;        /* at most HELLO_BYTES_MAX */
} Hello;

/* The secret of one job, from a text that its nodes share and the job's number. ERR_INTERNAL if libcrypto fails. */
NODISCARD Status secret_derive(const char *text, uint64_t job, Secret *secret);
/* Random bytes. ERR_INTERNAL if the system has none. */
NODISCARD Status random_bytes(uint8_t *bytes, size_t count);

/* The listener's answer to a HELLO. */
NODISCARD Status handshake_challenge(const Secret *secret, const Hello *hello, Challenge *made);
/* The connector's answer to it; false if the listener does not know the secret. */
bool handshake_prove(const Secret *secret, const Hello *hello, const Challenge *challenge, Proof *made);
/* Whether the connector knows the secret. */
bool handshake_holds(const Secret *secret, const Hello *hello, const Challenge *challenge, const Proof *proof);
