/* The main() of programs of unit tests: runs the tests that have joined, in the order of their lines, or TOWERS_TEST_ONLY, a
 * name with * and ?. */

#include "tests/support/unit.h"

enum { MOST_TESTS = 64 };

static struct CMUnitTest tests[MOST_TESTS];
static int lines[MOST_TESTS];
static size_t count;
static CMFixtureFunction before, after;

void unit_join(int line, const struct CMUnitTest *test)
{
    if (count == MOST_TESTS) abort();
    size_t at = count++;
    for (; at && lines[at - 1] > line; at--) {
        lines[at] = lines[at - 1];
        tests[at] = tests[at - 1];
    }
    lines[at] = line;
    tests[at] = *test;
}

void unit_with(CMFixtureFunction set_up, CMFixtureFunction tear_down)
{
    before = set_up;
    after = tear_down;
}

void unit_fails(Status found, Status code, const char *text, const char *file, int line)
{
    if (found == code && strstr(status_message(), text)) return;
    print_error("expected %s and '%s', found %s and '%s'\n", status_name(code), text, status_name(found),
                found == OK ? "" : status_message());
    _fail(file, line);
}

int main(void)
{
    if (getenv("TOWERS_TEST_ONLY")) cmocka_set_test_filter(getenv("TOWERS_TEST_ONLY"));
    return _cmocka_run_group_tests("tests", tests, count, before, after);
}
