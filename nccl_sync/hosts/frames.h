/* The frames on a control plane (control.h): a head, then its content. frames.def is the table of them. All numbers
 * are those of the sender's machine: hosts of one run have the same processor architecture, and the magic number of
 * another byte order is refused. */
#pragma once

#include "kernels/base/status.h"
#include "nccl_sync/hosts/handshake.h"

enum { CONTROL_HOST_BYTES = 64, CONTROL_TEXT_BYTES = 2000 };

/* How a node ended, or why a run fails. */
typedef struct ControlEnd {
    int32_t rank;      /* who says so */
    int32_t status;    /* Status */
    int32_t signal;    /* that requested the stop, or 0 */
    int32_t secondary; /* it failed because another one did */
    char message[CONTROL_TEXT_BYTES];
} ControlEnd;

/* The files that a node brings to rank 0 at its end (towers/supervisor/host_files.h). A message names none: rank 0 makes the
 * name from the kind, the sender's rank, the tower and the step. */
typedef enum ControlFileKind {
    FILE_SAMPLES = 0,
    FILE_BAD_SAMPLES,
    FILE_STACK,
    FILE_MANIFEST, /* the first of a capsule */
    FILE_BATCH,
    FILE_MODEL,
    FILE_TRAIN,
    FILE_CHOICES,
    FILE_NETWORK,
    FILE_STATE, /* the last of a capsule */
    FILE_KINDS
} ControlFileKind;

typedef struct ControlFile {
    int32_t kind, tower;
    int64_t step;              /* of a capsule */
    uint64_t bytes, high, low; /* its FileSum */
} ControlFile;

enum { CONTROL_MAGIC = 0x52575432, CONTROL_CONTENT_MAX = 1 << 23, CONTROL_FILE_MAX = 1 << 30 };

/* The nodes that have come to no later collective than any other: how many, and the first of them. 8 bytes, so that it is read and written
 * at once. */
enum { NODES_NAMED = 3 };
typedef struct NodesBehind {
    int16_t count, node[NODES_NAMED];
} NodesBehind;

/* collective: the number of the last one to which the sender's node has come; of rank 0: to which all have. behind: of rank 0, those that
 * have come no further. */
typedef struct ControlBeat {
    int64_t life; /* ns since the last sign of life of a tower */
    int64_t collective;
    NodesBehind behind;
} ControlBeat;

/* A short message from one rank to another one, which may be lost if that one leaves. */
enum { CONTROL_MESSAGE_BYTES = 400 };
typedef struct ControlMessage {
    int32_t from, to; /* ranks */
    uint8_t content[CONTROL_MESSAGE_BYTES];
} ControlMessage;

typedef enum ControlKind {
    CONTROL_NOTHING = 0,
#define FRAME(kind, sender, bytes, check) CONTROL_##kind,
#include "nccl_sync/hosts/frames.def"
    CONTROL_KINDS
} ControlKind;

typedef enum ControlSender {
    CONTROL_FROM_NEWCOMER = 0,
    CONTROL_FROM_ROOT,
    CONTROL_FROM_OTHER,
    CONTROL_FROM_ANY
} ControlSender;

/* Who may send a kind. */
ControlSender control_frame_sender(ControlKind kind);

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
