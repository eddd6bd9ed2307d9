/* Checkpoints and the run directory, by the protocol alone. Every truncation and a flipped bit in every byte must be
 * detected, the older checkpoint used, and nothing deleted that was not replaced. Kills and failing calls:
 * check_checkpoint_faults.sh. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <xxhash.h>

#include "tests/support/failing_malloc.h"
#include "tests/support/sample_checkpoint.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"
#include "towers/store/manifest.h"
#include "towers/store/run_dir.h"

static const char *spoiled; /* a file that loses a bit when the folder that it is in gets its name; NULL: none does */

/* The checkpoint's calls arrive here. */
int rename(const char *from, const char *to)
{
    char path[PATH_BYTES], byte;
    int fd = spoiled && path_join(path, from, spoiled) == OK ? open(path, O_RDWR) : -1;
    if (fd >= 0) {
        off_t middle = lseek(fd, 0, SEEK_END) / 2;
        bool read = pread(fd, &byte, 1, middle) == 1;
        byte ^= 1;
        if (!read || pwrite(fd, &byte, 1, middle) != 1) abort();
        close(fd);
    }
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

static bool without_flags; /* as on NFS */

int renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
    if (without_flags && flags) errno = EINVAL;
    return without_flags && flags ? -1 : (int)syscall(SYS_renameat2, a, from, b, to, flags);
}

static bool without_size; /* as ramfs */
static bool kept_back;    /* what is free is root's alone */

int statvfs(const char *path, struct statvfs *info)
{
    struct statfs found;
    int failed = statfs(path, &found);
    *info = (struct statvfs){.f_bavail = found.f_bavail,
                             .f_bfree = found.f_bfree,
                             .f_blocks = found.f_blocks,
                             .f_frsize = (unsigned long)found.f_bsize};
    if (without_size) *info = (struct statvfs){.f_frsize = 4096};
    if (kept_back) info->f_bavail = 0;
    return failed;
}

static bool exists(const char *name)
{
    char path[PATH_BYTES];
    scratch_path(path, name);
    return access(path, F_OK) == 0;
}

static Status save(int64_t step, int keep, int64_t protect)
{
    Sample sample;
    sample_make(&sample, step, 500);
    Status st = checkpoint_save(scratch, &sample.content, keep, &protect, 1);
    sample_free(&sample);
    return st;
}

static int64_t newest(void)
{
    Checkpoint *checkpoint = NULL;
    assert_int_equal(checkpoint_open_latest(scratch, true, &checkpoint, NULL, 0), OK);
    if (!checkpoint) return -1;
    assert_true(sample_matches(checkpoint));
    int64_t step = checkpoint->step;
    checkpoint_close(checkpoint);
    return step;
}

static int temporaries(void)
{
    char path[PATH_BYTES];
    int count = 0;
    struct dirent *entry;
    scratch_path(path, "ckpt");
    DIR *listing = opendir(path);
    while (listing && (entry = readdir(listing))) count += strncmp(entry->d_name, ".tmp-", 5) == 0;
    if (listing) closedir(listing);
    return count;
}

/* What could not be read once, for want of a descriptor, is read by the next call: a name with zeros looks like one of another
 * boot, which is swept. The first test, because the process keeps what it has read. */
TEST(a_boot_that_was_not_known_is_asked_again)
{
    static const char zeros[] = ".tmp-x-00000000-0000-0000-0000-000000000000-";
    char unknown[PATH_BYTES], known[PATH_BYTES];
    struct rlimit before, none = {3, 3};
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    Status st = path_temporary(unknown, "x");
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(st, OK);
    assert_non_null(strstr(unknown, zeros));
    assert_int_equal(path_temporary(known, "x"), OK);
    assert_null(strstr(known, zeros));
}

TEST_WITH(saved_is_loaded, scratch_make, scratch_drop)
{
    char path[PATH_BYTES], *text;
    size_t count;
    assert_int_equal(newest(), -1);
    assert_int_equal(save(12000, 3, -1), OK);
    assert_int_equal(newest(), 12000);
    scratch_path(path, "ckpt/latest");
    assert_int_equal(file_read(path, 100, &text, &count), OK);
    assert_string_equal(text, "step-0000012000\n");
    free(text);
    assert_int_equal(temporaries(), 0);
    assert_int_equal(save(12000, 3, -1), OK); /* again: a resumed run that stopped at once */
    assert_int_equal(newest(), 12000);
    assert_int_equal(temporaries(), 0);
}

TEST_WITH(older_ones_are_pruned, scratch_make, scratch_drop)
{
    for (int step = 1; step <= 5; step++) assert_int_equal(save(step, 2, 1), OK);
    assert_true(exists("ckpt/step-0000000001")); /* protected */
    assert_false(exists("ckpt/step-0000000002"));
    assert_false(exists("ckpt/step-0000000003"));
    assert_true(exists("ckpt/step-0000000004"));
    assert_int_equal(newest(), 5);
    assert_int_equal(save(3, 1, -1), OK); /* a run that went back: what was just saved stays */
    assert_true(exists("ckpt/step-0000000003"));
    assert_true(exists("ckpt/step-0000000005"));
    assert_false(exists("ckpt/step-0000000004"));
}

static const char *const files[] = {"MANIFEST", "model.safetensors", "train.safetensors", "state.json"};

/* A disk that does not give back what was written: the save fails, and what was there before is all that counts. */
TEST_WITH(what_was_written_is_read_back, scratch_make, scratch_drop)
{
    char path[PATH_BYTES], *text;
    size_t count;
    assert_int_equal(save(1, 1, -1), OK);
    for (int i = 0; i < 4; i++) {
        char aside[64] = "ckpt/step-0000000002.corrupt", number[16] = "";
        spoiled = files[i];
        Status st = save(2, 1, -1);
        spoiled = NULL;
        assert_fails(st, ERR_IO, "cannot be read back (is the disk failing?)");
        assert_non_null(strstr(status_message(), files[i]));
        assert_false(exists("ckpt/step-0000000002"));
        if (i) snprintf(number, sizeof number, ".%d", i);
        assert_true(exists(strcat(aside, number)));
        scratch_path(path, "ckpt/latest");
        assert_int_equal(file_read(path, 100, &text, &count), OK);
        assert_string_equal(text, "step-0000000001\n");
        free(text);
        assert_int_equal(newest(), 1);
    }
    assert_int_equal(save(2, 1, -1), OK);
    assert_int_equal(newest(), 2);
    assert_false(exists("ckpt/step-0000000001"));
}

static Status open_step_1(void)
{
    char path[PATH_BYTES];
    Checkpoint *checkpoint = NULL;
    scratch_path(path, "ckpt/step-0000000001");
    Status st = checkpoint_open(path, &checkpoint);
    checkpoint_close(checkpoint);
    return st;
}

static size_t file_take(const char *name, char path[PATH_BYTES], char **bytes)
{
    size_t count;
    char inside[128];
    snprintf(inside, sizeof inside, "ckpt/step-0000000001/%s", name);
    scratch_path(path, inside);
    assert_int_equal(file_read(path, 1 << 20, bytes, &count), OK);
    return count;
}

static void bytes_put(const char *path, const char *bytes, size_t count)
{
    int fd = open(path, O_WRONLY); /* not O_TRUNC, after which some file systems write to the disk at once */
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, count), count);
    assert_int_equal(ftruncate(fd, (off_t)count), 0);
    close(fd);
}

/* fault: F6 */
TEST_WITH(every_flipped_byte_is_found, scratch_make, scratch_drop)
{
    assert_int_equal(save(1, 1, -1), OK);
    for (int i = 0; i < 4; i++) {
        char path[PATH_BYTES], *bytes;
        size_t count = file_take(files[i], path, &bytes);
        for (size_t at = 0; at < count; at++) {
            bytes[at] ^= (char)(1 << (at * 5 + 3) % 8);
            bytes_put(path, bytes, count);
            assert_fails(open_step_1(), ERR_CHECKPOINT, files[i]);
            bytes[at] ^= (char)(1 << (at * 5 + 3) % 8);
        }
        bytes_put(path, bytes, count);
        assert_int_equal(open_step_1(), OK);
        free(bytes);
    }
}

/* fault: F5 */
TEST_WITH(every_length_is_found, scratch_make, scratch_drop)
{
    assert_int_equal(save(1, 1, -1), OK);
    for (int i = 0; i < 4; i++) {
        char path[PATH_BYTES], *bytes;
        size_t count = file_take(files[i], path, &bytes);
        for (size_t length = 0; length <= count + 1; length++) {
            if (length == count) continue;
            bytes_put(path, bytes, length); /* one more byte: the NUL behind the text */
            assert_fails(open_step_1(), ERR_CHECKPOINT, files[i]);
        }
        bytes_put(path, bytes, count);
        unlink(path);
        assert_int_equal(open_step_1(), ERR_CHECKPOINT);
        bytes_put((close(open(path, O_CREAT | O_WRONLY, 0600)), path), bytes, count);
        free(bytes);
    }
    assert_int_equal(open_step_1(), OK);
}

TEST_WITH(the_damaged_tensor_is_named, scratch_make, scratch_drop)
{
    char path[PATH_BYTES], *bytes;
    assert_int_equal(save(1, 1, -1), OK);
    size_t count = file_take("train.safetensors", path, &bytes);
    bytes[count - 1] ^= 1;
    bytes_put(path, bytes, count);
    free(bytes);
    assert_fails(open_step_1(), ERR_CHECKPOINT, "tensor 'ballast' (500 bytes from data offset 288)");
}

TEST_WITH(the_older_one_is_used, scratch_make, scratch_drop)
{
    char path[PATH_BYTES], note[1024];
    Checkpoint *checkpoint = NULL;
    assert_int_equal(save(1, 9, -1), OK);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(save(2, 9, -1), OK);
        scratch_path(path, "ckpt/step-0000000002/state.json");
        assert_int_equal(truncate(path, 3), 0);
        assert_int_equal(checkpoint_open_latest(scratch, true, &checkpoint, note, sizeof note), OK);
        assert_int_equal(checkpoint->step, 1);
        checkpoint_close(checkpoint);
        assert_non_null(strstr(note, "step-0000000002/state.json' has 3 bytes"));
    }
    assert_true(exists("ckpt/step-0000000002.corrupt/state.json"));
    assert_true(exists("ckpt/step-0000000002.corrupt.1/state.json"));
    scratch_path(path, "ckpt/step-0000000001/MANIFEST");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(checkpoint_open_latest(scratch, true, &checkpoint, note, sizeof note),
                     ERR_CHECKPOINT); /* never from zero in silence */
}

/* All are damaged: every attempt says so of each, with the same words, and nothing gets another name. */
TEST_WITH(none_that_is_whole_is_refused_for_ever, scratch_make, scratch_drop)
{
    char path[PATH_BYTES], first[STATUS_MESSAGE_BYTES];
    Checkpoint *checkpoint = NULL;
    RunSaved saved;
    assert_int_equal(save(1, 9, -1), OK);
    assert_int_equal(save(2, 9, -1), OK);
    scratch_path(path, "ckpt/step-0000000002/state.json");
    assert_int_equal(truncate(path, 3), 0);
    scratch_path(path, "ckpt/step-0000000001/MANIFEST");
    assert_int_equal(unlink(path), 0);
    for (int round = 0; round < 2; round++) {
        assert_fails(checkpoint_open_latest(scratch, true, &checkpoint, NULL, 0), ERR_CHECKPOINT,
                     "step-0000000002/state.json' has 3 bytes");
        assert_non_null(strstr(status_message(), "step-0000000001/MANIFEST': No such file"));
        assert_non_null(strstr(status_message(), "--experiment"));
        if (round) assert_string_equal(status_message(), first);
        strcpy(first, status_message());
    }
    assert_int_equal(run_saved(scratch, &saved), OK);
    assert_int_equal(saved.checkpoints, 2);
}

/* A reader that is older than the format, or that cannot read today, condemns nothing and takes no older one. */
TEST_WITH(what_cannot_be_read_keeps_its_name, scratch_make, scratch_drop)
{
    static const char text[] = "towers-checkpoint 2\nstep 2\n";
    char path[PATH_BYTES];
    Checkpoint *checkpoint = NULL;
    assert_int_equal(save(1, 9, -1), OK);
    assert_int_equal(save(2, 9, -1), OK);
    scratch_path(path, "ckpt/step-0000000002/MANIFEST");
    assert_int_equal(file_replace(path, text, sizeof text - 1), OK);
    assert_int_equal(checkpoint_open_latest(scratch, true, &checkpoint, NULL, 0), ERR_NEWER);
    assert_int_equal(status_exit_code(ERR_NEWER), 4);
    assert_int_equal(save(2, 9, -1), OK);
    struct rlimit before, none = {3, 3};
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_int_equal(checkpoint_open_latest(scratch, true, &checkpoint, NULL, 0), ERR_IO);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_true(exists("ckpt/step-0000000002/MANIFEST"));
    assert_int_equal(newest(), 2);
}

/* Every allocation fails once while the newest checkpoint is read: no name changes, and no older one is taken. */
/* fault: F53 */
TEST_WITH(no_memory_condemns_nothing, scratch_make, scratch_drop)
{
    failing_malloc_or_skip();
    assert_int_equal(save(1, 9, -1), OK);
    assert_int_equal(save(2, 9, -1), OK);
    int status;
    for (int n = 1, finished = 0; !finished; n++) {
        pid_t pid = fork();
        if (pid == 0) {
            Checkpoint *checkpoint = NULL;
            allocations_left = n;
            Status st = checkpoint_open_latest(scratch, true, &checkpoint, NULL, 0);
            bool reached = allocations_left <= 0;
            allocations_left = 0;
            _exit(st == OK ? (checkpoint->step != 2 ? 1 : reached ? 3 : 2) : 3);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (!WIFEXITED(status) || WEXITSTATUS(status) < 2) fail_msg("allocation %d fails: status %x", n, status);
        finished = WEXITSTATUS(status) == 2;
        assert_true(exists("ckpt/step-0000000002/MANIFEST"));
    }
    assert_int_equal(newest(), 2);
}

/* A save of the same step replaces the older one, and leaves nothing behind that looks damaged. */
TEST_WITH(a_file_system_without_rename_flags_will_do, scratch_make, scratch_drop)
{
    Sample sample;
    without_flags = true;
    assert_int_equal(save(1, 9, -1), OK);
    sample_make(&sample, 1, 700);
    Status st = checkpoint_save(scratch, &sample.content, 9, NULL, 0);
    sample_free(&sample);
    assert_int_equal(st, OK);
    assert_int_equal(newest(), 1);
    assert_false(exists("ckpt/step-0000000001.corrupt"));
    assert_int_equal(save(2, 9, -1), OK);
    scratch_put("ckpt/step-0000000002/MANIFEST", "");
    assert_int_equal(newest(), 1);
    assert_true(exists("ckpt/step-0000000002.corrupt"));
    without_flags = false;
}

TEST_WITH(a_file_system_of_unknown_size_will_do, scratch_make, scratch_drop)
{
    without_size = true;
    assert_int_equal(save(1, 9, -1), OK);
    without_size = false;
}

/* File systems keep back a part for root, who may fill it. */
TEST_WITH(what_a_disk_keeps_back_is_roots, scratch_make, scratch_drop)
{
    kept_back = true;
    assert_int_equal(save(1, 9, -1), geteuid() == 0 ? OK : ERR_IO);
    kept_back = false;
}

TEST_WITH(what_a_run_has_saved_is_seen, scratch_make, scratch_drop)
{
    char path[PATH_BYTES], from[PATH_BYTES], list[2048];
    RunSaved saved;
    assert_int_equal(run_saved(scratch, &saved), OK);
    assert_true(!saved.checkpoints && !saved.results && !saved.folder);
    scratch_path(path, "ckpt");
    assert_int_equal(mkdir(path, 0700), 0);
    scratch_path(path, "ckpt/.tmp-step-0000000001-00000000-0000-0000-0000-000000000000-1");
    assert_int_equal(mkdir(path, 0700), 0); /* a first save that was killed: nothing is lost */
    assert_int_equal(run_saved(scratch, &saved), OK);
    assert_true(!saved.checkpoints && !saved.results && saved.folder);
    assert_int_equal(save(1, 9, -1), OK);
    scratch_path(from, "ckpt/step-0000000001");
    scratch_path(path, "ckpt/step-0000000001.corrupt");
    assert_int_equal(rename(from, path), 0);
    assert_int_equal(run_saved(scratch, &saved), OK);
    assert_true(!saved.checkpoints && saved.results);
    checkpoint_list(scratch, list, sizeof list);
    assert_non_null(strstr(list, "step-0000000001.corrupt: complete; rename it to step-0000000001"));
    scratch_path(path, "last.safetensors");
    assert_int_equal(file_replace(path, "x", 1), OK);
    checkpoint_list(scratch, list, sizeof list);
    assert_non_null(strstr(list, "last.safetensors"));
}

TEST_WITH(another_step_under_this_name_is_refused, scratch_make, scratch_drop)
{
    char from[PATH_BYTES], to[PATH_BYTES], note[1024];
    Checkpoint *checkpoint = NULL;
    assert_int_equal(save(1, 9, -1), OK);
    assert_int_equal(save(7, 9, -1), OK);
    scratch_path(from, "ckpt/step-0000000007");
    scratch_path(to, "ckpt/step-0000000008");
    assert_int_equal(rename(from, to), 0);
    assert_int_equal(checkpoint_open_latest(scratch, true, &checkpoint, note, sizeof note), OK);
    assert_int_equal(checkpoint->step, 1);
    assert_non_null(strstr(note, "step 7"));
    checkpoint_close(checkpoint);
}

TEST_WITH(nonsense_is_not_saved, scratch_make, scratch_drop)
{
    Sample sample;
    sample_make(&sample, 1, 1);
    sample.content.state_json = "[1]";
    assert_int_equal(checkpoint_save(scratch, &sample.content, 1, NULL, 0), ERR_ARG);
    sample.content.state_json = "{\"step\": 1, \"step\": 2}";
    assert_int_equal(checkpoint_save(scratch, &sample.content, 1, NULL, 0), ERR_ARG);
    sample.content.state_json = "{}";
    sample.content.step = -1;
    assert_int_equal(checkpoint_save(scratch, &sample.content, 1, NULL, 0), ERR_ARG);
    sample_free(&sample);
    assert_int_equal(newest(), -1);
    assert_int_equal(temporaries(), 0);
}

/* The other trainer, in a process of its own, which holds the run until it is killed. */
static pid_t holder_start(void)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        int lock;
        close(ready[0]);
        if (run_dir_take(scratch, &lock) == OK) (void)!write(ready[1], "x", 1);
        close(ready[1]);
        pause();
        _exit(0);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

TEST_WITH(a_run_has_one_trainer, scratch_make, scratch_drop)
{
    int lock = -1;
    char wanted[200];
    pid_t holder = holder_start();
    assert_int_equal(run_dir_take(scratch, &lock), ERR_ARG);
    snprintf(wanted, sizeof wanted, "another trainer (pid %d) is using %s", (int)holder, scratch);
    assert_non_null(strstr(status_message(), wanted));
    kill(holder, SIGKILL);
    waitpid(holder, NULL, 0);
    assert_int_equal(run_dir_take(scratch, &lock), OK); /* the lock went with it */
    run_dir_release(lock);
}

TEST_WITH(what_the_dead_left_is_swept, scratch_make, scratch_drop)
{
    char path[PATH_BYTES], temporary[PATH_BYTES], alive[PATH_BYTES];
    int lock;
    assert_int_equal(save(1, 9, -1), OK);
    scratch_path(path, "ckpt/.tmp-step-0000000002-00000000-0000-0000-0000-000000000000-1");
    assert_int_equal(mkdir(path, 0700), 0); /* of another boot */
    scratch_path(path, "ckpt/step-0000000003");
    assert_int_equal(path_temporary(temporary, path), OK);
    assert_int_equal(mkdir(temporary, 0700), 0); /* of an earlier process with this one's number */
    pid_t pid = fork();
    if (pid == 0) _exit(0);
    siginfo_t ended;
    assert_int_equal(waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOWAIT), 0); /* a zombie until the wait below */
    char zombie[PATH_BYTES];
    snprintf(zombie, sizeof zombie, ".tmp-x%.*s-%d", 37, strrchr(temporary, '-') - 37, (int)pid);
    assert_true(name_is_stale(zombie));
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    snprintf(alive, sizeof alive, "%.*s-1", (int)(strrchr(temporary, '-') - temporary), temporary);
    assert_int_equal(mkdir(alive, 0700), 0); /* of a process that lives: init */
    scratch_path(path, "ckpt/.tmp-");
    assert_int_equal(mkdir(path, 0700), 0); /* nobody's */
    assert_int_equal(temporaries(), 4);
    assert_int_equal(run_dir_take(scratch, &lock), OK);
    run_dir_release(lock);
    assert_int_equal(temporaries(), 2);
    assert_int_equal(access(alive, F_OK), 0);
    assert_int_equal(newest(), 1);
}

static Status written_within(rlim_t bytes, Status (*put)(const char *, const void *, size_t), const char *path,
                             const char *text, size_t count)
{
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){bytes, before.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    Status st = put(path, text, count);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    return st;
}

/* A file that is first written under another name is reported by the name that was requested. */
TEST_WITH(failures_name_the_file_that_was_meant, scratch_make, scratch_drop)
{
    enum { LARGE = 100000 };
    char path[PATH_BYTES], named[PATH_BYTES + 16];
    static char text[LARGE];
    scratch_path(path, "dots.-and-1/report-0.html");
    *strrchr(path, '/') = 0;
    assert_int_equal(mkdir(path, 0700), 0);
    scratch_path(path, "dots.-and-1/report-0.html");
    assert_int_equal(written_within(1000, file_replace, path, text, LARGE), ERR_IO);
    snprintf(named, sizeof named, "for '%s': ", path);
    if (!strstr(status_message(), named)) fail_msg("no \"%s\" in: %s", named, status_message());
    *strrchr(path, '/') = 0;
    assert_int_equal(rmdir(path), 0); /* nothing is left in it */
    strcat(path, "/report-0.html");
    assert_int_equal(file_replace(path, text, LARGE), ERR_IO);
    snprintf(named, sizeof named, "cannot create '%s' (temporary name '%s", path, scratch);
    if (!strstr(status_message(), named)) fail_msg("no \"%s\" in: %s", named, status_message());
}

/* fault: F48 */
TEST_WITH(a_line_that_does_not_fit_leaves_nothing, scratch_make, scratch_drop)
{
    char path[PATH_BYTES];
    scratch_path(path, "list.csv");
    assert_int_equal(run_file_append(path, "1,2\n", 4), OK);
    assert_int_equal(written_within(6, run_file_append, path, "3,4\n", 4), ERR_IO);
    assert_int_equal(run_file_append(path, "5,6\n", 4), OK);
    char *text = scratch_text("list.csv");
    assert_string_equal(text, "1,2\n5,6\n");
    free(text);
}

/* A file's sum is that of its bytes, whether they come in pieces that a buffer gathers or in one that is larger. */
TEST_WITH(sums_are_of_all_bytes, scratch_make, scratch_drop)
{
    enum { LARGE = 1000003, SMALL = 1001 };
    static unsigned char bytes[LARGE];
    char path[PATH_BYTES];
    for (size_t i = 0; i < LARGE; i++) bytes[i] = (unsigned char)(i * 2654435761u >> 13);
    XXH128_hash_t wanted = XXH3_128bits(bytes, LARGE);
    for (size_t piece = SMALL; piece <= LARGE; piece += LARGE - SMALL) {
        DurableFile *file = NULL;
        FileSum sum;
        scratch_path(path, piece == SMALL ? "small" : "large");
        assert_int_equal(durable_create(path, LARGE, &file), OK);
        for (size_t at = 0; at < LARGE; at += piece)
            assert_int_equal(durable_write(file, bytes + at, piece < LARGE - at ? piece : LARGE - at), OK);
        assert_int_equal(durable_finish(file, &sum), OK);
        durable_destroy(file);
        assert_true(sum.bytes == LARGE && sum.high == wanted.high64 && sum.low == wanted.low64);
    }
}

/* An object that is not a regular file is not replaced: here a link, and the file that it points to. */
TEST_WITH(a_link_is_not_replaced, scratch_make, scratch_drop)
{
    char path[PATH_BYTES], *text;
    scratch_put("target", "precious");
    scratch_path(path, "link");
    assert_int_equal(symlink("target", path), 0);
    assert_fails(file_replace(path, "other", 5), ERR_IO, "is not a regular file");
    struct stat info;
    assert_int_equal(lstat(path, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    text = scratch_text("target");
    assert_string_equal(text, "precious");
    free(text);
}

TEST_WITH(a_run_needs_a_place, scratch_make, scratch_drop)
{
    char path[PATH_BYTES];
    int lock = -1;
    scratch_path(path, "file");
    assert_int_equal(file_replace(path, "x", 1), OK);
    assert_int_equal(run_dir_take(path, &lock), ERR_IO);
    scratch_path(path, "file/below");
    assert_int_equal(run_dir_take(path, &lock), ERR_IO);
    scratch_path(path, "a/b/c");
    assert_int_equal(run_dir_take(path, &lock), OK);
    run_dir_release(lock);
    assert_true(exists("a/b/c/.lock"));
}

/* fault: F10 */
TEST(manifests_of_other_versions_are_refused)
{
    static const char text[] = "towers-checkpoint 7\nstep 1\n";
    Manifest *manifest = NULL;
    assert_fails(manifest_parse(text, sizeof text - 1, "M", &manifest), ERR_NEWER,
                 "version 7; this program reads version 1");
}
