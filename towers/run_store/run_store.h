/* The place of a run in an object store, s3://BUCKET/runs/NAME, which is laid out as the run directory is.
 *
 * RUN/upload.json, of which the store has a copy, holds a number that was drawn when the run got its place: a place belongs to one run,
 * on whichever machine that goes on. Beside it is a number that is drawn at each start: of two processes that both go on with a run, the
 * one that began last may copy, and the other one sees that it may not. */
#pragma once

#include "towers/data/remote/bucket_list.h"
#include "towers/files/files.h"

#define RUN_STORE_FILE "upload.json"

enum { RUN_STORE_DEPTH = 8 /* folders in folders of a run, at most */ };

typedef struct RunStore {
    const char *address;  /* borrowed; without a slash at its end */
    const char *endpoint; /* borrowed; NULL: that of the environment */
    int64_t net_timeout, stall_seconds;
    /* What comes of a file, all < 0: not known. NULL is fine, as for the next. */
    void (*progress)(void *context, const char *name, int64_t done, int64_t all);
    void (*again)(void *context, const char *line); /* as in TransferWatch */
    /* Of a folder with the records of a run that is brought, before anything has its name: whether it may go on here. It may change them. */
    Status (*check)(void *context, const char *folder);
    void *context;
} RunStore;

/* Access and connections to it. */
typedef struct RunStoreOpen {
    RunStore store;
    struct S3Access *s3; /* owned, as the next */
    Transport *transport;
    bool refused; /* the last file did not come because the store does not give it, and will not */
} RunStoreOpen;

/* Errors: those of keys and endpoint (ERR_ARG), ERR_MEMORY. */
NODISCARD Status run_store_open(const RunStore *store, RunStoreOpen *open);
void run_store_close(RunStoreOpen *open);

/* Whether an address may be that of a run: ERR_ARG. */
NODISCARD Status run_store_check(const char *address, const char *option);
/* The address of a file of the run, whose name is relative to its directory: ERR_ARG if no address has such names. */
NODISCARD Status run_store_address(const RunStore *store, const char *name, char address[PATH_BYTES]);
/* What is directly below a folder of the run, "" or "ckpt/": its address ends with a slash. */
NODISCARD Status run_store_list(const RunStoreOpen *open, const char *folder, BucketList *list);
/* Bring one file of it to an open, empty file. More than `limit` bytes are refused; 0: any number. */
NODISCARD Status run_store_get(RunStoreOpen *open, const char *name, int64_t limit, int fd, const char *path,
                               int64_t *bytes);
/* The number of the run that the place belongs to; "" if there is none, although the place has a file of this name. */
enum { RUN_NUMBER_BYTES = 33 };
NODISCARD Status run_store_number(RunStoreOpen *open, char number[RUN_NUMBER_BYTES]);
/* The number that a run directory has; "": none. */
void run_number(const char *run_dir, char number[RUN_NUMBER_BYTES]);

/* Before the first step: the place is this run's already, or is empty and becomes its own. This also shows that keys may list and write.
 * Errors: ERR_ARG of a place that is somebody else's; those of network and store. */
NODISCARD Status run_store_claim(const RunStore *store, const char *run_dir);
/* Whether nobody has claimed it since. ERR_ARG: somebody has. A place that has lost its record becomes the run's own again. */
NODISCARD Status run_store_held(RunStoreOpen *open, const char *run_dir);
