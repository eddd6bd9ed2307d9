/* Checkpoints on offer to a command; see offers.h. */
#include "towers/replica/offers.h"

#include <errno.h>
#include <sys/mman.h>

Status offers_create(Offers **made)
{
    void *memory = mmap(NULL, sizeof(Offers), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return FAIL(ERR_MEMORY, "no memory for the state of --after-checkpoint: %s", strerror(errno));
    Offers *offers = memory;
    atomic_store(&offers->reads, NO_STEP);
    *made = offers;
    return OK;
}

void offers_destroy(Offers *offers)
{
    if (offers) munmap(offers, sizeof *offers);
}

void offers_put(Offers *offers, int64_t step)
{
    if (!offers) return;
    int64_t number = atomic_load(&offers->count) + 1;
    atomic_store(&offers->step[number % OFFERS_KEPT], step);
    atomic_store(&offers->count, number);
}

static int64_t step_of(const Offers *offers, int64_t number)
{
    return number ? atomic_load(&offers->step[number % OFFERS_KEPT]) : NO_STEP;
}

int64_t offers_newest(const Offers *offers)
{
    return step_of(offers, atomic_load(&offers->count));
}

void offers_held(const Offers *offers, int64_t held[2])
{
    held[0] = offers ? atomic_load(&offers->reads) : NO_STEP;
    held[1] = offers ? offers_newest(offers) : NO_STEP;
}

/* A newer offer may come before `reads` is written, and the save after it no longer leaves this one: then the newer one is taken. */
bool offers_take(Offers *offers, int64_t *taken)
{
    int64_t number = atomic_load(&offers->count), before;
    if (number == *taken) return false;
    do {
        before = number;
        atomic_store(&offers->reads, step_of(offers, before));
        number = atomic_load(&offers->count);
    } while (number != before);
    atomic_fetch_add(&offers->skipped, number - *taken - 1);
    *taken = number;
    return true;
}

void offers_fail(Offers *offers, const CommandFailure *failure)
{
    int64_t number = atomic_load(&offers->failed);
    offers->failure[number % FAILURES_KEPT] = *failure;
    atomic_store(&offers->failed, number + 1);
}
