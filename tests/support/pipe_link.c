/* See pipe_link.h. Every pair of groups has two pipes in each direction, for data and for messages outside of collectives. An
 * operation is a list of transfers, each the whole content of one message; those of one pipe follow each other. */
#include "tests/support/pipe_link.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

enum { GROUPS_MAX = 8, TRANSFERS = LINK_REQUESTS * GROUPS_MAX };
typedef enum PipeKind { PIPE_DATA = 0, PIPE_MESSAGES, PIPE_KINDS } PipeKind;

static int pipes[GROUPS_MAX][GROUPS_MAX][PIPE_KINDS][2]; /* from, to */
static int pipe_groups;

typedef struct Transfer {
    bool busy, sends;
    int peer, request;
    int64_t number; /* in the order in which they have begun */
    char *at;
    size_t left;
} Transfer;

typedef struct PipeLink {
    Link link;
    int group;
    bool used[LINK_REQUESTS];
    int64_t begun;
    Transfer transfer[TRANSFERS];
} PipeLink;

void pipe_link_create(int groups)
{
    pipe_groups = groups;
    for (int from = 0; from < groups; from++)
        for (int to = 0; to < groups; to++)
            for (int k = 0; k < PIPE_KINDS; k++)
                if (pipe2(pipes[from][to][k], O_NONBLOCK | O_CLOEXEC)) abort();
}

void pipe_link_destroy(void)
{
    for (int from = 0; from < pipe_groups; from++)
        for (int to = 0; to < pipe_groups; to++)
            for (int k = 0; k < PIPE_KINDS; k++)
                for (int end = 0; end < 2; end++) close(pipes[from][to][k][end]);
}

static Status request_new(PipeLink *p, int *request)
{
    for (int i = 0; i < LINK_REQUESTS; i++) {
        if (p->used[i]) continue;
        p->used[i] = true;
        *request = i;
        return OK;
    }
    return FAIL(ERR_INTERNAL, "more than %d messages in progress", LINK_REQUESTS);
}

static void transfer_add(PipeLink *p, bool sends, int peer, void *at, size_t bytes, int request)
{
    int i = 0;
    while (p->transfer[i].busy) i++; /* there is room for all requests */
    p->transfer[i] = (Transfer){bytes > 0, sends, peer, request, p->begun++, at, bytes};
}

static Status pipe_send(Link *link, int to, const void *from, size_t bytes, int *request)
{
    PipeLink *p = (PipeLink *)link;
    TRY(request_new(p, request));
    transfer_add(p, true, to, (void *)from, bytes, *request);
    return OK;
}

static Status pipe_receive(Link *link, int from, void *to, size_t bytes, int *request)
{
    PipeLink *p = (PipeLink *)link;
    TRY(request_new(p, request));
    transfer_add(p, false, from, to, bytes, *request);
    return OK;
}

static Status pipe_broadcast(Link *link, void *buf, size_t bytes, int root, int *request)
{
    PipeLink *p = (PipeLink *)link;
    TRY(request_new(p, request));
    for (int g = 0; g < pipe_groups; g++)
        if (g != p->group && (p->group == root || g == root))
            transfer_add(p, p->group == root, g, buf, bytes, *request);
    return OK;
}

static Status pipe_gather(Link *link, void *all, size_t bytes, bool everywhere, int *request)
{
    PipeLink *p = (PipeLink *)link;
    char *at = all;
    TRY(request_new(p, request));
    for (int g = 0; g < pipe_groups; g++) {
        if (g == p->group) continue;
        if (everywhere || g == 0) transfer_add(p, true, g, at + (size_t)p->group * bytes, bytes, *request);
        if (everywhere || p->group == 0) transfer_add(p, false, g, at + (size_t)g * bytes, bytes, *request);
    }
    return OK;
}

/* The oldest transfer of a pipe goes on as far as the pipe has room or content. */
static Status transfer_move(PipeLink *p, bool sends, int peer)
{
    for (;;) {
        Transfer *first = NULL;
        for (int i = 0; i < TRANSFERS; i++) {
            Transfer *t = &p->transfer[i];
            if (t->busy && t->sends == sends && t->peer == peer && (!first || t->number < first->number)) first = t;
        }
        if (!first) return OK;
        ssize_t n = sends ? write(pipes[p->group][peer][PIPE_DATA][1], first->at, first->left)
                          : read(pipes[peer][p->group][PIPE_DATA][0], first->at, first->left);
        if (n < 0 && errno == EAGAIN) return OK;
        if (n <= 0) return FAIL(ERR_COMM, "the pipe of group %d: %s", peer, strerror(errno));
        first->at += n;
        first->left -= (size_t)n;
        first->busy = first->left > 0;
    }
}

static Status pipe_test(Link *link, int request, bool *ended)
{
    PipeLink *p = (PipeLink *)link;
    for (int g = 0; g < pipe_groups; g++) {
        TRY(transfer_move(p, true, g));
        TRY(transfer_move(p, false, g));
    }
    *ended = true;
    for (int i = 0; i < TRANSFERS; i++) *ended &= !(p->transfer[i].busy && p->transfer[i].request == request);
    if (*ended) p->used[request] = false;
    return OK;
}

static Status pipe_notify(Link *link, int to, const LeaderMessage *message)
{
    int fd = pipes[((PipeLink *)link)->group][to][PIPE_MESSAGES][1];
    return write(fd, message, sizeof *message) == sizeof *message ? OK
                                                                  : FAIL(ERR_COMM, "group %d receives no message", to);
}

static Status pipe_poll(Link *link, LeaderMessage *message, bool *heard)
{
    *heard = false;
    for (int g = 0; g < pipe_groups && !*heard; g++)
        *heard =
            read(pipes[g][((PipeLink *)link)->group][PIPE_MESSAGES][0], message, sizeof *message) == sizeof *message;
    return OK;
}

static bool pipe_flushed(Link *link)
{
    (void)link;
    return true;
}

static void pipe_close(Link *link, bool orderly)
{
    (void)orderly;
    free(link);
}

static const LinkOps pipe_ops = {
    .send = pipe_send,
    .receive = pipe_receive,
    .broadcast = pipe_broadcast,
    .gather = pipe_gather,
    .test = pipe_test,
    .notify = pipe_notify,
    .poll = pipe_poll,
    .flushed = pipe_flushed,
    .close = pipe_close,
};

Status pipe_link_open(const CommConfig *config, Link **made)
{
    PipeLink *p = calloc(1, sizeof *p);
    if (!p) return FAIL(ERR_MEMORY, "no memory for pipes");
    p->link.ops = &pipe_ops;
    p->group = config->place.node;
    *made = &p->link;
    return OK;
}
