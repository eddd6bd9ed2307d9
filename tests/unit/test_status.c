/* The error idiom: message, trace, names, exit codes, and the printing of hostile text. */
#include <pthread.h>

#include "tests/support/unit.h"

static Status innermost(void)
{
    return FAIL(ERR_IO, "cannot open '%s': %d", "data.gz", 7);
}

static Status middle(void)
{
    TRY(innermost());
    return OK;
}

static Status outermost(int *cleaned)
{
    Status st = OK;
    TRY_OUT(middle());
    *cleaned = -1;
out:
    ++*cleaned;
    return st;
}

TEST(test_message_and_trace)
{
    int cleaned = 0;
    assert_int_equal(outermost(&cleaned), ERR_IO);
    assert_int_equal(cleaned, 1);
    assert_string_equal(status_message(), "cannot open 'data.gz': 7");
    const char *trace = status_trace();
    const char *first = strstr(trace, "ERR_IO"), *second = strstr(trace, "innermost()"),
               *third = strstr(trace, "middle()");
    assert_true(first && second && third && first < second && second < third);
    assert_non_null(strstr(trace, "via test_status.c:"));
}

TEST(test_new_failure_replaces_the_old)
{
    int cleaned = 0;
    (void)outermost(&cleaned);
    assert_int_equal(FAIL(ERR_ARG, "batch must be positive"), ERR_ARG);
    assert_string_equal(status_message(), "batch must be positive");
    assert_null(strstr(status_trace(), "middle()"));
}

TEST(test_kept_and_restored)
{
    int cleaned = 0;
    StatusText kept;
    (void)outermost(&cleaned);
    status_keep(&kept);
    (void)!FAIL(ERR_ARG, "another one");
    assert_int_equal(status_restore(ERR_IO, &kept), ERR_IO);
    assert_string_equal(status_message(), "cannot open 'data.gz': 7");
    assert_non_null(strstr(status_trace(), "middle()"));
}

/* Putting a prefix before the current message reads and writes the same buffer. */
TEST(test_message_may_quote_itself)
{
    assert_int_equal(FAIL(ERR_IO, "disk full"), ERR_IO);
    assert_int_equal(FAIL(ERR_IO, "step 3: %s", status_message()), ERR_IO);
    assert_string_equal(status_message(), "step 3: disk full");
}

TEST(test_long_message_is_cut)
{
    char text[10000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    assert_int_equal(FAIL(ERR_ARG, "%s", text), ERR_ARG);
    assert_true(strlen(status_message()) > 400 && strlen(status_message()) < STATUS_MESSAGE_BYTES);
    /* What the message is about stays whole around it. */
    assert_int_equal(FAIL(ERR_ARG, "%s:%d: '%s' is no number of at most %" PRId64 " characters (%.1f); use 0.1",
                          "a.yaml", 3, text, INT64_C(128), 0.5),
                     ERR_ARG);
    assert_non_null(strstr(status_message(), "a.yaml:3: 'xxx"));
    assert_non_null(
        strstr(status_message(), "xxx... (9999 bytes)' is no number of at most 128 characters (0.5); use 0.1"));
    text[700] = 0; /* shorter ones stay whole */
    assert_int_equal(FAIL(ERR_ARG, "'%s'", text), ERR_ARG);
    assert_int_equal(strlen(status_message()), 702);
}

TEST(test_deep_trace_is_cut)
{
    assert_int_equal(FAIL(ERR_ARG, "deep"), ERR_ARG);
    for (int i = 0; i < 10000; i++) (void)status_via(ERR_ARG, __FILE__, i, "recursion(i)");
    assert_true(strlen(status_trace()) < 8192);
}

TEST(test_codes)
{
    static const struct {
        Status code;
        const char *name;
        int exit_code;
    } wanted[] = {
        {OK, "OK", 0},
        {ERR_ARG, "ERR_ARG", 2},
        {ERR_SHAPE, "ERR_SHAPE", 2},
        {ERR_MEMORY, "ERR_MEMORY", 5},
        {ERR_IO, "ERR_IO", 6},
        {ERR_FORMAT, "ERR_FORMAT", 3},
        {ERR_CHECKPOINT, "ERR_CHECKPOINT", 4},
        {ERR_DEVICE, "ERR_DEVICE", 5},
        {ERR_COMM, "ERR_COMM", 7},
        {ERR_NUMERIC, "ERR_NUMERIC", 8},
        {ERR_UNSUPPORTED, "ERR_UNSUPPORTED", 5},
        {ERR_INTERNAL, "ERR_INTERNAL", 1},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        assert_string_equal(status_name(wanted[i].code), wanted[i].name);
        assert_int_equal(status_exit_code(wanted[i].code), wanted[i].exit_code);
    }
    for (int code = 1; code < STATUS_COUNT; code++) assert_int_not_equal(status_exit_code((Status)code), 0);
    assert_int_not_equal(status_exit_code((Status)999), 0);
    assert_non_null(status_name((Status)999));
}

/* A signal counts for a command that it has ended, with its own code if one is wanted, even 0. */
TEST(test_ending_codes)
{
    static const struct {
        Status code;
        Ending ending;
        int exit_code;
    } rows[] = {
        {OK, {0}, 0},
        {OK, {15, true, 75}, 0}, /* it ended before the signal could end it */
        {ERR_INTERRUPTED, {15, false, 0}, 143},
        {ERR_INTERRUPTED, {12, false, -1}, 140},
        {ERR_INTERRUPTED, {2, false, 0}, 130},
        {ERR_INTERRUPTED, {13, false, 0}, 141},
        {ERR_INTERRUPTED, {15, true, 75}, 75},
        {ERR_INTERRUPTED, {15, true, 0}, 0},
        {ERR_INTERRUPTED, {0, false, 0}, 130},
        {ERR_COMM, {15, true, 75}, 7},
        {ERR_IO, {0}, 6},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(ending_exit_code(rows[i].code, &rows[i].ending), rows[i].exit_code);
}

static char *printed(Status code, int trace)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);
    assert_non_null(to);
    status_print(to, code, trace);
    fclose(to);
    return text;
}

TEST(test_printing_escapes_control_characters)
{
    char *text;
    Status st = FAIL(ERR_FORMAT, "name '\x1b[2J\r' in\t%s", "da\nta:\n  a list\n");
    text = printed(st, 0);
    assert_string_equal(text, "error: name '\\x1b[2J\\x0d' in\\x09da\\x0ata:\n  a list\\x0a\n");
    assert_string_equal(status_message(), "name '\\x1b[2J\\x0d' in\\x09da\\x0ata:\n  a list\\x0a");
    free(text);
    text = printed(st, 1);
    assert_non_null(strstr(text, "via test_status.c:"));
    free(text);
}

static void *fail_elsewhere(void *context)
{
    assert_int_equal(FAIL(ERR_COMM, "another thread"), ERR_COMM);
    return NULL;
}

TEST(test_each_thread_has_its_own)
{
    pthread_t thread;
    assert_int_equal(FAIL(ERR_ARG, "mine"), ERR_ARG);
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
    pthread_join(thread, NULL);
    assert_string_equal(status_message(), "mine");
}
