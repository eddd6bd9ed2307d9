/* Frames of link_tcp.c: what travels between the leaders of groups, as bytes that anybody may have sent. Internal to
 * nccl_sync. */
#ifndef TOWERS_NCCL_SYNC_LINK_FRAMES_H
#define TOWERS_NCCL_SYNC_LINK_FRAMES_H

#include "nccl_sync/link.h"

enum { FRAME_MAGIC = 0x4c575432, FRAME_BYTES_MAX = 1 << 20 };

typedef enum FrameKind {
    FRAME_HELLO = 0, /* LinkHello: the first frame of a connection, to group 0 */
    FRAME_CHALLENGE, /* Challenge: its answer (handshake.h) */
    FRAME_PROOF,     /* Proof: the answer to that */
    FRAME_WELCOME,
    FRAME_REFUSED,
    FRAME_DATA,
    FRAME_NEWS,
    FRAME_KINDS
} FrameKind;

typedef struct FrameHead {
    uint32_t magic, kind; /* FrameKind */
    int32_t to;           /* the group that it is for */
    uint32_t bytes;       /* that follow */
} FrameHead;

typedef struct LinkHello {
    uint8_t nonce[NONCE_BYTES];
    int32_t group, groups;
    char host[64];
} LinkHello;

typedef struct Frame {
    FrameKind kind;
    int to;
    const uint8_t *content; /* borrowed from the bytes that were read */
    size_t bytes, length;   /* of the content; of the whole frame */
} Frame;

/* Reads the first of `bytes` bytes: its length, 0 if it is not complete, -1 if it is no frame for one of `groups` groups:
 * wrong magic, kind or size, a text without an end, a group that does not exist. */
int64_t frame_read(const uint8_t *at, size_t bytes, int groups, Frame *frame);

#endif
