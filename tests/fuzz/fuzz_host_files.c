/* libFuzzer target of the files that programs bring to rank 0 (host_files.h): what it does with any heads and pieces of two
 * proven ranks, in any order and cut off anywhere. Afterwards its run directory has files under names of the senders alone,
 * each as it was announced, capsules that agree with their manifests, what was there before, and nothing temporary. */
#include <dirent.h>

#include "nccl_sync/hosts/control_internal.h"
#include "tests/fuzz/fuzz_folder.h"
#include "towers/store/manifest.h"
#include "towers/supervisor/host_files.c" /* file_take, beside its thread, for which nothing comes */

enum { FUZZ_RANKS = 3, FUZZ_TOWERS = 6, HEADS_MOST = 64 };

/* In front of each content. */
typedef struct Message {
    uint8_t choice, kind, tower, step, bytes[2];
} Message;
enum { CHOICE_RANK = 1, CHOICE_STRAY = 2, CHOICE_LIE = 4, CHOICE_SILENT = 8, CHOICE_HALVES = 16 };

static const char own[] = "stack-tower-1.txt"; /* of a tower of rank 0 */
static char run_dir[80];
static ControlFile announced[HEADS_MOST];
static int heads;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A file is announced, unless its content is a stray one, and follows in one piece or two, unless it is silent. */
static void message_take(HostFiles *files, const Message *m, const uint8_t *content, size_t bytes)
{
    int rank = 1 + (m->choice & CHOICE_RANK);
    size_t first = m->choice & CHOICE_HALVES ? bytes / 2 : 0;
    FileSum sum;
    memory_sum(content, bytes, &sum);
    ControlFile head = {m->kind % FILE_KINDS,
                        m->tower,
                        m->step,
                        (uint64_t)(m->bytes[0] | m->bytes[1] << 8),
                        sum.high,
                        sum.low ^ (m->choice & CHOICE_LIE)};
    if (!(m->choice & CHOICE_STRAY)) {
        announced[heads++] = head;
        (void)file_take(files, rank, CONTROL_FILE, &head, sizeof head);
    }
    if (m->choice & CHOICE_SILENT) return;
    if (first) (void)file_take(files, rank, CONTROL_PIECE, content, first);
    (void)file_take(files, rank, CONTROL_PIECE, content + first, bytes - first);
}

static bool is_as_announced(const char *path)
{
    FileSum sum;
    bool found = false;
    if (file_sum(path, &sum) != OK) return false;
    for (int i = 0; i < heads && !found; i++)
        found = announced[i].bytes == sum.bytes && announced[i].high == sum.high && announced[i].low == sum.low;
    return found;
}

static bool is_capsule(const char *path)
{
    Manifest *manifest = NULL;
    bool whole = manifest_open(path, &manifest) == OK && manifest_verify(manifest, path) == OK;
    manifest_destroy(manifest);
    return whole;
}

static bool is_right(const char *name)
{
    char path[PATH_BYTES];
    int rank = 0, tower = FUZZ_TOWERS / FUZZ_RANKS, end = 0;
    int64_t step;
    FileSum sum, wanted;
    snprintf(path, sizeof path, "%s/%s", run_dir, name);
    if (!strcmp(name, own)) {
        memory_sum(own, sizeof own, &wanted);
        return file_sum(path, &sum) == OK && !memcmp(&sum, &wanted, sizeof sum);
    }
    if (sscanf(name, "nan-step-%" SCNd64 "-tower-%d%n", &step, &tower, &end) == 2)
        return !name[end] && tower >= FUZZ_TOWERS / FUZZ_RANKS && tower < FUZZ_TOWERS && is_capsule(path);
    if (sscanf(name, "stack-tower-%d.txt%n", &tower, &end) == 1)
        return end && !name[end] && tower >= FUZZ_TOWERS / FUZZ_RANKS && tower < FUZZ_TOWERS && is_as_announced(path);
    if (sscanf(name, "rank%d-samples.csv%n", &rank, &end) < 1 || !end)
        (void)sscanf(name, "rank%d-bad-samples.csv%n", &rank, &end);
    return end && (!name[end] || name[end] == '.') && rank > 0 && rank < FUZZ_RANKS && is_as_announced(path);
}

static void directory_check(void)
{
    struct dirent *entry;
    bool own_is_there = false;
    DIR *listing = opendir(run_dir);
    if (!listing) abort();
    while ((entry = readdir(listing))) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        own_is_there = own_is_there || !strcmp(entry->d_name, own);
        if (!is_right(entry->d_name)) abort();
    }
    closedir(listing);
    if (!own_is_there) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static Peer peer[FUZZ_RANKS];
    ControlPlane control = {.ranks = FUZZ_RANKS, .listener = -1, .taking = -1, .peer = peer};
    TrainJob job = {.control = &control,
                    .nodes = FUZZ_RANKS,
                    .processes = FUZZ_RANKS,
                    .run_dir = run_dir,
                    .local_batches.towers = FUZZ_TOWERS};
    HostFiles *files;
    char problems[4096], path[PATH_BYTES];
    Message m;
    folder_make();
    snprintf(run_dir, sizeof run_dir, "%s/run", folder);
    heads = 0;
    pthread_mutex_init(&control.mutex, NULL);
    pthread_cond_init(&control.came, NULL);
    snprintf(path, sizeof path, "%s/%s", run_dir, own);
    if (tree_remove(run_dir) != OK || mkdir(run_dir, 0777) != 0 || file_replace(path, own, sizeof own) != OK ||
        host_files_open(&job, &files) != OK)
        abort();
    while (size >= sizeof m && heads < HEADS_MOST) {
        memcpy(&m, data, sizeof m);
        data += sizeof m, size -= sizeof m;
        size_t bytes = (size_t)(m.bytes[0] | m.bytes[1] << 8);
        if (bytes > size) bytes = size;
        message_take(files, &m, data, bytes);
        data += bytes, size -= bytes;
    }
    host_files_close(files, problems, sizeof problems);
    pthread_cond_destroy(&control.came);
    pthread_mutex_destroy(&control.mutex);
    directory_check();
    return 0;
}
