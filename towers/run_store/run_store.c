/* The place of a run in an object store; see run_store.h. */
#include "towers/run_store/run_store.h"

#include <openssl/rand.h>
#include <sys/mman.h>

#include "kernels/base/open.h"
#include "kernels/base/place.h"
#include "towers/files/json.h"
#include "towers/remote/s3.h"
#include "towers/remote/send.h"

enum { RECORD_MOST = 1 << 16 };

Status run_store_open(const RunStore *store, RunStoreOpen *open)
{
    *open = (RunStoreOpen){.store = *store};
    TRY(s3_access_find(store->endpoint, &open->s3));
    const TransportConfig patience = {store->net_timeout, store->stall_seconds, open->s3};
    Status st = transport_create(&patience, &open->transport);
    if (st != OK) run_store_close(open);
    return st;
}

void run_store_close(RunStoreOpen *open)
{
    transport_destroy(open->transport);
    s3_access_free(open->s3);
    *open = (RunStoreOpen){0};
}

Status run_store_check(const char *address, const char *option)
{
    Address a;
    if (is_address(address)) TRY(address_parse(address, &a)); /* before anything repeats it: it may have a password */
    if (!is_address_of_s3(address))
        return FAIL(ERR_ARG, "%s '%s': expected s3://BUCKET/PATH, the place of a run in an object store", option,
                    address);
    size_t bytes = strlen(a.path);
    if (!bytes || a.path[bytes - 1] == '/')
        return FAIL(ERR_ARG, "%s %s: expected s3://BUCKET/PATH, with a name for the run and no slash at its end",
                    option, address);
    return OK;
}

Status run_store_address(const RunStore *store, const char *name, char address[PATH_BYTES])
{
    char path[PATH_BYTES];
    Address a;
    if (!path_encode(name, path, sizeof path) ||
        snprintf(address, PATH_BYTES, "%s/%s", store->address, path) >= PATH_BYTES)
        return FAIL(ERR_ARG, "%s/%s: the address is too long", store->address, name);
    return address_parse(address, &a);
}

Status run_store_list(const RunStoreOpen *open, const char *folder, BucketList *list)
{
    char address[PATH_BYTES];
    const TransferWatch watch = {.again = open->store.again, .context = open->store.context};
    TRY(run_store_address(&open->store, folder, address));
    return bucket_list(open->transport, &watch, address, list);
}

typedef struct Getting {
    const RunStore *store;
    const char *name;
} Getting;

static void get_progress(void *context, int64_t done, int64_t all)
{
    const Getting *g = context;
    if (g->store->progress) g->store->progress(g->store->context, g->name, done, all);
}

static void get_again(void *context, const char *line)
{
    const Getting *g = context;
    if (g->store->again) g->store->again(g->store->context, line);
}

/* An answer of this object, not of keys that are none (400, 401), nor one that may pass. */
static bool is_refused(const Transfer *t)
{
    return t->status == ERR_IO && !t->passes && (t->answer == 403 || t->answer == 404 || t->answer == 410);
}

Status run_store_get(RunStoreOpen *open, const char *name, int64_t limit, int fd, const char *path, int64_t *bytes)
{
    char address[PATH_BYTES];
    Getting getting = {&open->store, name};
    TRY(run_store_address(&open->store, name, address));
    Transfer t = {.address = address,
                  .path = path,
                  .fd = fd,
                  .bytes = -1,
                  .limit = limit,
                  .watch = {get_progress, get_again, &getting}};
    Status st = transport_run(open->transport, &t);
    open->refused = st != OK && is_refused(&t);
    TRY(st);
    *bytes = t.have;
    return OK;
}

/* ---- whose place it is */

static void number_take(const json_t *record, char number[RUN_NUMBER_BYTES])
{
    const char *run = json_word_or_empty(record, "run");
    bool fits = strlen(run) == RUN_NUMBER_BYTES - 1 && strspn(run, "0123456789abcdef") == RUN_NUMBER_BYTES - 1;
    snprintf(number, RUN_NUMBER_BYTES, "%s", fits ? run : "");
}

void run_number(const char *run_dir, char number[RUN_NUMBER_BYTES])
{
    json_t *record = json_of_run(run_dir, RUN_STORE_FILE);
    number_take(record, number);
    json_decref(record);
}

Status run_store_number(RunStoreOpen *open, char number[RUN_NUMBER_BYTES])
{
    char text[RECORD_MOST];
    int64_t bytes;
    *number = 0;
    int fd = memfd_create("towers-run", MFD_CLOEXEC);
    if (fd < 0) return FAIL(ERR_MEMORY, "no memory for the record of a run: %s", strerror(errno));
    Status st = run_store_get(open, RUN_STORE_FILE, RECORD_MOST, fd, RUN_STORE_FILE, &bytes);
    if (st == OK && pread(fd, text, (size_t)bytes, 0) == bytes) {
        json_t *record = json_loadb(text, (size_t)bytes, 0, NULL);
        number_take(record, number);
        json_decref(record);
    }
    close(fd);
    return st;
}

static Status number_draw(const char *run_dir, char number[RUN_NUMBER_BYTES])
{
    unsigned char drawn[(RUN_NUMBER_BYTES - 1) / 2];
    if (RAND_bytes(drawn, sizeof drawn) != 1) return FAIL(ERR_INTERNAL, "libcrypto draws no number");
    Text text = text_start(number, RUN_NUMBER_BYTES);
    text_hex(&text, drawn, sizeof drawn);
    return json_replace(run_dir, RUN_STORE_FILE, json_pack("{s:s}", "run", number), JSON_INDENT(2));
}

static Status number_send(const RunStoreOpen *open, const char *run_dir)
{
    char path[PATH_BYTES], address[PATH_BYTES];
    struct stat info;
    bool sent;
    const SendWatch watch = {.again = open->store.again, .context = open->store.context};
    TRY(path_join(path, run_dir, RUN_STORE_FILE));
    TRY(run_store_address(&open->store, RUN_STORE_FILE, address));
    int fd = place_open(path, O_RDONLY | O_NOFOLLOW);
    if (fd < 0) return FAIL(ERR_IO, "cannot read '%s': %s", path, strerror(errno));
    Status st = fstat(fd, &info) == 0 ? send_file(open->transport, &watch, fd, path, info.st_size, address, &sent)
                                      : FAIL(ERR_IO, "cannot read '%s': %s", path, strerror(errno));
    close(fd);
    return st;
}

static Status place_claim(RunStoreOpen *open, const char *run_dir)
{
    char own[RUN_NUMBER_BYTES], theirs[RUN_NUMBER_BYTES];
    BucketList list;
    const char *address = open->store.address;
    TRY(run_store_list(open, "", &list));
    bool taken = names_find(&list.objects, RUN_STORE_FILE) >= 0, empty = !list.objects.count && !list.folders.count;
    bucket_list_free(&list);
    run_number(run_dir, own);
    if (!taken && !empty)
        return FAIL(ERR_ARG,
                    "--upload %s: there are objects already, but no %s of a run: choose an address that has none",
                    address, RUN_STORE_FILE);
    if (taken) {
        TRY(run_store_number(open, theirs));
        if (*own && !strcmp(own, theirs)) return OK;
        return FAIL(ERR_ARG,
                    "--upload %s: another run is there: choose another address, or go on with that run by --resume %s",
                    address, address);
    }
    if (!*own) TRY(number_draw(run_dir, own));
    return number_send(open, run_dir);
}

Status run_store_claim(const RunStore *store, const char *run_dir)
{
    RunStoreOpen open;
    TRY(run_store_open(store, &open));
    Status st = place_claim(&open, run_dir);
    run_store_close(&open);
    return st;
}
