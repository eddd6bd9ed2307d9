/* Files that grow by whole records, written by a thread: nobody waits for storage but who has more records than memory may hold, none
 * is lost, and one that fails is counted. */
#include <sys/syscall.h>

#include "kernels/base/clock.h"
#include "kernels/base/progress.h"
#include "kernels/base/thread.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"
#include "towers/files/append.h"
#include "towers/files/files.h"

enum { BOUND = 4096, RECORDS = 500 };

/* Storage that does not answer, or fails: calls of libc's name from here on are these. */
static _Atomic bool stalled, fails;
static _Atomic int calls;

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at)
{
    atomic_fetch_add(&calls, 1);
    while (atomic_load(&stalled)) nanosleep(&(struct timespec){0, 1000000}, NULL);
    errno = EIO;
    return atomic_load(&fails) ? -1 : syscall(SYS_pwrite64, fd, bytes, count, at);
}

static AppendQueue *queue;
static AppendFile *file[2];

static int files_make(void **state)
{
    char path[PATH_BYTES];
    if (scratch_make(state) != 0 || append_queue_open(BOUND, &queue) != OK) return 1;
    atomic_store(&stalled, false);
    atomic_store(&fails, false);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%d", scratch, i);
        if (append_open(path, true, &file[i]) != OK) return 1;
        append_through(file[i], queue);
    }
    return 0;
}

static int files_drop(void **state)
{
    atomic_store(&stalled, false); /* a test that has failed leaves nobody waiting */
    for (int i = 0; i < 2; i++) append_close(file[i]);
    append_queue_close(queue);
    return scratch_drop(state);
}

static void records_add(int first, int count)
{
    char text[16];
    for (int i = first; i < first + count; i++)
        assert_int_equal(append_record(file[i % 2], text, (size_t)snprintf(text, sizeof text, "%d\n", i)), OK);
}

/* File `which` has the records of its numbers below `end`, in their order. */
static void records_are(int which, int end)
{
    char name[2] = {(char)('0' + which), 0}, *text = scratch_text(name), *at = text;
    for (int i = which; i < end; i += 2) assert_int_equal(strtol(at, &at, 10), i);
    assert_string_equal(at, "\n");
    free(text);
}

static void until(const _Atomic int *count, int least)
{
    for (int i = 0; i < 30000 && atomic_load(count) < least; i++) nanosleep(&(struct timespec){0, 1000000}, NULL);
    assert_true(atomic_load(count) >= least);
}

TEST_WITH(nobody_waits_for_storage, files_make, files_drop)
{
    AppendReport report;
    int before = atomic_load(&calls);
    atomic_store(&stalled, true);
    records_add(0, 100);
    assert_int_equal(append_flush(file[0]), OK);
    until(&calls, before + 1);
    records_add(100, 100);
    assert_true(append_queue_waiting(queue) > 0);
    atomic_store(&stalled, false);
    append_queue_settle(queue);
    for (int i = 0; i < 2; i++) records_are(i, 200);
    append_queue_report(queue, &report);
    assert_true(report.written && report.failed == 0 && report.longest_ns > 0);
    assert_int_equal(append_queue_waiting(queue), 0);
    append_queue_report(queue, &report); /* what was reported is not reported again */
    assert_true(!report.written && report.longest_ns == 0);
}

static ProgressSlot slot;
static _Atomic int added;

static void *add_all(void *context)
{
    char text[16];
    for (int i = 0; i < RECORDS; i++, atomic_fetch_add(&added, 1))
        if (append_record(file[i % 2], text, (size_t)snprintf(text, sizeof text, "%d\n", i)) != OK) break;
    return context;
}

TEST_WITH(what_has_no_room_waits_and_lives, files_make, files_drop)
{
    pthread_t thread;
    atomic_store(&stalled, true);
    progress_to(&slot);
    assert_int_equal(thread_start(&thread, add_all, NULL), 0);
    for (int i = 0; i < 30000 && !progress_storage(&slot); i++) nanosleep(&(struct timespec){0, 1000000}, NULL);
    int64_t since = progress_storage(&slot), now = clock_ns(), life = progress_life(&slot),
            at = atomic_load(&slot.at_ns);
    int some = atomic_load(&added);
    nanosleep(&(struct timespec){0, 150000000}, NULL); /* long enough for a sign of life at its end */
    atomic_store(&stalled, false);
    pthread_join(thread, NULL); /* before anything can fail */
    append_queue_settle(queue);
    assert_true(since > 0 && life >= now && at < now);
    assert_in_range(some, 1, RECORDS - 1);
    assert_int_equal(progress_storage(&slot), 0);
    assert_true(atomic_load(&slot.at_ns) > now);
    assert_true(progress_waited() >= 100000000 && progress_waited() == 0);
    progress_to(NULL);
    assert_int_equal(atomic_load(&added), RECORDS);
    for (int i = 0; i < 2; i++) records_are(i, RECORDS);
}

TEST_WITH(failed_writes_are_counted_and_leave_nothing_half, files_make, files_drop)
{
    AppendReport report;
    records_add(0, 2);
    append_queue_settle(queue);
    atomic_store(&fails, true);
    records_add(2, 2);
    append_queue_settle(queue);
    append_queue_report(queue, &report);
    assert_true(report.failed == 2 && !report.written);
    assert_non_null(strstr(report.why, "cannot write 2 bytes to"));
    atomic_store(&fails, false);
    records_add(0, 2);
    assert_int_equal(append_sync(file[1]), OK); /* waits for what was added before */
    append_queue_report(queue, &report);
    assert_true(report.written && report.failed == 0);
    char *text = scratch_text("1");
    assert_string_equal(text, "1\n1\n");
    free(text);
}
