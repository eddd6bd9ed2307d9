/* Records of another host come to rank 0's run directory whole or not at all, under names that rank 0 makes, and only those of the
 * sender's own towers. */
#include "kernels/base/clock.h"
#include "nccl_sync/hosts/control.h"
#include "tests/support/free_port.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"
#include "towers/guard/capsule_files.h"
#include "towers/replica/replica.h"
#include "towers/store/manifest.h"
#include "towers/store/run_dir.h"
#include "towers/supervisor/host_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/wait.h>

enum { TIMEOUT_MS = 60000, NAME_BYTES = 256, LARGE = 3 << 20 /* more than a window */, SINCE = 1000000 };

#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "rank 1: not %s: %s\n", #what, status_message());                                          \
            _exit(99);                                                                                                 \
        }                                                                                                              \
    } while (0)

/* Towers 0 and 1 are rank 0's, 2 and 3 rank 1's. */
static TrainJob job_of(ControlPlane *control, int rank, const char *run_dir)
{
    TrainJob job = {.control = control, .nodes = 2, .node = rank, .processes = 2, .run_dir = run_dir};
    job.local_batches.towers = 4;
    return job;
}

static char *large_text(char letter)
{
    char *text = malloc(LARGE + 1);
    assert_non_null(text);
    memset(text, letter, LARGE);
    text[LARGE] = 0;
    return text;
}

/* The files of a capsule; their content is of no concern here, but that they are as the manifest says. */
static void capsule_put(const char *name)
{
    char path[PATH_BYTES], *text = large_text('m');
    Manifest *manifest;
    scratch_path(path, name);
    assert_int_equal(mkdir(path, 0777), 0);
    assert_int_equal(manifest_create(5, &manifest), OK);
    assert_int_equal(manifest_write_text(manifest, path, CAPSULE_BATCH, "images"), OK);
    assert_int_equal(manifest_write_text(manifest, path, CAPSULE_MODEL, text), OK);
    assert_int_equal(manifest_write_text(manifest, path, CHOICES_FILE, "kernels of a GPU"), OK);
    assert_int_equal(manifest_write_text(manifest, path, NETWORK_FILE, "a network"), OK);
    assert_int_equal(manifest_write_text(manifest, path, CAPSULE_STATE, "{}"), OK);
    assert_int_equal(manifest_finish(manifest, path), OK);
    manifest_destroy(manifest);
    free(text);
}

static void directory_put(const char *name)
{
    char path[PATH_BYTES];
    scratch_path(path, name);
    assert_int_equal(mkdir(path, 0777), 0);
}

static bool exists(const char *name)
{
    char path[PATH_BYTES];
    scratch_path(path, name);
    return access(path, F_OK) == 0;
}

static void assert_same(const char *a, const char *b)
{
    char *of_a = scratch_text(a), *of_b = scratch_text(b);
    assert_string_equal(of_a, of_b);
    free(of_a);
    free(of_b);
}

static int entries(const char *name)
{
    char path[PATH_BYTES];
    struct dirent *entry;
    int count = 0;
    scratch_path(path, name);
    DIR *listing = opendir(path);
    assert_non_null(listing);
    while ((entry = readdir(listing))) count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(listing);
    return count;
}

static void serve(ControlPlane *control)
{
    control_serve(control, 0);
    nanosleep(&(struct timespec){0, 1000000l}, NULL);
}

/* Rank 1 does `life` with a job of this run directory, while rank 0 takes files to run/. */
static void meet(const char *directory, void (*life)(const TrainJob *), char *problems, size_t bytes)
{
    ControlConfig config = {.channel = "control",
                            .part = "supervisor",
                            .timeout_ms = TIMEOUT_MS,

                            .ranks = 2,
                            .master = "127.0.0.1",
                            .port = free_port(),
                            .secret = {{7}},
                            .secret_from = "TOWERS_TOKEN"};
    char own[PATH_BYTES], theirs[PATH_BYTES];
    ControlPlane *control;
    HostFiles *files;
    ControlEnd mine = {.rank = 0}, all;
    int status;
    scratch_path(own, "run");
    scratch_path(theirs, directory);
    pid_t other = fork();
    if (other == 0) {
        config.rank = 1;
        mine.rank = 1;
        if (control_open(&config, &control) != OK) _exit(98);
        TrainJob job = job_of(control, 1, theirs);
        CHECK(control_barrier(control, "meet") == OK);
        control_watch(control);
        life(&job);
        while (!control_end(control, &mine, &all)) serve(control);
        control_close(control);
        _exit(0);
    }
    assert_int_equal(control_open(&config, &control), OK);
    TrainJob job = job_of(control, 0, own);
    assert_int_equal(control_barrier(control, "meet"), OK);
    assert_int_equal(host_files_open(&job, &files), OK);
    control_watch(control);
    while (!control_end(control, &mine, &all)) serve(control);
    host_files_close(files, problems, bytes);
    control_close(control);
    assert_int_equal(waitpid(other, &status, 0), other);
    assert_int_equal(status, 0);
}

static void sends_all(const TrainJob *job)
{
    CHECK(host_files_send(job, SINCE) == OK);
}

TEST_WITH(test_brought, scratch_make, scratch_drop)
{
    char problems[2048], path[PATH_BYTES], *large = large_text('s');
    struct timespec old[2] = {{.tv_sec = SINCE - 1}, {.tv_sec = SINCE - 1}};
    struct stat before, after;
    directory_put("run");
    directory_put("theirs");
    scratch_put("theirs/rank1-samples.csv", large);
    free(large);
    scratch_put("theirs/rank1-bad-samples.csv", "of an earlier start");
    scratch_path(path, "theirs/rank1-bad-samples.csv");
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    scratch_put("theirs/stack-tower-2.txt", "main");
    scratch_put("theirs/stack-tower-0.txt", "of a tower of rank 0");
    scratch_put("theirs/stack-tower-02.txt", "no name of ours");
    scratch_put("theirs/log.txt", "nor this");
    scratch_put("run/stack-tower-2.txt", "of an earlier attempt");
    capsule_put("theirs/nan-step-5-tower-3");
    meet("theirs", sends_all, problems, sizeof problems);
    assert_string_equal(problems, "");
    assert_same("run/rank1-samples.csv", "theirs/rank1-samples.csv");
    assert_same("run/stack-tower-2.txt", "theirs/stack-tower-2.txt");
    for (int i = 0; i < 6; i++) {
        static const char *const names[] = {"MANIFEST",   CAPSULE_BATCH, CAPSULE_MODEL,
                                            CHOICES_FILE, NETWORK_FILE,  CAPSULE_STATE};
        char a[128], b[128];
        snprintf(a, sizeof a, "run/nan-step-5-tower-3/%s", names[i]);
        snprintf(b, sizeof b, "theirs/nan-step-5-tower-3/%s", names[i]);
        assert_same(a, b);
    }
    assert_int_equal(entries("run"), 3);

    /* once more, and with one directory for both: nothing is replaced by itself */
    scratch_path(path, "run/nan-step-5-tower-3");
    assert_int_equal(stat(path, &before), 0);
    meet("theirs", sends_all, problems, sizeof problems);
    meet("run", sends_all, problems, sizeof problems);
    assert_string_equal(problems, "");
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    assert_int_equal(entries("run"), 3);
}

/* The first file that a listing of the directory has. */
static void listed_first(const char *directory, char name[NAME_BYTES])
{
    char path[PATH_BYTES];
    struct dirent *entry;
    scratch_path(path, directory);
    DIR *listing = opendir(path);
    assert_non_null(listing);
    while ((entry = readdir(listing)) && entry->d_name[0] == '.') continue;
    assert_non_null(entry);
    snprintf(name, NAME_BYTES, "%s", entry->d_name);
    closedir(listing);
}

static void sends_but_one(const TrainJob *job)
{
    CHECK(host_files_send(job, SINCE) == ERR_IO);
    CHECK(strstr(status_message(), "stack-tower-") || strstr(status_message(), "rank1-"));
}

/* A file that cannot be brought, here a link, does not hold back those that are listed behind it. */
TEST_WITH(test_held_back, scratch_make, scratch_drop)
{
    static const char *const names[] = {"rank1-samples.csv", "rank1-bad-samples.csv", "stack-tower-2.txt",
                                        "stack-tower-3.txt"};
    enum { NAMES = sizeof names / sizeof *names };
    char problems[2048], bad[NAME_BYTES], first[NAME_BYTES], path[PATH_BYTES], a[NAME_BYTES + 16], b[NAME_BYTES + 16];
    directory_put("run");
    directory_put("theirs");
    for (int i = 0; i < NAMES; i++) {
        snprintf(a, sizeof a, "theirs/%s", names[i]);
        scratch_put(a, names[i]);
    }
    listed_first("theirs", bad);
    snprintf(a, sizeof a, "theirs/%s", bad);
    scratch_path(path, a);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("nowhere", path), 0);
    listed_first("theirs", first);
    for (int i = 0; i < NAMES && strcmp(bad, first) != 0; i++) { /* listed by age: make the link the oldest one */
        if (!strcmp(names[i], bad)) continue;
        snprintf(a, sizeof a, "theirs/%s", names[i]);
        scratch_path(path, a);
        assert_int_equal(unlink(path), 0);
        scratch_put(a, names[i]);
    }
    listed_first("theirs", first);
    assert_string_equal(first, bad);
    meet("theirs", sends_but_one, problems, sizeof problems);
    assert_string_equal(problems, "");
    for (int i = 0; i < NAMES; i++) {
        snprintf(a, sizeof a, "run/%s", names[i]);
        snprintf(b, sizeof b, "theirs/%s", names[i]);
        if (strcmp(names[i], bad) != 0) assert_same(a, b);
    }
    assert_int_equal(entries("run"), NAMES - 1);
}

/* A resumed run adds rows, or has rank 1 on a host that has not those from before: nothing that rank 0 has is lost. */
TEST_WITH(test_resumed, scratch_make, scratch_drop)
{
    char problems[2048], *large = large_text('r');
    directory_put("run");
    directory_put("theirs");
    directory_put("elsewhere");
    scratch_put("theirs/rank1-samples.csv", large);
    meet("theirs", sends_all, problems, sizeof problems);
    large = realloc(large, LARGE + 8);
    assert_non_null(large);
    strcat(large, "2,0,2,1");
    scratch_put("theirs/rank1-samples.csv", large);
    meet("theirs", sends_all, problems, sizeof problems);
    assert_same("run/rank1-samples.csv", "theirs/rank1-samples.csv");
    assert_int_equal(entries("run"), 1);
    large[LARGE - 1] = 'x'; /* longer than the other, but another */
    strcpy(large + LARGE, "3,0,2,1");
    for (int i = 1; i <= 2; i++) {
        char name[64];
        scratch_put("elsewhere/rank1-samples.csv", i == 1 ? large : "3,0,2,1");
        snprintf(name, sizeof name, "run/rank1-samples.csv.%d", i);
        char *before = scratch_text("run/rank1-samples.csv");
        meet("elsewhere", sends_all, problems, sizeof problems);
        assert_string_equal(problems, "");
        assert_same("run/rank1-samples.csv", "elsewhere/rank1-samples.csv");
        char *kept = scratch_text(name);
        assert_string_equal(kept, before);
        free(kept);
        free(before);
        assert_int_equal(entries("run"), 1 + i);
    }
    free(large);
}

static ControlFile head_of(ControlFileKind kind, int tower, const char *content)
{
    FileSum sum;
    memory_sum(content, strlen(content), &sum);
    return (ControlFile){kind, tower, 7, sum.bytes, sum.high, sum.low};
}

static void sends(const TrainJob *job, const ControlFile *head, const char *piece)
{
    CHECK(control_send(job->control, CONTROL_FILE, head, sizeof *head) == OK);
    CHECK(control_send(job->control, CONTROL_PIECE, piece, strlen(piece)) == OK);
}

/* A tower of rank 0; another content; more than was announced; a capsule whose state is not that of its manifest; files of
 * a capsule that nobody has begun; a file that does not end. */
static void sends_nonsense(const TrainJob *job)
{
    char *manifest = scratch_text("theirs/nan-step-7-tower-2/MANIFEST");
    ControlFile head = head_of(FILE_STACK, 1, "main");
    sends(job, &head, "main");
    head = head_of(FILE_STACK, 2, "main");
    sends(job, &head, "niam");
    sends(job, &head, "mainly");
    head = head_of(FILE_MODEL, 3, "weights");
    sends(job, &head, "weights");
    head = head_of(FILE_MANIFEST, 2, manifest);
    sends(job, &head, manifest);
    head = head_of(FILE_STATE, 2, "[]");
    sends(job, &head, "[]");
    head = head_of(FILE_SAMPLES, 0, "12345");
    sends(job, &head, "123");
    free(manifest);
}

TEST_WITH(test_nonsense, scratch_make, scratch_drop)
{
    char problems[2048];
    directory_put("run");
    directory_put("theirs");
    scratch_put("run/stack-tower-1.txt", "its own");
    scratch_put("run/stack-tower-2.txt", "of an earlier attempt");
    capsule_put("theirs/nan-step-7-tower-2");
    meet("theirs", sends_nonsense, problems, sizeof problems);
    assert_non_null(strstr(problems, "tower 1 is not one of its towers"));
    assert_non_null(strstr(problems, "its digest differs"));
    assert_non_null(strstr(problems, "more has come than its size"));
    assert_non_null(strstr(problems, "capsule nan-step-7-tower-2 of rank 1 stays on "));
    char *own = scratch_text("run/stack-tower-1.txt"), *earlier = scratch_text("run/stack-tower-2.txt");
    assert_string_equal(own, "its own");
    assert_string_equal(earlier, "of an earlier attempt");
    free(own);
    free(earlier);
    assert_false(exists("run/nan-step-7-tower-2"));
    assert_int_equal(entries("run"), 2); /* and nothing temporary */
}
