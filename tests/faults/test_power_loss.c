/* Power failures during a save. Every call that changes files is recorded. For each call, every state of the disk is
 * built that a file system may leave after a power failure right after it: data that was not fsynced is lost, full of
 * zeros or present; names whose directory was not fsynced have changed or not, in every combination. In each state the
 * newest checkpoint must be complete and no older than the last save that was reported as done. */
#include <fcntl.h>
#include <limits.h>
#include <sys/syscall.h>

#include "tests/support/sample_checkpoint.h"
#include "tests/support/unit.h"

enum { NODES = 200, CALLS = 4000, NAMES = 200, FILES = 1024, PENDING = 12, BALLAST = 300, FILE_BYTES = 1 << 14 };

typedef enum CallKind { CALL_LINK = 1, CALL_MOVE, CALL_SWAP, CALL_UNLINK, CALL_WRITE, CALL_SYNC, CALL_SAVED } CallKind;

typedef struct Call {
    CallKind kind;
    int node;      /* LINK: the new one; WRITE, SYNC: the one */
    int directory; /* LINK, MOVE, SWAP, UNLINK: where */
    char from[NAME_MAX], to[NAME_MAX];
    size_t at, count; /* WRITE */
    const char *data; /* WRITE: NULL for zeros */
    int64_t step;     /* SAVED: the save of this step has returned */
} Call;

typedef struct Name {
    int directory, node;
    char text[NAME_MAX];
} Name;

typedef struct Names {
    Name name[NAMES];
    int count;
} Names;

static bool is_directory[NODES]; /* of a file or directory, whatever its names; number 1 is the run directory */
static Call calls[CALLS];
static int node_count, call_count;
static int node_of_fd[FILES];
static size_t offset_of_fd[FILES];
static Names names_now;
static bool recording;
static char run[] = "/tmp/towers-power.XXXXXX", disk[] = "/dev/shm/towers-disk.XXXXXX";

/* ---- names */

static Name *name_find(Names *names, int directory, const char *text)
{
    for (int i = 0; i < names->count; i++)
        if (names->name[i].directory == directory && !strcmp(names->name[i].text, text)) return &names->name[i];
    return NULL;
}

static void name_drop(Names *names, int directory, const char *text)
{
    Name *name = name_find(names, directory, text);
    if (name) *name = names->name[--names->count];
}

static void name_add(Names *names, int directory, const char *text, int node)
{
    name_drop(names, directory, text);
    assert_true(names->count < NAMES);
    Name *name = &names->name[names->count++];
    *name = (Name){.directory = directory, .node = node};
    snprintf(name->text, sizeof name->text, "%s", text);
}

/* The effect of one call on the names; none if its name does not exist. */
static void names_change(Names *names, const Call *call)
{
    Name *from = name_find(names, call->directory, call->from), *to = name_find(names, call->directory, call->to);
    if (call->kind == CALL_LINK) name_add(names, call->directory, call->to, call->node);
    if (call->kind == CALL_UNLINK) name_drop(names, call->directory, call->from);
    if (call->kind == CALL_MOVE && from) {
        int node = from->node;
        name_drop(names, call->directory, call->from);
        name_add(names, call->directory, call->to, node);
    }
    if (call->kind == CALL_SWAP && from && to) {
        int node = from->node;
        from->node = to->node;
        to->node = node;
    }
}

/* The node of a path below the run directory, and its last part; 0 if it is elsewhere or missing. */
static int node_at(const char *path, int *directory, char last[NAME_MAX])
{
    size_t skip = strlen(run);
    int node = 1;
    if (strncmp(path, run, skip) || (path[skip] && path[skip] != '/')) return *directory = 0;
    *directory = 0;
    last[0] = 0;
    for (const char *at = path + skip; *at; at += strcspn(at, "/")) {
        at++;
        snprintf(last, NAME_MAX, "%.*s", (int)strcspn(at, "/"), at);
        *directory = node;
        const Name *name = name_find(&names_now, node, last);
        node = name ? name->node : 0;
    }
    return node;
}

/* ---- recording */

static Call *call_add(CallKind kind)
{
    if (call_count == CALLS) abort();
    calls[call_count] = (Call){.kind = kind};
    return &calls[call_count++];
}

static int node_add(bool directory)
{
    if (++node_count >= NODES) abort();
    is_directory[node_count] = directory;
    return node_count;
}

static void record_link(const char *path, bool makes_directory)
{
    int directory;
    char last[NAME_MAX];
    node_at(path, &directory, last);
    if (!recording || !directory) return;
    Call *call = call_add(CALL_LINK);
    call->node = node_add(makes_directory);
    call->directory = directory;
    strcpy(call->to, last);
    names_change(&names_now, call);
}

static void record_rename(const char *from, const char *to, CallKind kind)
{
    int directory, same;
    char old[NAME_MAX], new[NAME_MAX];
    if (!recording || !node_at(from, &directory, old)) return;
    node_at(to, &same, new);
    if (same != directory) abort(); /* the protocol renames inside one directory only */
    Call *call = call_add(kind);
    call->directory = directory;
    strcpy(call->from, old);
    strcpy(call->to, new);
    names_change(&names_now, call);
}

static void record_bytes(int fd, const char *data, size_t at, size_t count)
{
    int node = fd >= 0 && fd < FILES ? node_of_fd[fd] : 0;
    if (!recording || !node) return;
    if (at + count > FILE_BYTES) abort();
    Call *call = call_add(CALL_WRITE);
    *call = (Call){.kind = CALL_WRITE, .node = node, .at = at, .count = count};
    if (data) call->data = memcpy(malloc(count + 1), data, count);
}

int open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    int mode = flags & O_CREAT ? va_arg(more, int) : 0, directory;
    va_end(more);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    char last[NAME_MAX];
    if (fd < 0 || fd >= FILES) return fd;
    if (flags & O_CREAT && flags & O_EXCL) record_link(path, false);
    node_of_fd[fd] = recording ? node_at(path, &directory, last) : 0;
    offset_of_fd[fd] = 0;
    return fd;
}

ssize_t write(int fd, const void *bytes, size_t count)
{
    ssize_t done = syscall(SYS_write, fd, bytes, count);
    if (done <= 0 || fd >= FILES) return done;
    record_bytes(fd, bytes, offset_of_fd[fd], (size_t)done);
    offset_of_fd[fd] += (size_t)done;
    return done;
}

int fallocate(int fd, int mode, off_t at, off_t count)
{
    int failed = (int)syscall(SYS_fallocate, fd, mode, at, count);
    if (!failed) record_bytes(fd, NULL, (size_t)at, (size_t)count);
    return failed;
}

int fsync(int fd)
{
    int failed = (int)syscall(SYS_fsync, fd), node = fd >= 0 && fd < FILES ? node_of_fd[fd] : 0;
    if (!failed && recording && node) call_add(CALL_SYNC)->node = node;
    return failed;
}

int mkdir(const char *path, mode_t mode)
{
    int failed = (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
    if (!failed) record_link(path, true);
    return failed;
}

int rename(const char *from, const char *to)
{
    int failed = (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
    if (!failed) record_rename(from, to, CALL_MOVE);
    return failed;
}

int renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
    int failed = (int)syscall(SYS_renameat2, a, from, b, to, flags);
    if (!failed) record_rename(from, to, flags & RENAME_EXCHANGE ? CALL_SWAP : CALL_MOVE);
    return failed;
}

static int removed(const char *path, int flag)
{
    int directory, failed = (int)syscall(SYS_unlinkat, AT_FDCWD, path, flag);
    char last[NAME_MAX];
    if (failed || !recording || !node_at(path, &directory, last)) return failed;
    Call *call = call_add(CALL_UNLINK);
    call->directory = directory;
    strcpy(call->from, last);
    names_change(&names_now, call);
    return 0;
}

int unlink(const char *path)
{
    return removed(path, 0);
}

int remove(const char *path)
{
    struct stat info;
    return removed(path, lstat(path, &info) == 0 && S_ISDIR(info.st_mode) ? AT_REMOVEDIR : 0);
}

/* ---- the disk after the power went, when calls [0, end) had been made */

typedef enum Unsynced { LOST = 0, ZEROS, THERE, UNSYNCED_KINDS } Unsynced;

static bool is_name_call(const Call *call)
{
    return call->kind >= CALL_LINK && call->kind <= CALL_UNLINK;
}

/* Was the directory of call `i` fsynced before `end`, or a whole save done since? Then its change lasts. */
static bool lasts(int i, int end)
{
    for (int k = i + 1; k < end; k++)
        if (calls[k].kind == CALL_SAVED || (calls[k].kind == CALL_SYNC && calls[k].node == calls[i].directory))
            return true;
    return false;
}

static int pending_find(int end, int pending[PENDING])
{
    int count = 0;
    for (int i = 0; i < end; i++) {
        if (!is_name_call(&calls[i]) || lasts(i, end)) continue;
        if (count == PENDING) fail_msg("more than %d names wait for an fsync of their directory", PENDING);
        pending[count++] = i;
    }
    return count;
}

/* Has any file bytes that were not fsynced? */
static bool has_unsynced(int end)
{
    bool unsynced[NODES] = {false}, any = false;
    for (int i = 0; i < end; i++) {
        if (calls[i].kind == CALL_WRITE) unsynced[calls[i].node] = true;
        if (calls[i].kind == CALL_SYNC) unsynced[calls[i].node] = false;
    }
    for (int i = 0; i < NODES; i++) any |= unsynced[i];
    return any;
}

/* The names, when of the pending changes only those of `mask` reached the disk. */
static void names_replay(int end, const int *pending, int pending_count, unsigned mask, Names *names)
{
    names->count = 0;
    for (int i = 0, k = 0; i < end; i++) {
        bool waits = k < pending_count && pending[k] == i;
        if (is_name_call(&calls[i]) && (!waits || mask >> k & 1)) names_change(names, &calls[i]);
        k += waits;
    }
}

/* The bytes of a file; whatever follows its last fsync is as `unsynced` says. */
static size_t bytes_replay(int node, int end, Unsynced unsynced, char *bytes)
{
    int synced = 0;
    size_t size = 0;
    for (int i = 0; i < end; i++)
        if (calls[i].kind == CALL_SYNC && calls[i].node == node) synced = i;
    for (int i = 0; i < end; i++) {
        const Call *call = &calls[i];
        if (call->kind != CALL_WRITE || call->node != node || (i > synced && unsynced == LOST)) continue;
        bool zeros = !call->data || (i > synced && unsynced == ZEROS);
        if (call->at + call->count > size) memset(bytes + size, 0, call->at + call->count - size);
        if (zeros && call->data) memset(bytes + call->at, 0, call->count);
        if (!zeros) memcpy(bytes + call->at, call->data, call->count);
        if (call->at + call->count > size) size = call->at + call->count;
    }
    return size;
}

static void disk_make(const Names *names, int directory, const char *path, int end, Unsynced unsynced)
{
    static char bytes[FILE_BYTES];
    for (int i = 0; i < names->count; i++) {
        const Name *name = &names->name[i];
        char below[PATH_BYTES];
        if (name->directory != directory) continue;
        assert_int_equal(path_join(below, path, name->text), OK);
        if (is_directory[name->node]) {
            assert_int_equal(mkdir(below, 0777), 0);
            disk_make(names, name->node, below, end, unsynced);
            continue;
        }
        int fd = open(below, O_WRONLY | O_CREAT | O_EXCL, 0666);
        size_t size = bytes_replay(name->node, end, unsynced, bytes);
        assert_true(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
        close(fd);
    }
}

/* ---- what must hold on it */

static void whole_or_absent(const char *path)
{
    Checkpoint *checkpoint = NULL;
    if (access(path, F_OK) != 0) return;
    if (checkpoint_open(path, &checkpoint) != OK) fail_msg("%s", status_message());
    assert_true(sample_matches(checkpoint));
    checkpoint_close(checkpoint);
}

/* What `latest` names is there. */
static void latest_check(void)
{
    char folder[PATH_BYTES], path[PATH_BYTES], *text;
    size_t count;
    assert_int_equal(path_join(folder, disk, "ckpt"), OK);
    assert_int_equal(path_join(path, folder, "latest"), OK);
    if (access(path, F_OK) != 0) return;
    assert_int_equal(file_read(path, 100, &text, &count), OK);
    text[strcspn(text, "\n")] = 0;
    assert_int_equal(path_join(path, folder, text), OK);
    if (access(path, F_OK) != 0) fail_msg("latest names '%s', which is not there", text);
    free(text);
}

static void disk_check(int end, int64_t done, int64_t begun)
{
    Checkpoint *newest = NULL;
    char note[1024], path[PATH_BYTES], name[64];
    for (int64_t step = 1; step <= begun; step++) {
        snprintf(name, sizeof name, "ckpt/step-%010d", (int)step);
        assert_int_equal(path_join(path, disk, name), OK);
        whole_or_absent(path);
    }
    if (checkpoint_open_latest(disk, true, &newest, note, sizeof note) != OK || *note)
        fail_msg("after call %d: %s %s", end, status_message(), note);
    int64_t found = newest ? newest->step : 0;
    if (found < done || found > begun)
        fail_msg("after call %d: step %d, wanted %d to %d", end, (int)found, (int)done, (int)begun);
    if (newest) assert_true(sample_matches(newest));
    checkpoint_close(newest);
    latest_check();
}

static int disks_try(int end, int64_t done, int64_t begun)
{
    int pending[PENDING], count = pending_find(end, pending), disks = 0;
    Names names;
    for (unsigned mask = 0; mask < 1u << count; mask++) {
        names_replay(end, pending, count, mask, &names);
        for (Unsynced unsynced = LOST; unsynced < (has_unsynced(end) ? UNSYNCED_KINDS : 1); unsynced++, disks++) {
            disk_make(&names, 1, disk, end, unsynced);
            disk_check(end, done, begun);
            assert_int_equal(tree_remove(disk), OK);
            assert_int_equal(mkdir(disk, 0777), 0);
        }
    }
    return disks;
}

/* ---- the saves */

static void save(int64_t step)
{
    Sample sample;
    sample_make(&sample, step, BALLAST);
    recording = true;
    Status st = checkpoint_save(run, &sample.content, 1, NULL, 0);
    recording = false;
    if (st != OK) fail_msg("%s", status_message());
    call_add(CALL_SAVED)->step = step;
    sample_free(&sample);
}

/* fault: F4 */
TEST(test_power_loss)
{
    int disks = 0;
    int64_t done = 0;
    node_add(true);
    save(1);
    save(2); /* 1 is pruned */
    save(2); /* the same again: two directories change places */
    save(3);
    for (int end = 0; end <= call_count; end++) {
        if (end && calls[end - 1].kind == CALL_SAVED) done = calls[end - 1].step;
        int64_t begun = done;
        for (int k = call_count - 1; k >= end; k--)
            if (calls[k].kind == CALL_SAVED) begun = calls[k].step;
        disks += disks_try(end, done, begun);
    }
    assert_int_equal(done, 3);
    assert_true(disks > 1000);
    print_message("%d disks after %d calls\n", disks, call_count);
}

/* A file from whose file_replace the call has returned exists after a power loss: the data was synced before the name, the name's
 * directory after it. */
TEST(test_one_file)
{
    char path[PATH_BYTES];
    int first = call_count, written = -1, synced = -1, moved = -1, named = -1;
    snprintf(path, sizeof path, "%s/one.txt", run);
    recording = true;
    Status st = file_replace(path, "text", 4);
    recording = false;
    assert_int_equal(st, OK);
    for (int i = first; i < call_count; i++) {
        const Call *call = &calls[i];
        if (call->kind == CALL_WRITE) written = i;
        if (call->kind == CALL_SYNC && !is_directory[call->node]) synced = i;
        if (call->kind == CALL_MOVE && !strcmp(call->to, "one.txt")) moved = i;
        if (call->kind == CALL_SYNC && call->node == 1) named = i;
    }
    assert_true(written >= first && written < synced && synced < moved && moved < named);
}

static int start(void **state)
{
    if (access("/dev/shm", W_OK) != 0) strcpy(disk, "/tmp/towers-disk.XXXXXX"); /* slower */
    return mkdtemp(run) && mkdtemp(disk) ? 0 : -1;
}

static int end(void **state)
{
    for (int i = 0; i < call_count; i++) free((void *)calls[i].data);
    return tree_remove(run) == OK && tree_remove(disk) == OK ? 0 : -1;
}

TESTS_WITH(start, end)
