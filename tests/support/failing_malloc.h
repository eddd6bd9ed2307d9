/* An allocation that fails, in a test that includes this: malloc and its kin are these here, libraries included. Without
 * effect under a sanitizer, which has an allocator of its own. */
#pragma once

#include <errno.h>

#include "tests/support/unit.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MALLOC_FAILS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define MALLOC_FAILS 0
#endif
#endif
#ifndef MALLOC_FAILS
#define MALLOC_FAILS 1
#endif

/* The allocation that fails, counted down from here on; 0: none; -1: it was reached. */
static int allocations_left;

#if MALLOC_FAILS
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *block, size_t bytes);

static bool allocation_fails(void)
{
    if (allocations_left <= 0 || --allocations_left > 0) return false;
    allocations_left = -1;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t bytes)
{
    return allocation_fails() ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return allocation_fails() ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *block, size_t bytes)
{
    return allocation_fails() ? NULL : __libc_realloc(block, bytes);
}
#endif

static inline void failing_malloc_or_skip(void)
{
    if (!MALLOC_FAILS) skip("a sanitizer has an allocator of its own");
}
