/* The ledger between processes: rows, activities and their times, notes, and who failed first. */
#include "tests/support/unit.h"
#include "towers/replica/ledger.h"

#include <printf.h>
#include <sys/wait.h>
#include <unistd.h>

TEST(test_rows_are_shared_and_kept)
{
    Ledger *ledger;
    assert_int_equal(ledger_create(3, 2, &ledger), OK);
    assert_int_equal(ledger->towers, 3);
    for (int t = 0; t < 3; t++)
        for (int64_t s = 1; s <= LEDGER_STEPS; s++) assert_int_equal(ledger_row(ledger, t, s)->step, -1);
    pid_t pid = fork();
    if (pid == 0) {
        for (int64_t s = 1; s <= LEDGER_STEPS + 3; s++)
            *ledger_row(ledger, 2, s) = (LedgerRow){.step = s, .loss = {.sum = (double)s}};
        _exit(0);
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    for (int64_t s = 4; s <= LEDGER_STEPS + 3; s++) assert_int_equal(ledger_row(ledger, 2, s)->step, s);
    assert_true(ledger_row(ledger, 2, 3) == ledger_row(ledger, 2, 3 + LEDGER_STEPS)); /* the oldest made room */
    assert_int_equal(ledger_row(ledger, 1, 4)->step, -1);
    ledger_destroy(ledger);
}

TEST(test_activities_take_time)
{
    Ledger *ledger;
    assert_int_equal(ledger_create(1, 1, &ledger), OK);
    int64_t start = clock_ns();
    ledger_activity(ledger, 0, 5, ACTIVITY_DATA);
    usleep(3000);
    ledger_activity(ledger, 0, 5, ACTIVITY_FORWARD);
    usleep(1000);
    ledger_activity(ledger, 0, 5, ACTIVITY_DATA);
    usleep(3000);
    ledger_activity(ledger, 0, 5, ACTIVITY_REDUCE);
    const LedgerRow *row = ledger_row(ledger, 0, 5);
    assert_true(row->activity_ns[ACTIVITY_DATA] >= 6000000); /* both visits */
    assert_true(row->activity_ns[ACTIVITY_FORWARD] >= 1000000);
    assert_int_equal(row->activity_ns[ACTIVITY_REDUCE], 0); /* still in it */
    assert_true(row->activity_ns[ACTIVITY_DATA] + row->activity_ns[ACTIVITY_FORWARD] <= clock_ns() - start);
    assert_int_equal(atomic_load(&ledger->tower[0].step), 5);
    assert_int_equal(atomic_load(&ledger->tower[0].activity), ACTIVITY_REDUCE);
    ledger_destroy(ledger);
}

TEST(test_first_failure_stays_first)
{
    Ledger *ledger;
    assert_int_equal(ledger_create(2, 2, &ledger), OK);
    assert_int_equal(ledger_failed(ledger), -1);
    ledger_fail(ledger, 1, FAIL(ERR_NUMERIC, "the cause"), false);
    ledger_fail(ledger, 0, FAIL(ERR_COMM, "a consequence"), false);
    assert_int_equal(ledger_failed(ledger), 1);
    assert_string_equal(ledger->process[1].words.message, "the cause");
    assert_string_equal(ledger->process[0].words.message, "a consequence");
    assert_int_equal(atomic_load(&ledger->process[1].status), ERR_NUMERIC);
    assert_non_null(strstr(ledger->process[1].words.trace, "ERR_NUMERIC"));
    ledger_destroy(ledger);
}

/* A process that waits for another one may learn that it has left, and write that down, before that one has written why. */
TEST(test_a_consequence_comes_before_its_cause)
{
    Ledger *ledger;
    assert_int_equal(ledger_create(3, 3, &ledger), OK);
    ledger_fail(ledger, 2, FAIL(ERR_COMM, "process 1 has left"), true);
    ledger_fail(ledger, 0, FAIL(ERR_COMM, "process 1 has left"), true);
    assert_int_equal(ledger_failed(ledger), 2);
    ledger_fail(ledger, 1, FAIL(ERR_DEVICE, "its device is lost"), false);
    assert_int_equal(ledger_failed(ledger), 1);
    ledger_destroy(ledger);
}

static Ledger *noting;

/* What %W writes: another process notes something meanwhile. */
static int note_between(FILE *to, const struct printf_info *info, const void *const *arguments)
{
    assert_null(ledger_noted(noting, 0));
    ledger_note(noting, "of another");
    return fprintf(to, "interrupted");
}

static int takes_nothing(const struct printf_info *info, size_t count, int *types, int *sizes)
{
    return 0;
}

/* Two processes note something at once: both are kept, and neither is read before it is whole. */
TEST(test_notes_at_once)
{
    const char *format = "%W, %d";
    assert_int_equal(ledger_create(1, 1, &noting), OK);
    assert_int_equal(register_printf_specifier('W', note_between, takes_nothing), 0);
    ledger_note(noting, format, 7);
    assert_int_equal(atomic_load(&noting->run.notes), 2);
    assert_string_equal(ledger_noted(noting, 0), "interrupted, 7");
    assert_string_equal(ledger_noted(noting, 1), "of another");
    for (int n = 0; n < LEDGER_NOTES; n++) ledger_note(noting, "later");
    assert_null(ledger_noted(noting, 0)); /* it was replaced */
    ledger_destroy(noting);
}

TEST(test_notes)
{
    Ledger *ledger;
    char text[LEDGER_MESSAGE + 100], wanted[32];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = 0;
    assert_int_equal(ledger_create(1, 1, &ledger), OK);
    for (int n = 0; n < LEDGER_NOTES + 2; n++) ledger_note(ledger, "note %d", n);
    assert_int_equal(atomic_load(&ledger->run.notes), LEDGER_NOTES + 2);
    for (int n = 2; n < LEDGER_NOTES + 2; n++) {
        snprintf(wanted, sizeof wanted, "note %d", n);
        assert_string_equal(ledger->run.note[n % LEDGER_NOTES], wanted);
    }
    ledger_note(ledger, "%s", text); /* cut, not overrun */
    assert_int_equal(strlen(ledger->run.note[2]), LEDGER_MESSAGE - 1);
    assert_string_equal(ledger->run.note[3], "note 3");
    ledger_destroy(ledger);
    ledger_destroy(NULL);
}

TEST(test_every_activity_has_a_name)
{
    for (int a = 0; a < ACTIVITY_COUNT; a++)
        for (int b = 0; b < a; b++) assert_string_not_equal(activity_name((Activity)a), activity_name((Activity)b));
    assert_string_equal(activity_name(ACTIVITY_REDUCE), "all-reduce");
    assert_string_equal(activity_name((Activity)99), "unknown activity");
}
