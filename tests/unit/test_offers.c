/* Checkpoints on offer to a command: the newest is taken, the others are counted, and what is read or may be taken is held. */
#include "tests/support/unit.h"
#include "towers/replica/offers.h"

#include <pthread.h>

static void held_are(const Offers *offers, int64_t reads, int64_t newest)
{
    int64_t held[2];
    offers_held(offers, held);
    assert_int_equal(held[0], reads);
    assert_int_equal(held[1], newest);
}

TEST(the_newest_is_taken_and_held)
{
    Offers *offers;
    int64_t taken = 0;
    assert_int_equal(offers_create(&offers), OK);
    held_are(offers, NO_STEP, NO_STEP);
    assert_int_equal(offers_newest(offers), NO_STEP);
    assert_false(offers_take(offers, &taken));
    offers_put(offers, 0); /* before the first step, for rollbacks */
    held_are(offers, NO_STEP, 0);
    assert_true(offers_take(offers, &taken));
    held_are(offers, 0, 0);
    assert_false(offers_take(offers, &taken));
    for (int64_t step = 10; step <= 10 * 3 * OFFERS_KEPT; step += 10) offers_put(offers, step);
    held_are(offers, 0, 10 * 3 * OFFERS_KEPT);
    assert_true(offers_take(offers, &taken));
    held_are(offers, 10 * 3 * OFFERS_KEPT, 10 * 3 * OFFERS_KEPT);
    assert_int_equal(atomic_load(&offers->skipped), 3 * OFFERS_KEPT - 1);
    offers_destroy(offers);
}

TEST(a_run_without_a_command_offers_nothing)
{
    offers_put(NULL, 7);
    held_are(NULL, NO_STEP, NO_STEP);
    offers_destroy(NULL);
}

/* Saves as rank 0's: what is not held when a save begins is removed by it. */
enum { SAVES = 20000 };
static _Atomic int64_t oldest[SAVES + 1]; /* 1: the checkpoint of this step is there */

static void *saves_run(void *context)
{
    Offers *offers = context;
    for (int64_t step = 1; step <= SAVES; step++) {
        int64_t held[2];
        offers_held(offers, held);
        atomic_store(&oldest[step], 1);
        for (int64_t s = step - 1; s > 0 && s >= step - 64; s--)
            if (s != held[0] && s != held[1]) atomic_store(&oldest[s], 0);
        offers_put(offers, step);
    }
    return NULL;
}

TEST(what_is_taken_stays)
{
    Offers *offers;
    pthread_t saves;
    int64_t taken = 0;
    assert_int_equal(offers_create(&offers), OK);
    assert_int_equal(pthread_create(&saves, NULL, saves_run, offers), 0);
    while (taken < SAVES) {
        if (!offers_take(offers, &taken)) continue;
        int64_t step = atomic_load(&offers->reads);
        for (int look = 0; look < 20; look++) assert_int_equal(atomic_load(&oldest[step]), 1);
    }
    pthread_join(saves, NULL);
    offers_destroy(offers);
}

TEST(failures_are_kept_in_order)
{
    Offers *offers;
    assert_int_equal(offers_create(&offers), OK);
    for (int64_t step = 1; step <= FAILURES_KEPT + 2; step++) offers_fail(offers, &(CommandFailure){step, false, 256});
    assert_int_equal(atomic_load(&offers->failed), FAILURES_KEPT + 2);
    assert_int_equal(offers->failure[1].step, FAILURES_KEPT + 2);
    assert_int_equal(offers->failure[2].step, 3);
    offers_destroy(offers);
}
