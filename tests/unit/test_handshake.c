/* Proofs between programs of a job: they hold between two that know its secret, and for nothing else. */
#include "nccl_sync/hosts/handshake.h"
#include "tests/support/unit.h"

typedef struct Greeting {
    int rank;
    uint8_t nonce[NONCE_BYTES];
} Greeting;

static Greeting greeting = {.rank = 3, .nonce = {1, 2, 3}};
static const Hello hello = {"channel", &greeting, sizeof greeting};
static const Secret ours = {{1}}, theirs = {{2}};

/* python3 -c "import hmac; print(hmac.new(b'a token', (5).to_bytes(8, 'little'), 'sha256').hexdigest())" */
TEST(test_secret)
{
    static const uint8_t wanted[SECRET_BYTES] = {0xda, 0x6c, 0x3d, 0xd0, 0x41, 0x03, 0x6d, 0x47, 0xec, 0x20, 0x89,
                                                 0xa3, 0x39, 0xc8, 0x85, 0xe0, 0x14, 0x17, 0xe7, 0x0e, 0xda, 0x9d,
                                                 0x1d, 0xd6, 0x42, 0xf5, 0x6e, 0x5b, 0x2a, 0x5b, 0x14, 0xf8};
    Secret secret, other;
    assert_int_equal(secret_derive("a token", 5, &secret), OK);
    assert_memory_equal(secret.key, wanted, sizeof wanted);
    assert_int_equal(secret_derive("a token", 6, &other), OK);
    assert_memory_not_equal(secret.key, other.key, SECRET_BYTES);
    for (int bit = 0; bit < 64; bit++) { /* each of the number's counts */
        assert_int_equal(secret_derive("a token", 5 ^ (UINT64_C(1) << bit), &other), OK);
        assert_memory_not_equal(secret.key, other.key, SECRET_BYTES);
    }
}

TEST(test_both_sides)
{
    Challenge challenge, again;
    Proof proof;
    assert_int_equal(handshake_challenge(&ours, &hello, &challenge), OK);
    assert_int_equal(handshake_challenge(&ours, &hello, &again), OK);
    assert_memory_not_equal(challenge.nonce, again.nonce, NONCE_BYTES);
    assert_true(handshake_prove(&ours, &hello, &challenge, &proof));
    assert_true(handshake_holds(&ours, &hello, &challenge, &proof));
    assert_false(handshake_holds(&ours, &hello, &again, &proof)); /* heard on another connection */
}

TEST(test_listener_without_the_secret)
{
    Challenge challenge;
    Proof proof;
    assert_int_equal(handshake_challenge(&theirs, &hello, &challenge), OK);
    assert_false(handshake_prove(&ours, &hello, &challenge, &proof));
    assert_int_equal(handshake_challenge(&ours, &hello, &challenge), OK);
    for (size_t bit = 0; bit < 8 * sizeof challenge; bit++) {
        uint8_t *byte = (uint8_t *)&challenge + bit / 8;
        *byte ^= (uint8_t)(1 << bit % 8);
        assert_false(handshake_prove(&ours, &hello, &challenge, &proof));
        *byte ^= (uint8_t)(1 << bit % 8);
    }
}

/* An answer to another greeting, on another channel, or the listener's own proof sent back. */
TEST(test_proofs_of_other_connections)
{
    Greeting other = greeting;
    other.nonce[NONCE_BYTES - 1] ^= 1;
    const Hello replayed = {"channel", &other, sizeof other}, elsewhere = {"channel 2", &greeting, sizeof greeting};
    Challenge challenge;
    Proof proof;
    assert_int_equal(handshake_challenge(&ours, &hello, &challenge), OK);
    assert_false(handshake_prove(&ours, &replayed, &challenge, &proof));
    assert_false(handshake_prove(&ours, &elsewhere, &challenge, &proof));
    memcpy(proof.bytes, challenge.proof, PROOF_BYTES);
    assert_false(handshake_holds(&ours, &hello, &challenge, &proof));
    assert_true(handshake_prove(&ours, &hello, &challenge, &proof));
    assert_false(handshake_holds(&theirs, &hello, &challenge, &proof));
    assert_false(handshake_holds(&ours, &replayed, &challenge, &proof));
    proof.bytes[0] ^= 1;
    assert_false(handshake_holds(&ours, &hello, &challenge, &proof));
    const Hello large = {"channel", &greeting, HELLO_BYTES_MAX + 1};
    assert_int_equal(handshake_challenge(&ours, &large, &challenge), ERR_INTERNAL);
}
