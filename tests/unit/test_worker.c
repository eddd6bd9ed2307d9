/* The thread of a network of libtowers: jobs of many threads run one at a time, each for the call that gave it; a worker that is stopped
 * while calls wait serves them and refuses what comes later, when its memory is gone. The thread sanitizer runs it. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inception/library/worker.h"
#include "tests/support/unit.h"

enum { CALLERS = 24, JOBS = 200, TOO_LONG_S = 30 };

typedef struct Caller {
    NetworkWorker *worker;
    pthread_t thread;
    int64_t asked, served; /* by calls that returned OK; by jobs */
    Status end;
    char why[STATUS_MESSAGE_BYTES];
} Caller;

static atomic_int running;
static atomic_int_least64_t ran;
static atomic_bool stopped;

static Status job(void *of)
{
    Caller *caller = of;
    if (atomic_fetch_add(&running, 1) != 0 || atomic_load(&stopped)) return FAIL(ERR_INTERNAL, "two jobs, or too late");
    caller->served++;
    atomic_fetch_add(&ran, 1);
    atomic_fetch_sub(&running, 1);
    return OK;
}

static Status failing_job(void *of)
{
    return FAIL(ERR_FORMAT, "the job of number %d", *(int *)of);
}

static void *call(void *of)
{
    Caller *caller = of;
    while ((caller->end = worker_run(caller->worker, job, caller)) == OK) caller->asked++;
    snprintf(caller->why, sizeof caller->why, "%s", status_message());
    return NULL;
}

static Status last_job(void *of)
{
    *(int64_t *)of = atomic_load(&ran);
    atomic_store(&stopped, true);
    return OK;
}

TEST(calls_inside_are_served)
{
    static Caller caller[CALLERS];
    int64_t served = 0, at_the_end = -1;
    alarm(TOO_LONG_S);
    NetworkWorker *worker = mmap(NULL, sizeof *worker, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(worker, MAP_FAILED);
    assert_int_equal(worker_start(worker), OK);
    for (int i = 0; i < CALLERS; i++) {
        caller[i].worker = worker;
        assert_int_equal(pthread_create(&caller[i].thread, NULL, call, &caller[i]), 0);
    }
    while (atomic_load(&ran) < JOBS) usleep(1000);
    assert_true(worker_stop(worker, last_job, &at_the_end));
    assert_int_equal(mprotect(worker, sizeof *worker, PROT_NONE), 0); /* who touches it from here on dies */
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(caller[i].thread, NULL);
        assert_int_equal(caller[i].asked, caller[i].served);
        assert_int_equal(caller[i].end, ERR_ARG);
        assert_non_null(strstr(caller[i].why, "the network is closed, or another thread is closing it"));
        served += caller[i].served;
    }
    assert_int_equal(served, at_the_end); /* all jobs were before the last one */
    assert_fails(worker_run(worker, job, caller), ERR_ARG, "the network is closed");
    assert_false(worker_stop(worker, last_job, &at_the_end));
    munmap(worker, sizeof *worker);
    alarm(0);
}

TEST(a_failure_is_that_of_the_call)
{
    NetworkWorker first, second;
    int number[] = {3, 4};
    assert_int_equal(worker_start(&first), OK);
    assert_int_equal(worker_start(&second), OK);
    assert_fails(worker_run(&first, failing_job, &number[0]), ERR_FORMAT, "the job of number 3");
    assert_fails(worker_run(&second, failing_job, &number[1]), ERR_FORMAT, "the job of number 4");
    int64_t ignored;
    assert_true(worker_stop(&first, last_job, &ignored));
    assert_fails(worker_run(&second, failing_job, &number[0]), ERR_FORMAT, "the job of number 3");
    assert_true(worker_stop(&second, last_job, &ignored));
}

/* While another thread's calls come and go. */
TEST(forks_have_workers_of_their_own)
{
#if defined(__SANITIZE_THREAD__)
    skip("the thread sanitizer allows a fork of several threads no threads");
#endif
    Caller caller = {0};
    NetworkWorker worker, own;
    int64_t ignored;
    atomic_store(&stopped, false);
    assert_int_equal(worker_start(&worker), OK);
    caller.worker = &worker;
    assert_int_equal(pthread_create(&caller.thread, NULL, call, &caller), 0);
    for (int i = 0; i < 20; i++) {
        int status = -1;
        pid_t child = fork();
        if (!child) {
            alarm(TOO_LONG_S);
            bool refused = worker_run(&worker, job, &caller) == ERR_ARG && strstr(status_message(), "before its fork");
            bool kept = !worker_stop(&worker, last_job, &ignored);
            _exit(refused && kept && worker_start(&own) == OK && worker_stop(&own, last_job, &ignored) ? 0 : 1);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    assert_true(worker_stop(&worker, last_job, &ignored));
    pthread_join(caller.thread, NULL);
}
