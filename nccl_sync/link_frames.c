/* Writing and checking the frames of link_frames.h. */
#include "nccl_sync/link_frames.h"

#include <string.h>

static bool is_text(const uint8_t *at, size_t bytes)
{
    return bytes > 0 && memchr(at, 0, bytes);
}

int64_t frame_read(const uint8_t *at, size_t bytes, int groups, Frame *frame)
{
    FrameHead head;
    LinkHello hello;
    News news;
    if (bytes < sizeof head) return 0;
    memcpy(&head, at, sizeof head);
    if (head.magic != FRAME_MAGIC || head.kind >= FRAME_KINDS || head.to < 0 || head.to >= groups ||
        head.bytes > FRAME_BYTES_MAX)
        return -1;
    if (head.kind == FRAME_HELLO && head.bytes != sizeof hello) return -1;
    if (head.kind == FRAME_CHALLENGE && head.bytes != sizeof(Challenge)) return -1;
    if (head.kind == FRAME_PROOF && head.bytes != sizeof(Proof)) return -1;
    if (head.kind == FRAME_NEWS && head.bytes != sizeof news) return -1;
    if (head.kind == FRAME_WELCOME && head.bytes != sizeof hello.host) return -1;
    if (bytes < sizeof head + head.bytes) return 0;
    *frame = (Frame){(FrameKind)head.kind, head.to, at + sizeof head, head.bytes, sizeof head + head.bytes};
    if (head.kind == FRAME_HELLO) {
        memcpy(&hello, frame->content, sizeof hello);
        if (hello.group < 1 || hello.group >= groups || !is_text((const uint8_t *)hello.host, sizeof hello.host))
            return -1;
    }
    if (head.kind == FRAME_NEWS) {
        memcpy(&news, frame->content, sizeof news);
        if (news.from < 0 || news.from >= groups || !is_text((const uint8_t *)news.text, sizeof news.text)) return -1;
    }
    if ((head.kind == FRAME_REFUSED || head.kind == FRAME_WELCOME) && !is_text(frame->content, head.bytes)) return -1;
    return (int64_t)frame->length;
}
