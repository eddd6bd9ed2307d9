/* Reads the frames of a control plane, from anybody who can reach the port. */
#include "nccl_sync/hosts/frames.h"

#include <signal.h>

static bool has_end(const char *text, size_t bytes)
{
    return memchr(text, 0, bytes) != NULL;
}

static bool always(const uint8_t *content, size_t bytes)
{
    (void)content, (void)bytes;
    return true;
}

static bool hello_is_whole(const uint8_t *content, size_t bytes)
{
    ControlHello hello;
    memcpy(&hello, content, bytes);
    return hello.ranks > 1 && hello.rank > 0 && hello.rank < hello.ranks &&
           has_end(hello.version, sizeof hello.version) && has_end(hello.host, sizeof hello.host);
}

static bool end_is_whole(const uint8_t *content, size_t bytes)
{
    ControlEnd end;
    memcpy(&end, content, bytes);
    return end.rank >= 0 && end.status >= 0 && end.status < STATUS_COUNT && end.signal >= 0 && end.signal < NSIG &&
           has_end(end.message, sizeof end.message);
}

static bool failure_is_whole(const uint8_t *content, size_t bytes)
{
    ControlEnd end;
    memcpy(&end, content, bytes);
    return end.status != OK && end_is_whole(content, bytes);
}

static bool hosts_are_whole(const uint8_t *content, size_t bytes)
{
    for (size_t at = 0, left; at < bytes; at += strlen((const char *)content + at) + 1) {
        left = bytes - at;
        if (!has_end((const char *)content + at, left < CONTROL_HOST_BYTES ? left : CONTROL_HOST_BYTES)) return false;
    }
    return bytes > 0;
}

static bool file_is_whole(const uint8_t *content, size_t bytes)
{
    ControlFile file;
    memcpy(&file, content, bytes);
    return file.kind >= 0 && file.kind < FILE_KINDS && file.tower >= 0 && file.step >= 0 &&
           file.bytes <= CONTROL_FILE_MAX;
}

static bool beat_is_whole(const uint8_t *content, size_t bytes)
{
    ControlBeat beat;
    memcpy(&beat, content, bytes);
    bool whole = beat.life >= 0 && beat.collective >= 0 && beat.behind.count >= 0;
    for (int i = 0; i < NODES_NAMED; i++) whole &= beat.behind.node[i] >= 0;
    return whole;
}

static bool signal_is_whole(const uint8_t *content, size_t bytes)
{
    int32_t number;
    memcpy(&number, content, bytes);
    return number > 0 && number < NSIG;
}

typedef struct FrameInfo {
    ControlSender sender;
    int64_t bytes; /* -1: any number */
    bool (*is_whole)(const uint8_t *content, size_t bytes);
} FrameInfo;

static const FrameInfo infos[CONTROL_KINDS] = {
#define FRAME(kind, sender, bytes, check) [CONTROL_##kind] = {CONTROL_FROM_##sender, bytes, check},
#include "nccl_sync/hosts/frames.def"
};

ControlSender control_frame_sender(ControlKind kind)
{
    return infos[kind].sender;
}

int64_t control_frame_read(const uint8_t *bytes, size_t count, ControlFrame *frame)
{
    ControlHead head;
    if (count < sizeof head) return 0;
    memcpy(&head, bytes, sizeof head);
    if (head.magic != CONTROL_MAGIC || head.kind <= CONTROL_NOTHING || head.kind >= CONTROL_KINDS ||
        head.bytes > CONTROL_CONTENT_MAX)
        return -1;
    const FrameInfo *info = &infos[head.kind];
    if (info->bytes >= 0 && head.bytes != (uint32_t)info->bytes) return -1;
    if (count - sizeof head < head.bytes) return 0;
    if (!info->is_whole(bytes + sizeof head, head.bytes)) return -1;
    *frame = (ControlFrame){(ControlKind)head.kind, bytes + sizeof head, head.bytes};
    return (int64_t)(sizeof head + head.bytes);
}
