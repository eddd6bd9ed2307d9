/* The scheduler of the emulation: fibers, barriers, warps, shared memory; see cuda_emulation.h.
 *
 * A fiber takes threads that have not started and runs each to its end. When a thread must wait, its fiber yields to the
 * scheduler, which runs another fiber (a new one if there are threads left to start) until the condition that the thread
 * waits for has changed. If no fiber can continue, threads wait for others that never arrive: a bug in the kernel. */
#include "tests/gpu/emulation/cuda_emulation.h"

#include <ucontext.h>

#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define FIBER_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FIBER_SANITIZER 1
#endif
#endif
#ifdef FIBER_SANITIZER
#include <sanitizer/common_interface_defs.h>
#endif

enum {
    LAUNCH_BOUND = 256,
    ROOM_BOUND = 384,
    MAX_THREADS = 1024,
    MAX_WARPS = MAX_THREADS / 32,
    STACK_BYTES = 32 << 10,
    MAX_SHARED = 64
};

/* Where a stack was left: for __builtin_setjmp. */
struct Left {
    void *words[5];
};

struct Fiber {
    ucontext_t begin;
    Left left;
    bool begun;
    char *stack;
    void *shadow;            /* the sanitizer's */
    EmulatedPlace place;     /* of the thread it runs, while it does not run */
    int thread;              /* -1: between two threads, parked */
    const unsigned *watched; /* waits until this differs from `seen`; NULL: can go on */
    unsigned seen;
};

struct Barrier {
    unsigned generation;
    int arrived;
    int vote, result;
};

struct Warp {
    Barrier meeting;
    unsigned live; /* bits of the lanes that there are */
    unsigned parity[32];
    uint64_t word[2][32];
};

/* A copy that has not arrived; group: the number of those before it. */
struct Copy {
    void *to;
    const void *from;
    int group;
};

struct Copies {
    std::vector<Copy> pending;
    int groups;
    bool unfenced; /* some have arrived since the thread last made them seen by products of a warpgroup */
};

/* Products of a warpgroup that have not happened, of one thread. */
struct Products {
    std::vector<EmulatedProduct> pending;
    bool begun, open; /* open: some belong to no group that a wait would wait for */
};

struct SharedArray {
    const void *site;
    void *memory;
};

struct Block {
    const char *name;
    EmulatedBody *body;
    void *context;
    int threads, begun, ended;
    bool backwards;
    bool fenced, unread; /* unread: the last block to arrive, which has not fenced since */
    Barrier barrier;
    Warp warps[MAX_WARPS];
    SharedArray shared[MAX_SHARED];
    int shared_count;
    unsigned char *room;
    size_t room_bytes;
    int unfenced; /* threads with such copies */
};

EmulatedPlace emulated_place;
int (*emulated_queue)(const EmulatedJob *job, void *stream);
int emulated_error;

int emulated_take_error(void)
{
    int error = emulated_error;
    emulated_error = 0;
    return error;
}

static Block block;
static Copies copies[MAX_THREADS];
static Products products[MAX_THREADS];
static Fiber *fibers[MAX_THREADS];
static int fiber_count, parked; /* parked: fibers between two threads */
static Fiber *running;
static Left scheduler;
#ifdef FIBER_SANITIZER
static void *scheduler_shadow;
static const void *scheduler_stack;
static size_t scheduler_stack_bytes;
#endif
static unsigned launches;

static void __attribute__((noreturn)) stop(const char *what)
{
    fprintf(stderr, "emulated kernel %s: %s (block %u,%u thread %u,%u)\n", block.name, what, emulated_place.block.x,
            emulated_place.block.y, emulated_place.thread.x, emulated_place.thread.y);
    abort();
}

/* ---- fibers */

/* Leave this stack for another: where that was left, or with `begin`. Unlike swapcontext it does not ask the kernel for the mask of
 * signals, which took half of the time of a kernel with many barriers. */
static void __attribute__((noinline, no_sanitize("address")))
switch_stacks(Left *from, Left *to, const ucontext_t *begin)
{
    if (__builtin_setjmp(from->words)) return;
    if (!begin) __builtin_longjmp(to->words, 1);
    setcontext(begin);
}

static void switch_to_scheduler(void)
{
    Fiber *self = running;
    self->place = emulated_place;
#ifdef FIBER_SANITIZER
    __sanitizer_start_switch_fiber(&self->shadow, scheduler_stack, scheduler_stack_bytes);
#endif
    switch_stacks(&self->left, &scheduler, NULL);
#ifdef FIBER_SANITIZER
    __sanitizer_finish_switch_fiber(self->shadow, NULL, NULL);
#endif
}

static void switch_to(Fiber *fiber)
{
    running = fiber;
#ifdef FIBER_SANITIZER
    __sanitizer_start_switch_fiber(&scheduler_shadow, fiber->stack, STACK_BYTES);
#endif
    switch_stacks(&scheduler, &fiber->left, fiber->begun ? NULL : &fiber->begin);
#ifdef FIBER_SANITIZER
    __sanitizer_finish_switch_fiber(scheduler_shadow, NULL, NULL);
#endif
    running = NULL;
}

static int thread_number(void)
{
    const EmulatedPlace *p = &emulated_place;
    return (int)((p->thread.z * p->block_size.y + p->thread.y) * p->block_size.x + p->thread.x);
}

static void place_thread(int order)
{
    EmulatedPlace *p = &emulated_place;
    int number = block.backwards ? block.threads - 1 - order : order;
    p->thread = dim3((unsigned)number % p->block_size.x, (unsigned)number / p->block_size.x % p->block_size.y,
                     (unsigned)number / (p->block_size.x * p->block_size.y));
}

static void release_if_complete(Barrier *barrier, int expected)
{
    if (barrier->arrived == 0 || barrier->arrived < expected) return;
    barrier->arrived = 0;
    barrier->result = barrier->vote;
    barrier->vote = 0;
    barrier->generation++;
}

static void thread_end(void)
{
    Warp *warp = &block.warps[thread_number() / 32];
    if (warp->meeting.arrived) stop("a thread ends while others wait for it in a shuffle");
    if (!copies[thread_number()].pending.empty()) stop("a thread ends before its copies have arrived");
    if (!products[thread_number()].pending.empty()) stop("a thread ends before its products are there");
    block.ended++;
    warp->live &= ~(1u << emulated_lane());
}

static void fiber_main(void)
{
#ifdef FIBER_SANITIZER
    __sanitizer_finish_switch_fiber(NULL, &scheduler_stack, &scheduler_stack_bytes);
#endif
    running->begun = true;
    for (;;) {
        while (block.begun < block.threads) {
            place_thread(block.begun);
            running->thread = block.begun++;
            block.body(block.context);
            thread_end();
        }
        running->thread = -1;
        parked++;
        switch_to_scheduler();
        parked--;
    }
}

static Fiber *fiber_create(void)
{
    Fiber *fiber = (Fiber *)calloc(1, sizeof *fiber);
    if (!fiber || fiber_count == MAX_THREADS) stop("no more fibers");
    fiber->stack = (char *)malloc(STACK_BYTES);
    fiber->thread = -1; /* not parked: it has not run, and will at once */
    getcontext(&fiber->begin);
    fiber->begin.uc_stack.ss_sp = fiber->stack;
    fiber->begin.uc_stack.ss_size = STACK_BYTES;
    fiber->begin.uc_link = NULL;
    makecontext(&fiber->begin, fiber_main, 0);
    return fiber;
}

static bool can_go_on(const Fiber *fiber)
{
    if (fiber->thread < 0) return block.begun < block.threads;
    return !fiber->watched || *fiber->watched != fiber->seen;
}

/* A fiber for a thread that has not begun, if no parked one is left. */
static void grow_fibers(void)
{
    if (block.begun < block.threads && parked == 0) fibers[fiber_count++] = fiber_create();
}

static void run_fibers(void)
{
    while (block.ended < block.threads) {
        int moved = 0;
        grow_fibers();
        for (int i = 0; i < fiber_count; i++) {
            if (!can_go_on(fibers[i])) continue;
            fibers[i]->watched = NULL;
            if (fibers[i]->thread >= 0) emulated_place = fibers[i]->place;
            switch_to(fibers[i]);
            moved++;
            grow_fibers();
        }
        if (!moved) stop("some threads wait at a barrier or shuffle that others never reach");
    }
}

/* ---- what waits */

static void wait_at(Barrier *barrier, int expected)
{
    unsigned generation = barrier->generation;
    barrier->arrived++;
    release_if_complete(barrier, expected);
    if (barrier->generation != generation) return;
    running->watched = &barrier->generation;
    running->seen = generation;
    switch_to_scheduler();
}

int emulated_barrier_or(int predicate)
{
    if (block.ended) stop("a barrier after some threads have returned");
    block.barrier.vote |= predicate != 0;
    wait_at(&block.barrier, block.threads);
    return block.barrier.result;
}

void emulated_barrier(void)
{
    (void)emulated_barrier_or(0);
}

int emulated_lane(void)
{
    return thread_number() % 32;
}

/* The words of all lanes. That of a lane which is not in the mask, or has ended, is undefined (CUDA C++ Programming Guide, Warp
 * Shuffle Functions); masks without some of the lanes that there are would be allowed, but are not needed here. */
static const uint64_t *warp_words(unsigned mask, uint64_t mine)
{
    Warp *warp = &block.warps[thread_number() / 32];
    int lane = emulated_lane();
    uint64_t *words = warp->word[warp->parity[lane]++ % 2];
    if (mask != warp->live) stop("the mask of a shuffle is not the lanes that there are");
    words[lane] = mine;
    wait_at(&warp->meeting, __builtin_popcount(mask));
    return words;
}

uint64_t emulated_exchange(unsigned mask, uint64_t mine, int from_lane)
{
    if (!(mask >> from_lane & 1)) stop("a shuffle from a lane that is not in its mask");
    return warp_words(mask, mine)[from_lane];
}

unsigned emulated_ballot(unsigned mask, int predicate)
{
    unsigned bits = 0;
    const uint64_t *words = warp_words(mask, predicate != 0);
    for (int i = 0; i < 32; i++) bits |= mask >> i & 1 && words[i] ? 1u << i : 0u;
    return bits;
}

/* ---- copies that do not wait (PTX ISA, cp.async) */

void emulated_copy(void *to, const void *from)
{
    Copies *own = &copies[thread_number()];
    if (((uintptr_t)to | (uintptr_t)from) % 16)
        stop("a copy of 16 bytes from or to an address that is not aligned to them");
    memset(to, 0xff, 16); /* neither the old nor the new, until it has arrived */
    own->pending.push_back(Copy{to, from, own->groups});
}

void emulated_copy_commit(void)
{
    copies[thread_number()].groups++;
}

void emulated_copy_wait(int groups)
{
    Copies *own = &copies[thread_number()];
    std::vector<Copy> later;
    if (!own->unfenced) block.unfenced++;
    own->unfenced = true;
    for (const Copy &copy : own->pending) {
        if (copy.group >= own->groups - groups)
            later.push_back(copy);
        else if (copy.from)
            memcpy(copy.to, copy.from, 16);
        else
            memset(copy.to, 0, 16);
    }
    own->pending = later;
}

/* ---- tensor cores (PTX ISA, ldmatrix and mma.m16n8k16: which lane holds what) */

/* Eight rows of 16 bytes are read at once where they lie in different banks, which repeat after 128 bytes. */
static void check_banks(const uint64_t *rows)
{
    unsigned banks = 0;
    for (int i = 0; i < 8; i++) banks |= 1u << rows[i] / 16 % 8;
    if (banks != 0xFFu) stop("rows of ldmatrix in the same banks");
}

void emulated_transpose(const void *row, unsigned *words)
{
    int lane = emulated_lane();
    if ((uintptr_t)row % 16) stop("a row of ldmatrix that is not aligned to 16 bytes");
    const uint64_t *rows = warp_words(~0u, (uint64_t)(uintptr_t)row);
    for (int m = 0; m < 4; m++) check_banks(rows + m * 8);
    for (int m = 0; m < 4; m++) {
        const unsigned short *upper = (const unsigned short *)(uintptr_t)rows[m * 8 + lane % 4 * 2];
        const unsigned short *lower = (const unsigned short *)(uintptr_t)rows[m * 8 + lane % 4 * 2 + 1];
        words[m] = upper[lane / 4] | (unsigned)lower[lane / 4] << 16;
    }
}

static uint64_t both(unsigned low, unsigned high)
{
    return (uint64_t)high << 32 | low;
}

/* Two columns of a row of a, or two rows of a column of b, lie in a word. */
static void spread(unsigned short *to, int pair, unsigned word)
{
    to[2 * pair] = (unsigned short)word;
    to[2 * pair + 1] = (unsigned short)(word >> 16);
}

/* The two rows of a that this lane has sums of. */
static void rows_of(const unsigned *a, unsigned short (*rows)[16])
{
    int row = emulated_lane() / 4;
    for (int half = 0; half < 2; half++) { /* of the 16 elements that are multiplied */
        const uint64_t *words = warp_words(~0u, both(a[2 * half], a[2 * half + 1]));
        for (int q = 0; q < 4; q++) {
            spread(rows[0], half * 4 + q, (unsigned)words[row * 4 + q]);
            spread(rows[1], half * 4 + q, (unsigned)(words[row * 4 + q] >> 32));
        }
    }
}

EmulatedOperands emulated_operands(const unsigned *a, const unsigned *b)
{
    EmulatedOperands of;
    int column = emulated_lane() % 4 * 2;
    rows_of(a, of.a);
    const uint64_t *words = warp_words(~0u, both(b[0], b[1]));
    for (int j = 0; j < 2; j++)
        for (int q = 0; q < 4; q++) {
            spread(of.b[j], q, (unsigned)words[(column + j) * 4 + q]);
            spread(of.b[j], 4 + q, (unsigned)(words[(column + j) * 4 + q] >> 32));
        }
    return of;
}

/* ---- products of a warpgroup (PTX ISA, wgmma): they happen at the wait, with what lies in shared memory then */

void emulated_group_copies(void)
{
    Copies *own = &copies[thread_number()];
    if (own->unfenced) block.unfenced--;
    own->unfenced = false;
}

void emulated_group_begin(void)
{
    products[thread_number()].begun = true;
}

void emulated_group_product(EmulatedProduct *product, const unsigned *a)
{
    const SharedMatrix *b = &product->b;
    if (block.threads % 128) stop("a product of a warpgroup in a block that is not made of them");
    if (!products[thread_number()].begun) stop("a product of a warpgroup without a fence since the last wait");
    if (block.unfenced) stop("a product of a warpgroup from copies that it does not see");
    if ((uintptr_t)b->start % 16 || b->below % 16 || b->beside % 16) stop("a matrix that is not aligned to 16 bytes");
    if (b->start < block.room ||
        b->start + b->below + (product->columns / 8 - 1) * b->beside + 128 > block.room + block.room_bytes)
        stop("a matrix outside of the room of its launch");
    rows_of(a, product->a);
    products[thread_number()].pending.push_back(*product);
    products[thread_number()].open = true;
}

void emulated_group_commit(void)
{
    products[thread_number()].open = false;
}

void emulated_group_wait(const float *sum, int count)
{
    Products *own = &products[thread_number()];
    if (own->open) stop("a wait for products that are in no group");
    for (const EmulatedProduct &product : own->pending) {
        if (product.sum < sum || product.sum + product.columns / 2 > sum + count)
            stop("a wait for products that does not name all of their sums");
        product.add(product);
    }
    own->pending.clear();
    own->begun = false;
}

unsigned short emulated_element(const SharedMatrix &b, int row, int column)
{
    unsigned short element;
    memcpy(&element, b.start + row / 8 * b.below + row % 8 * 16 + column / 8 * b.beside + column % 8 * 2,
           sizeof element);
    return element;
}

/* ---- results of other blocks (CUDA C++ Programming Guide, Memory Fence Functions) */

void emulated_fence(void)
{
    block.fenced = true;
    block.unread = false;
}

void emulated_arrive(bool last)
{
    if (!block.fenced) stop("a block counts itself without a fence behind what it has written");
    block.unread = last;
}

void *emulated_shared(const void *site, size_t bytes)
{
    for (int i = 0; i < block.shared_count; i++)
        if (block.shared[i].site == site) return block.shared[i].memory;
    if (block.shared_count == MAX_SHARED) stop("more shared arrays than the emulation has room for");
    SharedArray *array = &block.shared[block.shared_count++];
    array->site = site;
    array->memory = malloc(bytes); /* to the byte: the sanitizer watches both ends */
    if (!array->memory) stop("no memory");
    memset(array->memory, 0xff, bytes);
    return array->memory;
}

void *emulated_room(void)
{
    if (!block.room) stop("a launch without the room that the kernel uses");
    return block.room;
}

/* ---- launches */

static void run_block(void)
{
    block.begun = block.ended = block.shared_count = block.unfenced = 0;
    block.fenced = block.unread = false;
    memset(&block.barrier, 0, sizeof block.barrier);
    memset(block.warps, 0, sizeof block.warps);
    for (int i = 0; i < block.threads; i++) copies[i].groups = 0, copies[i].unfenced = false;
    block.room = block.room_bytes ? (unsigned char *)malloc(block.room_bytes) : NULL;
    if (block.room) memset(block.room, 0xff, block.room_bytes);
    for (int i = 0; i < block.threads; i++) block.warps[i / 32].live |= 1u << i % 32;
    run_fibers();
    if (block.unread) stop("the last block reads what others have written without a fence");
    for (int i = 0; i < block.shared_count; i++) free(block.shared[i].memory);
    free(block.room);
}

int emulated_launch(const char *name, dim3 grid, dim3 size, size_t room, EmulatedBody *body, void *context)
{
    block.name = name;
    block.body = body;
    block.context = context;
    block.room_bytes = room;
    block.threads = (int)(size.x * size.y * size.z);
    block.backwards = launches++ % 2;
    if (block.threads < 1 || block.threads > (room ? ROOM_BOUND : LAUNCH_BOUND))
        stop("not 1 to 256 threads in a block, 384 with room of the launch, as __launch_bounds__ has it");
    if (grid.x < 1 || grid.x > 2147483647u || grid.y < 1 || grid.z < 1 || grid.y > 65535 || grid.z > 65535)
        stop("not a grid");
    uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z;
    for (uint64_t i = 0; i < blocks; i++) {
        uint64_t number = block.backwards ? blocks - 1 - i : i;
        emulated_place.grid = grid;
        emulated_place.block_size = size;
        emulated_place.block = dim3((unsigned)(number % grid.x), (unsigned)(number / grid.x % grid.y),
                                    (unsigned)(number / grid.x / grid.y));
        EmulatedPlace of_block = emulated_place;
        run_block();
        emulated_place = of_block;
    }
    return 0;
}

/* ---- half precision, by arithmetic */

unsigned short emulated_half_bits(float value)
{
    unsigned sign = __float_as_uint(value) >> 16 & 0x8000u;
    float magnitude = fabsf(value);
    if (value != value) return 0x7FFF;
    if (magnitude >= 65520.0f) return (unsigned short)(sign | 0x7C00u);
    int exponent = -14;
    if (magnitude >= 6.103515625e-05f) frexpf(magnitude, &exponent), exponent--;
    float steps = nearbyintf(ldexpf(magnitude, 10 - exponent)); /* to nearest even; 2048 carries into the exponent */
    return (unsigned short)(sign | (((unsigned)(exponent + 14) << 10) + (unsigned)steps));
}

float emulated_half_value(unsigned short bits)
{
    int exponent = bits >> 10 & 31;
    float fraction = (float)(bits & 1023), sign = bits & 0x8000 ? -1.0f : 1.0f;
    if (exponent == 31) return fraction != 0.0f ? NAN : sign * INFINITY;
    return sign * (exponent ? ldexpf(1024 + fraction, exponent - 25) : ldexpf(fraction, -24));
}
