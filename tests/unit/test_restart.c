/* When a run is started again after a crash, and how long it waits: restart_due alone, with a clock that does not run. And
 * by which clock the heartbeat waits. */
#include <pthread.h>
#include <signal.h>

#include "tests/support/scratch.h"
#include "tests/support/unit.h"
#include "towers/supervisor/restart.h"
#include "towers/train/outcome.h"

static time_t waited_s; /* -1: there was no wait */
static int arriving;    /* a signal that ends the wait; 0: none */

/* The wait for a stop signal arrives here. */
int sigtimedwait(const sigset_t *signals, siginfo_t *info, const struct timespec *limit)
{
    waited_s = limit->tv_sec;
    if (arriving && sigismember(signals, arriving)) return arriving;
    errno = EAGAIN;
    return -1;
}

static _Atomic int beats_by = -1; /* the clock of the heartbeat's wait */

int pthread_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *lock, clockid_t clock, const struct timespec *until)
{
    atomic_store(&beats_by, clock);
    return pthread_cond_wait(cond, lock);
}

static const Backend cpu = {.name = "cpu", .on_host = true};

static TrainJob job_of(void)
{
    return (TrainJob){.backend = &cpu, .run_dir = scratch, .processes = 1, .max_restarts = 100};
}

/* A crash at this step; *st: what of. Returns whether the run starts again. */
static bool crash(Restarts *restarts, TrainJob *job, int64_t step, Status *st)
{
    TrainResult result = {.begun = true, .step = step};
    waited_s = -1;
    return restart_due(restarts, job, &result, st);
}

/* The wait doubles up to a minute as long as no restart reaches a new step, and is a second again after one. */
TEST_WITH(waits_double_without_progress, scratch_make, scratch_drop)
{
    static const struct {
        int64_t step;
        time_t wait_s;
    } rows[] = {{5, 1}, {5, 2}, {5, 4}, {3, 8}, {5, 16}, {5, 32}, {5, 60}, {5, 60}, {6, 1}, {6, 2}, {4, 4}, {7, 1}};
    enum { ROWS = sizeof rows / sizeof *rows };
    Restarts restarts = {0};
    TrainJob job = job_of();
    for (int i = 0; i < ROWS; i++) {
        Status st = ERR_COMM;
        assert_true(crash(&restarts, &job, rows[i].step, &st));
        if (waited_s != rows[i].wait_s)
            fail_msg("restart %d waits %" PRId64 " s, expected %" PRId64, i + 1, waited_s, rows[i].wait_s);
    }
    assert_int_equal(job.restarts, ROWS);
    char *text = scratch_text(RESTARTS_FILE);
    int lines = 0;
    for (const char *at = text; (at = strchr(at, '\n')); at++) lines++;
    assert_int_equal(lines, ROWS);
    free(text);
}

/* What would return, was wanted, or left a process that nobody could end, is not started again. */
TEST_WITH(some_ends_are_final, scratch_make, scratch_drop)
{
    static const struct {
        const char *what;
        Status st;
        TrainResult result;
        int64_t max_restarts;
        bool again;
    } rows[] = {
        {"a lost tower", ERR_COMM, {.begun = true}, 1, true},
        {"a lost tower before the first step", ERR_COMM, {.begun = false}, 1, true},
        {"a lost device", ERR_DEVICE, {.begun = true}, 1, true},
        {"storage", ERR_IO, {.begun = true}, 1, true},
        {"no device at all", ERR_DEVICE, {.begun = false}, 1, false},
        {"a folder that cannot be written", ERR_IO, {.begun = false}, 1, false},
        {"NaN", ERR_NUMERIC, {.begun = true}, 1, false},
        {"memory", ERR_MEMORY, {.begun = true}, 1, false},
        {"data", ERR_FORMAT, {.begun = true}, 1, false},
        {"a stop signal", ERR_COMM, {.begun = true, .signal = SIGTERM}, 1, false},
        {"a directory that was moved", ERR_IO, {.begun = true, .moved = true}, 1, false},
        {"a killed process that never ended", ERR_COMM, {.begun = true, .abandoned = true}, 1, false},
        {"a driver that does not answer", ERR_DEVICE, {.begun = true, .unanswered = true}, 1, false},
        {"no --max-restarts", ERR_COMM, {.begun = true}, 0, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Restarts restarts = {0};
        TrainJob job = job_of();
        TrainResult result = rows[i].result;
        Status st = rows[i].st;
        job.max_restarts = rows[i].max_restarts;
        waited_s = -1;
        bool again = restart_due(&restarts, &job, &result, &st);
        if (again != rows[i].again || (waited_s >= 0) != again) fail_msg("%s: %d", rows[i].what, again);
        assert_int_equal(st, rows[i].st);
        assert_int_equal(job.restarts, again);
    }
}

/* The last restart was one too few, or a signal came in the wait: the run ends, and says why. */
TEST_WITH(ends_while_waiting, scratch_make, scratch_drop)
{
    Restarts restarts = {0};
    TrainJob job = job_of();
    TrainResult result = {.begun = true};
    Status st = ERR_COMM;
    job.max_restarts = job.restarts = 2;
    assert_false(crash(&restarts, &job, 1, &st));
    assert_fails(st, ERR_COMM, "(after 2 restarts: --max-restarts)");
    job.restarts = 0;
    arriving = SIGTERM;
    assert_false(restart_due(&restarts, &job, &result, &st));
    arriving = 0;
    assert_int_equal(st, ERR_INTERRUPTED);
    assert_int_equal(result.signal, SIGTERM);
    assert_int_equal(job.restarts, 0);
}

/* If somebody sets the clock back, it does not stop. */
TEST_WITH(the_heartbeat_ignores_the_time_of_day, scratch_make, scratch_drop)
{
    TrainJob job = job_of();
    Ledger *ledger;
    assert_int_equal(ledger_create(1, 1, &ledger), OK);
    Heartbeat *beat = heartbeat_start(&job, ledger);
    assert_non_null(beat);
    for (int ms = 0; ms < 60000 && atomic_load(&beats_by) < 0; ms++) usleep(1000);
    assert_true(heartbeat_end(beat));
    assert_int_equal(atomic_load(&beats_by), CLOCK_MONOTONIC);
    ledger_destroy(ledger);
}
