/* Proofs that a secret is known; see handshake.h. */
#include "nccl_sync/hosts/handshake.h"

#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

_Static_assert((int)SECRET_BYTES == (int)PROOF_BYTES, "both are SHA-256");

static bool hmac(const void *key, size_t key_bytes, const uint8_t *from, size_t bytes, uint8_t made[PROOF_BYTES])
{
    unsigned int count = 0;
    return HMAC(EVP_sha256(), key, (int)key_bytes, from, bytes, made, &count) && count == PROOF_BYTES;
}

/* The proof of one side: 'L' for the listener, 'C' for the connector. */
static bool proof_make(const Secret *secret, char side, const Hello *hello, const uint8_t nonce[NONCE_BYTES],
                       uint8_t made[PROOF_BYTES])
{
    uint8_t text[1 + 32 + NONCE_BYTES + HELLO_BYTES_MAX] = {(uint8_t)side};
    size_t channel = strlen(hello->channel);
    if (channel >= 32 || hello->bytes > HELLO_BYTES_MAX) return false;
    memcpy(text + 1, hello->channel, channel); /* the rest of its 32 bytes is zero */
    memcpy(text + 33, nonce, NONCE_BYTES);
    memcpy(text + 33 + NONCE_BYTES, hello->content, hello->bytes);
    return hmac(secret->key, sizeof secret->key, text, 33 + NONCE_BYTES + hello->bytes, made);
}

static bool proof_fits(const Secret *secret, char side, const Hello *hello, const uint8_t nonce[NONCE_BYTES],
                       const uint8_t found[PROOF_BYTES])
{
    uint8_t wanted[PROOF_BYTES];
    return proof_make(secret, side, hello, nonce, wanted) && CRYPTO_memcmp(wanted, found, PROOF_BYTES) == 0;
}

Status secret_derive(const char *text, uint64_t job, Secret *secret)
{
    uint8_t number[sizeof job];
    memcpy(number, &job, sizeof job);
    if (hmac(text, strlen(text), number, sizeof number, secret->key)) return OK;
    return FAIL(ERR_INTERNAL, "libcrypto cannot compute an HMAC of SHA-256");
}

Status random_bytes(uint8_t *bytes, size_t count)
{
    if (RAND_bytes(bytes, (int)count) == 1) return OK;
    return FAIL(ERR_INTERNAL, "libcrypto finds no random numbers on this system");
}

Status handshake_challenge(const Secret *secret, const Hello *hello, Challenge *made)
{
    TRY(random_bytes(made->nonce, sizeof made->nonce));
    if (proof_make(secret, 'L', hello, made->nonce, made->proof)) return OK;
    return FAIL(ERR_INTERNAL, "cannot answer a greeting of %zu bytes on the channel '%s'", hello->bytes,
                hello->channel);
}

bool handshake_prove(const Secret *secret, const Hello *hello, const Challenge *challenge, Proof *made)
{
    return proof_fits(secret, 'L', hello, challenge->nonce, challenge->proof) &&
           proof_make(secret, 'C', hello, challenge->nonce, made->bytes);
}

bool handshake_holds(const Secret *secret, const Hello *hello, const Challenge *challenge, const Proof *proof)
{
    return proof_fits(secret, 'C', hello, challenge->nonce, proof->bytes);
}
