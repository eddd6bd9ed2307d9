/* The frames of the control channel: a head, then its content. All numbers are those of the sender's machine: hosts of
 * one run have the same processor architecture, and the magic number of another byte order is refused. */
#ifndef TOWERS_TRAIN_CONTROL_FRAMES_H
#define TOWERS_TRAIN_CONTROL_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/status.h"
#include "nccl_sync/handshake.h"

enum { CONTROL_HOST_BYTES = 64, CONTROL_MESSAGE_BYTES = 2000 };

/* How a program ended, or why a run fails. */
typedef struct ControlEnd {
    int32_t rank;      /* who says so */
    int32_t status;    /* Status */
    int32_t signal;    /* that requested the stop, or 0 */
    int32_t secondary; /* it failed because another one did */
    char message[CONTROL_MESSAGE_BYTES];
} ControlEnd;

/* The files that a program brings to rank 0 at its end (host_files.h). A message names none: rank 0 makes the name from
 * the kind, the sender's rank, the tower and the step. */
typedef enum ControlFileKind {
    FILE_SAMPLES = 0,
    FILE_BAD_SAMPLES,
    FILE_STACK,
    FILE_MANIFEST, /* the first of a capsule */
    FILE_BATCH,
    FILE_MODEL,
    FILE_TRAIN,
    FILE_STATE, /* the last of a capsule */
    FILE_KINDS
} ControlFileKind;

typedef struct ControlFile {
    int32_t kind, tower;
    int64_t step;              /* of a capsule */
    uint64_t bytes, high, low; /* its FileSum */
} ControlFile;

enum { CONTROL_MAGIC = 0x52575432, CONTROL_CONTENT_MAX = 1 << 23, CONTROL_FILE_MAX = 1 << 30 };

typedef enum ControlKind {
    CONTROL_HELLO = 1, /* ControlHello: the first frame of a connection, to rank 0 */
    CONTROL_CHALLENGE, /* Challenge: the answer to it (handshake.h) */
    CONTROL_PROOF,     /* Proof: the answer to that; now rank 0 believes the ControlHello */
    CONTROL_WELCOME,   /* char [ranks][CONTROL_HOST_BYTES]: all have come */
    CONTROL_REFUSED,   /* ControlEnd: this connection does not fit the job */
    CONTROL_BYTES,     /* any: of control_broadcast, or to rank 0 of control_gather */
    CONTROL_READY,     /* nothing: this rank has reached a barrier */
    CONTROL_GO,        /* nothing: all have */
    CONTROL_BEAT,      /* int64_t: time since the last sign of life of a tower */
    CONTROL_STOP,      /* int32_t: a signal */
    CONTROL_FAILED,    /* ControlEnd: the first failure */
    CONTROL_ENDED,     /* ControlEnd: the result of a program */
    CONTROL_RESULT,    /* ControlEnd: that of the run */
    CONTROL_FILE,      /* ControlFile: the next pieces of this sender are of this file */
    CONTROL_PIECE,     /* any: the next bytes of it */
    CONTROL_HAVE,      /* ControlFile: rank 0 has it already, or does not take it */
    CONTROL_KINDS
} ControlKind;

typedef struct ControlHead {
    uint32_t magic, kind, bytes;
} ControlHead;

typedef struct ControlHello {
    uint8_t nonce[NONCE_BYTES];
    uint64_t build; /* of the program's file */
    int32_t rank, ranks;
    char version[32], host[CONTROL_HOST_BYTES];
} ControlHello;

typedef struct ControlFrame {
    ControlKind kind;
    const uint8_t *content; /* borrowed from the bytes that were read */
    size_t bytes;
} ControlFrame;

/* Reads the frame at the start of `bytes`. Returns its length with its head; 0 if it is not complete yet; -1 if this is no
 * frame: a wrong magic number or kind, content of a wrong size, text without an end, a number out of range. */
int64_t control_frame_read(const uint8_t *bytes, size_t count, ControlFrame *frame);

#endif
