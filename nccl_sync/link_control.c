/* Messages between the leaders of all nodes over a control plane (hosts/control.h), where no MPI has started them: what
 * NCCL needs beside its own collectives. No sums: send and receive are refused.
 *
 * One collective is in progress at a time. A part that comes early waits until its collective begins. */
#include "nccl_sync/hosts/control.h"
#include "nccl_sync/link.h"

_Static_assert((int)sizeof(LeaderMessage) <= (int)CONTROL_MESSAGE_BYTES, "a message fits into a frame");

typedef enum ControlWork { WORK_NOTHING = 0, WORK_BROADCAST, WORK_GATHER } ControlWork;

typedef struct ControlLink {
    Link link;
    ControlPlane *control; /* owned */
    int node, nodes;
    /* the collective in progress */
    ControlWork work;
    char *at;
    size_t bytes;
    int root, left; /* gather in node 0: parts that have not come */
    bool everywhere;
    bool *has_come; /* owned: [nodes] */
} ControlLink;

/* From node 0 to all others, except one. */
static void all_post(const ControlLink *l, const void *bytes, size_t count, int except)
{
    for (int n = 1; n < l->nodes; n++)
        if (n != except) control_post(l->control, n, bytes, count);
}

/* Takes the parts that have come; *ended: they were the last. */
static Status work_continue(ControlLink *l, bool *ended)
{
    bool hub = l->node == 0;
    if (l->work == WORK_BROADCAST) {
        TRY(control_collect(l->control, hub ? l->root : 0, l->at, l->bytes, ended));
        if (*ended && hub) all_post(l, l->at, l->bytes, l->root);
        return OK;
    }
    if (!hub) return control_collect(l->control, 0, l->at, l->bytes * (size_t)l->nodes, ended);
    for (int n = 1; n < l->nodes; n++) {
        if (l->has_come[n]) continue;
        TRY(control_collect(l->control, n, l->at + (size_t)n * l->bytes, l->bytes, &l->has_come[n]));
        l->left -= l->has_come[n];
    }
    *ended = l->left == 0;
    if (*ended && l->everywhere) all_post(l, l->at, l->bytes * (size_t)l->nodes, 0);
    return OK;
}

static Status work_begin(ControlLink *l, ControlWork work, void *at, size_t bytes, int root, int *request)
{
    *request = 0;
    l->work = work;
    l->at = at;
    l->bytes = bytes;
    l->root = root;
    l->left = l->nodes - 1;
    for (int n = 0; n < l->nodes; n++) l->has_come[n] = false;
    if (work == WORK_GATHER && l->node > 0) control_post(l->control, 0, l->at + (size_t)l->node * bytes, bytes);
    if (work == WORK_GATHER || root != l->node) return OK;
    if (l->node > 0)
        control_post(l->control, 0, at, bytes);
    else
        all_post(l, at, bytes, 0);
    l->work = WORK_NOTHING;
    return OK;
}

static Status link_broadcast(Link *link, void *buf, size_t bytes, int root, int *request)
{
    return work_begin((ControlLink *)link, WORK_BROADCAST, buf, bytes, root, request);
}

static Status link_gather(Link *link, void *all, size_t bytes, bool everywhere, int *request)
{
    ControlLink *l = (ControlLink *)link;
    l->everywhere = everywhere;
    TRY(work_begin(l, WORK_GATHER, all, bytes, 0, request));
    if (l->node > 0 && !everywhere) l->work = WORK_NOTHING;
    return OK;
}

static Status link_test(Link *link, int request, bool *ended)
{
    ControlLink *l = (ControlLink *)link;
    (void)request;
    *ended = l->work == WORK_NOTHING;
    Status st = control_pump(l->control);
    if (!*ended) TRY(work_continue(l, ended));
    if (*ended) l->work = WORK_NOTHING;
    return *ended ? OK : st; /* after its end the others may have closed their connections already */
}

static Status link_send(Link *link, int to, const void *from, size_t bytes, int *request)
{
    (void)link, (void)from, (void)bytes, (void)request;
    return FAIL(ERR_INTERNAL, "a sum with node %d over TCP: NCCL or MPI makes the sums", to);
}

static Status link_receive(Link *link, int from, void *to, size_t bytes, int *request)
{
    return link_send(link, from, to, bytes, request);
}

static Status link_notify(Link *link, int to, const LeaderMessage *message)
{
    control_notify(((ControlLink *)link)->control, to, message, sizeof *message);
    return OK;
}

static Status link_poll(Link *link, LeaderMessage *message, bool *heard)
{
    ControlLink *l = (ControlLink *)link;
    TRY(control_pump(l->control));
    *heard = control_poll(l->control, message, sizeof *message);
    return OK;
}

static bool link_flushed(Link *link)
{
    return control_flushed(((ControlLink *)link)->control);
}

static void link_close(Link *link, bool orderly)
{
    ControlLink *l = (ControlLink *)link;
    if (!orderly) control_forget(l->control); /* nobody waits for what is still queued */
    control_close(l->control);
    free(l->has_come);
    free(l);
}

static const LinkOps control_ops = {
    .send = link_send,
    .receive = link_receive,
    .broadcast = link_broadcast,
    .gather = link_gather,
    .test = link_test,
    .notify = link_notify,
    .poll = link_poll,
    .flushed = link_flushed,
    .close = link_close,
};

Status link_control_open(const CommConfig *config, Link **made)
{
    const Placement *place = &config->place;
    const ControlConfig control = {.rank = place->node,
                                   .ranks = place->nodes,
                                   .host = place->host,
                                   .master = config->master,
                                   .port = config->port,
                                   .secret = config->secret,
                                   .secret_from = "the run",
                                   .channel = "link",
                                   .part = "first tower process",
                                   .any_build = true, /* the supervisors have compared them */
                                   .timeout_ms = config->timeout_ms};
    ControlLink *l = calloc(1, sizeof *l);
    bool *has_come = calloc((size_t)place->nodes, sizeof *has_come);
    Status st = l && has_come ? OK : FAIL(ERR_MEMORY, "no memory for messages between %d nodes", place->nodes);
    if (st == OK) st = control_open(&control, &l->control);
    if (st != OK) {
        free(l);
        free(has_come);
        return st;
    }
    l->link.ops = &control_ops;
    l->node = place->node;
    l->nodes = place->nodes;
    l->has_come = has_come;
    *made = &l->link;
    return OK;
}
