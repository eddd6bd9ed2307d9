/* Reads the frames of the control channel, from anybody who can reach the port; see control_frames.h. */
#include "towers/train/control_frames.h"

#include <signal.h>
#include <string.h>

static bool has_end(const char *text, size_t bytes)
{
    return memchr(text, 0, bytes) != NULL;
}

static bool hello_is_whole(const uint8_t *content)
{
    ControlHello hello;
    memcpy(&hello, content, sizeof hello);
    return hello.ranks > 1 && hello.rank > 0 && hello.rank < hello.ranks &&
           has_end(hello.version, sizeof hello.version) && has_end(hello.host, sizeof hello.host);
}

static bool end_is_whole(const uint8_t *content)
{
    ControlEnd end;
    memcpy(&end, content, sizeof end);
    return end.rank >= 0 && end.status >= 0 && end.status < STATUS_COUNT && end.signal >= 0 && end.signal < NSIG &&
           has_end(end.message, sizeof end.message);
}

static bool hosts_are_whole(const uint8_t *content, size_t bytes)
{
    if (bytes == 0 || bytes % CONTROL_HOST_BYTES) return false;
    for (size_t at = 0; at < bytes; at += CONTROL_HOST_BYTES)
        if (!has_end((const char *)content + at, CONTROL_HOST_BYTES)) return false;
    return true;
}

static bool file_is_whole(const uint8_t *content)
{
    ControlFile file;
    memcpy(&file, content, sizeof file);
    return file.kind >= 0 && file.kind < FILE_KINDS && file.tower >= 0 && file.step >= 0 &&
           file.bytes <= CONTROL_FILE_MAX;
}

static bool is_whole(uint32_t kind, const uint8_t *content, size_t bytes)
{
    ControlEnd end;
    int32_t number;
    int64_t duration;
    switch (kind) {
    case CONTROL_HELLO: return bytes == sizeof(ControlHello) && hello_is_whole(content);
    case CONTROL_CHALLENGE: return bytes == sizeof(Challenge);
    case CONTROL_PROOF: return bytes == sizeof(Proof);
    case CONTROL_WELCOME: return hosts_are_whole(content, bytes);
    case CONTROL_BYTES:
    case CONTROL_PIECE: return true;
    case CONTROL_FILE:
    case CONTROL_HAVE: return bytes == sizeof(ControlFile) && file_is_whole(content);
    case CONTROL_READY:
    case CONTROL_GO: return bytes == 0;
    case CONTROL_BEAT:
        if (bytes != sizeof duration) return false;
        memcpy(&duration, content, sizeof duration);
        return duration >= 0;
    case CONTROL_STOP:
        if (bytes != sizeof number) return false;
        memcpy(&number, content, sizeof number);
        return number > 0 && number < NSIG;
    case CONTROL_REFUSED:
    case CONTROL_FAILED:
    case CONTROL_ENDED:
    case CONTROL_RESULT:
        if (bytes != sizeof end || !end_is_whole(content)) return false;
        memcpy(&end, content, sizeof end);
        return end.status != OK || kind == CONTROL_ENDED || kind == CONTROL_RESULT;
    default: return false;
    }
}

int64_t control_frame_read(const uint8_t *bytes, size_t count, ControlFrame *frame)
{
    ControlHead head;
    if (count < sizeof head) return 0;
    memcpy(&head, bytes, sizeof head);
    if (head.magic != CONTROL_MAGIC || head.kind < CONTROL_HELLO || head.kind >= CONTROL_KINDS ||
        head.bytes > CONTROL_CONTENT_MAX)
        return -1;
    if (count - sizeof head < head.bytes) return 0;
    if (!is_whole(head.kind, bytes + sizeof head, head.bytes)) return -1;
    *frame = (ControlFrame){(ControlKind)head.kind, bytes + sizeof head, head.bytes};
    return (int64_t)(sizeof head + head.bytes);
}
