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

/* What upload.json says: "" is what it does not say. */
typedef struct Claim {
    char run[RUN_NUMBER_BYTES], start[RUN_NUMBER_BYTES];
} Claim;

static void number_take(const json_t *record, const char *key, char number[RUN_NUMBER_BYTES])
{
    const char *word = json_word_or_empty(record, key);
    bool fits = strlen(word) == RUN_NUMBER_BYTES - 1 && strspn(word, "0123456789abcdef") == RUN_NUMBER_BYTES - 1;
    snprintf(number, RUN_NUMBER_BYTES, "%s", fits ? word : "");
}

static void claim_take(const json_t *record, Claim *claim)
{
    number_take(record, "run", claim->run);
    number_take(record, "start", claim->start);
}

/* Of a run directory. */
static void claim_here(const char *run_dir, Claim *claim)
{
    json_t *record = json_of_run(run_dir, RUN_STORE_FILE);
    claim_take(record, claim);
    json_decref(record);
}

/* Of the place. */
static Status claim_there(RunStoreOpen *open, Claim *claim)
{
    char text[RECORD_MOST];
    int64_t bytes;
    *claim = (Claim){0};
    int fd = memfd_create("towers-run", MFD_CLOEXEC);
    if (fd < 0) return FAIL(ERR_MEMORY, "no memory for the record of a run: %s", strerror(errno));
    Status st = run_store_get(open, RUN_STORE_FILE, RECORD_MOST, fd, RUN_STORE_FILE, &bytes);
    if (st == OK && pread(fd, text, (size_t)bytes, 0) == bytes) {
        json_t *record = json_loadb(text, (size_t)bytes, 0, NULL);
        claim_take(record, claim);
        json_decref(record);
    }
    close(fd);
    return st;
}

void run_number(const char *run_dir, char number[RUN_NUMBER_BYTES])
{
    Claim claim;
    claim_here(run_dir, &claim);
    memcpy(number, claim.run, RUN_NUMBER_BYTES);
}

Status run_store_number(RunStoreOpen *open, char number[RUN_NUMBER_BYTES])
{
    Claim claim;
    Status st = claim_there(open, &claim);
    memcpy(number, claim.run, RUN_NUMBER_BYTES);
    return st;
}

static Status number_draw(char number[RUN_NUMBER_BYTES])
{
    unsigned char drawn[(RUN_NUMBER_BYTES - 1) / 2];
    if (RAND_bytes(drawn, sizeof drawn) != 1) return FAIL(ERR_INTERNAL, "libcrypto draws no number");
    Text text = text_start(number, RUN_NUMBER_BYTES);
    text_hex(&text, drawn, sizeof drawn);
    return OK;
}

static Status claim_write(const char *run_dir, const Claim *claim)
{
    return json_replace(run_dir, RUN_STORE_FILE, json_pack("{s:s, s:s}", "run", claim->run, "start", claim->start),
                        JSON_INDENT(2));
}

/* `first`: the place had no record; *sent is false if it has one by now. */
static Status claim_send(const RunStoreOpen *open, const char *run_dir, bool first, bool *sent)
{
    char path[PATH_BYTES], address[PATH_BYTES];
    struct stat info;
    const SendWatch watch = {.again = open->store.again, .context = open->store.context};
    TRY(path_join(path, run_dir, RUN_STORE_FILE));
    TRY(run_store_address(&open->store, RUN_STORE_FILE, address));
    int fd = place_open(path, O_RDONLY | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &info) != 0) {
        int error = errno;
        if (fd >= 0) close(fd);
        return FAIL(ERR_IO, "cannot read '%s': %s", path, strerror(error));
    }
    Status st = first ? send_new(open->transport, &watch, fd, path, info.st_size, address, sent)
                      : send_file(open->transport, &watch, fd, path, info.st_size, address, sent);
    close(fd);
    return st;
}

static Status taken_refuse(const char *address)
{
    return FAIL(ERR_ARG,
                "--upload %s: another run is there: choose another address, or go on with that run by --resume %s",
                address, address);
}

static Status place_claim(RunStoreOpen *open, const char *run_dir)
{
    Claim own, theirs;
    BucketList list;
    bool sent;
    const char *address = open->store.address;
    TRY(run_store_list(open, "", &list));
    bool taken = names_find(&list.objects, RUN_STORE_FILE) >= 0, empty = !list.objects.count && !list.folders.count;
    bucket_list_free(&list);
    claim_here(run_dir, &own);
    if (!taken && !empty)
        return FAIL(ERR_ARG,
                    "--upload %s: there are objects already, but no %s of a run: choose an address that has none",
                    address, RUN_STORE_FILE);
    if (taken) TRY(claim_there(open, &theirs));
    if (taken && (!*own.run || strcmp(own.run, theirs.run) != 0)) return taken_refuse(address);
    if (!*own.run) TRY(number_draw(own.run));
    TRY(number_draw(own.start));
    TRY(claim_write(run_dir, &own));
    TRY(claim_send(open, run_dir, !taken, &sent));
    TRY(claim_there(open, &theirs)); /* somebody else may have claimed it in the same moment */
    return strcmp(own.run, theirs.run) != 0 ? taken_refuse(address) : OK;
}

Status run_store_held(RunStoreOpen *open, const char *run_dir)
{
    Claim own, theirs;
    bool sent;
    const char *address = open->store.address;
    claim_here(run_dir, &own);
    Status st = claim_there(open, &theirs);
    if (st != OK && !open->refused) return st;
    if (st != OK) {
        TRY(claim_send(open, run_dir, true, &sent));
        TRY(claim_there(open, &theirs));
    }
    if (strcmp(own.run, theirs.run) != 0)
        return FAIL(ERR_ARG,
                    "the place %s belongs to another run by now, and nothing more of this one is copied there: choose "
                    "another one for it with --upload",
                    address);
    if (strcmp(own.start, theirs.start) != 0)
        return FAIL(ERR_ARG,
                    "another process, perhaps on another machine, goes on with this run at %s, and nothing more is "
                    "copied there from here: let one of them go on",
                    address);
    return OK;
}

Status run_store_claim(const RunStore *store, const char *run_dir)
{
    RunStoreOpen open;
    TRY(run_store_open(store, &open));
    Status st = place_claim(&open, run_dir);
    run_store_close(&open);
    return st;
}
