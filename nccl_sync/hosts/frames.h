/* The frames on a star of connections (star.h): a head, then its content. frames.def is the table of them. All numbers
 * are those of the sender's machine: hosts of one run have the same processor architecture, and the magic number of
 * another byte order is refused. */
#pragma once

#include "kernels/base/status.h"
#include "nccl_sync/hosts/handshake.h"

enum { STAR_HOST_BYTES = 64, STAR_MESSAGE_BYTES = 2000 };

/* How a program ended, or why a run fails. */
typedef struct StarEnd {
    int32_t rank;      /* who says so */
    int32_t status;    /* Status */
    int32_t signal;    /* that requested the stop, or 0 */
    int32_t secondary; /* it failed because another one did */
    char message[STAR_MESSAGE_BYTES];
} StarEnd;

/* The files that a program brings to rank 0 at its end (towers/supervisor/host_files.h). A message names none: rank 0 makes the
 * name from the kind, the sender's rank, the tower and the step. */
typedef enum StarFileKind {
    FILE_SAMPLES = 0,
    FILE_BAD_SAMPLES,
    FILE_STACK,
    FILE_MANIFEST, /* the first of a capsule */
    FILE_BATCH,
    FILE_MODEL,
    FILE_TRAIN,
    FILE_STATE, /* the last of a capsule */
    FILE_KINDS
} StarFileKind;

typedef struct StarFile {
    int32_t kind, tower;
    int64_t step;              /* of a capsule */
    uint64_t bytes, high, low; /* its FileSum */
} StarFile;

enum { STAR_MAGIC = 0x52575432, STAR_CONTENT_MAX = 1 << 23, STAR_FILE_MAX = 1 << 30 };

/* A short message from one rank to another one, which may be lost if that one leaves. */
enum { STAR_NOTICE_BYTES = 400 };
typedef struct StarNotice {
    int32_t from, to; /* ranks */
    uint8_t content[STAR_NOTICE_BYTES];
} StarNotice;

typedef enum StarKind {
    STAR_NOTHING = 0,
#define FRAME(kind, sender, bytes, check) STAR_##kind,
#include "nccl_sync/hosts/frames.def"
    STAR_KINDS
} StarKind;

typedef enum StarSender { STAR_FROM_NEWCOMER = 0, STAR_FROM_ROOT, STAR_FROM_OTHER, STAR_FROM_ANY } StarSender;

/* Who may send a kind. */
StarSender star_frame_sender(StarKind kind);

typedef struct StarHead {
    uint32_t magic, kind, bytes;
} StarHead;

typedef struct StarHello {
    uint8_t nonce[NONCE_BYTES];
    uint64_t build; /* of the program's file */
    int32_t rank, ranks;
    char version[32], host[STAR_HOST_BYTES];
} StarHello;

typedef struct StarFrame {
    StarKind kind;
    const uint8_t *content; /* borrowed from the bytes that were read */
    size_t bytes;
} StarFrame;

/* Reads the frame at the start of `bytes`. Returns its length with its head; 0 if it is not complete yet; -1 if this is no
 * frame: a wrong magic number or kind, content of a wrong size, text without an end, a number out of range. */
int64_t star_frame_read(const uint8_t *bytes, size_t count, StarFrame *frame);
