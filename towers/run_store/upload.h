/* Copying a run into an object store, which may go on while the run does. */
#pragma once

#include "towers/run_store/run_store.h"

typedef struct UploadWatch {
    void (*progress)(void *context, int64_t sent, int64_t all); /* bytes; NULL is fine */
    void *context;
} UploadWatch;

typedef struct UploadCount {
    int files, sent, left_out; /* all; those that the store did not have; those whose names no address has */
    int64_t bytes, came;       /* of all; that were sent */
    bool taken;                /* somebody else has claimed the place */
} UploadCount;

/* The checkpoint of this step, then all records and weights of the run, then the checkpoint's MANIFEST. What the store has already is not
 * sent again. A record that goes away meanwhile is passed over; a file of the checkpoint that is not there is ERR_IO. Errors: those of
 * send_file, and ERR_ARG of a place that somebody else has claimed since, which is looked at before the first file and before the MANIFEST. */
NODISCARD Status upload_run(const RunStore *store, const char *run_dir, int64_t step, const UploadWatch *watch,
                            UploadCount *count);
