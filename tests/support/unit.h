/* What a program of unit tests begins with: cmocka, behind the headers that it wants before it, and the tests of the
 * program, which name themselves: unit.c has its main(). */
#pragma once

#include "kernels/base/status.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* A test does not use its state, and a stand-in in a table of functions not every parameter. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* A test, which runs in the order of the file: TEST(name) { ... }; with a set-up and a tear-down of its own, or NULL. */
#define TEST(name) TEST_WITH(name, NULL, NULL)
#define TEST_WITH(name, set_up, tear_down)                                                                             \
    static void name(void **state);                                                                                    \
    __attribute__((constructor)) static void name##_joins(void)                                                        \
    {                                                                                                                  \
        unit_join(__LINE__, &(struct CMUnitTest){#name, name, set_up, tear_down, NULL});                               \
    }                                                                                                                  \
    static void name(void **state)

/* What happens before the first test of the program and behind its last one. */
#define TESTS_WITH(set_up, tear_down)                                                                                  \
    __attribute__((constructor)) static void tests_with(void)                                                          \
    {                                                                                                                  \
        unit_with(set_up, tear_down);                                                                                  \
    }

void unit_join(int line, const struct CMUnitTest *test);
void unit_with(CMFixtureFunction set_up, CMFixtureFunction tear_down);

/* Ends the test, whose reason the list of skipped tests then has (scripts/check/skips.sh): cmocka's skip() gives none. */
#undef skip
#define skip(...) unit_skip(__FILE__, __LINE__, __VA_ARGS__)
_Noreturn void unit_skip(const char *file, int line, const char *why, ...) __attribute__((format(printf, 3, 4)));

/* The call fails with this code, and its message has the text. */
#define assert_fails(call, code, text) unit_fails(call, code, text, __FILE__, __LINE__)
void unit_fails(Status found, Status code, const char *text, const char *file, int line);
