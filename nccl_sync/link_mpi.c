/* Messages between the leaders of all nodes over MPI (MPI 3.1: nonblocking point-to-point and collective operations),
 * and everything else that calls MPI.
 *
 * A leader is a child of the process that the launcher started, and initializes MPI after the fork; Open MPI and MPICH
 * find what they need in the environment. MPI_THREAD_FUNNELED: the process has other threads, and only the one that has
 * initialized MPI, its communication thread (comm_thread.h), calls it. Errors return instead of ending the job, and
 * MPI_Abort is never called: launchers would kill the processes that are about to say what has happened. For the same
 * reason MPI_Finalize, which waits for all, comes only after an orderly end; a process that leaves after an error just
 * ends.
 *
 * Some libraries below MPI call abort() when a peer has died in the middle of a message (UCX 1.13 does). SIGABRT inside a
 * call is caught and becomes an error as any other; MPI is not called again. */
#include <limits.h>
#include <mpi.h>
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

#include "kernels/base/progress.h"
#include "nccl_sync/link.h"

enum { TAG_DATA = 1, TAG_MESSAGE, MESSAGES_MAX = 64 };
#define EAGER_BYTES "300000" /* a chunk (hosts_chain.c) and a header */

typedef struct MpiLink {
    Link link;
    int node;
    MPI_Request request[LINK_REQUESTS];
    int bytes[LINK_REQUESTS];            /* of a receive; -1: another operation; -2: free */
    LeaderMessage message[MESSAGES_MAX]; /* on their way */
    MPI_Request leaving[MESSAGES_MAX];
} MpiLink;

static bool finalized;
static MpiLink *left_behind; /* MPI may still use its memory until the process ends */

/* Per thread, because one that aborts must not jump into the stack of the thread that calls MPI. */
static _Thread_local sigjmp_buf escape;                  /* of the call that is running */
static _Thread_local volatile sig_atomic_t inside, lost; /* a call is running; one has not returned */

static struct sigaction caught_before; /* SIGABRT, outside of MPI */

static void abort_caught(int number)
{
    if (inside) siglongjmp(escape, 1);
    sigaction(number, &caught_before, NULL);
    raise(number);
}

static Status mpi_check(int error, const char *call)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    inside = 0;
    if (error == MPI_SUCCESS) return OK;
    MPI_Error_string(error, text, &length);
    return FAIL(ERR_COMM, "MPI: %s in %.*s", text, (int)strcspn(call, "("), call);
}

static Status mpi_lost(const char *call)
{
    inside = 0;
    lost = 1;
    return FAIL(ERR_COMM, "MPI has aborted in %.*s, probably because another host has left", (int)strcspn(call, "("),
                call);
}

#define TRY_MPI(call)                                                                                                  \
    do {                                                                                                               \
        if (lost || sigsetjmp(escape, 0)) return mpi_lost(#call);                                                      \
        inside = 1;                                                                                                    \
        TRY(mpi_check(call, #call));                                                                                   \
    } while (0)

static Status request_new(MpiLink *m, size_t bytes, bool receives, int *request)
{
    for (int i = 0; i < LINK_REQUESTS; i++) {
        if (m->bytes[i] != -2) continue;
        if (bytes > INT_MAX) break;
        m->bytes[i] = receives ? (int)bytes : -1;
        *request = i;
        return OK;
    }
    return FAIL(ERR_INTERNAL, "a message of %zu bytes, or more than %d messages in progress", bytes, LINK_REQUESTS);
}

static Status mpi_send(Link *link, int to, const void *from, size_t bytes, int *request)
{
    MpiLink *m = (MpiLink *)link;
    TRY(request_new(m, bytes, false, request));
    TRY_MPI(MPI_Isend(from, (int)bytes, MPI_BYTE, to, TAG_DATA, MPI_COMM_WORLD, &m->request[*request]));
    return OK;
}

static Status mpi_receive(Link *link, int from, void *to, size_t bytes, int *request)
{
    MpiLink *m = (MpiLink *)link;
    TRY(request_new(m, bytes, true, request));
    TRY_MPI(MPI_Irecv(to, (int)bytes, MPI_BYTE, from, TAG_DATA, MPI_COMM_WORLD, &m->request[*request]));
    return OK;
}

static Status mpi_broadcast(Link *link, void *buf, size_t bytes, int root, int *request)
{
    MpiLink *m = (MpiLink *)link;
    TRY(request_new(m, bytes, false, request));
    TRY_MPI(MPI_Ibcast(buf, (int)bytes, MPI_BYTE, root, MPI_COMM_WORLD, &m->request[*request]));
    return OK;
}

static Status mpi_gather(Link *link, void *all, size_t bytes, bool everywhere, int *request)
{
    MpiLink *m = (MpiLink *)link;
    const void *mine = m->node == 0 ? MPI_IN_PLACE : (char *)all + (size_t)m->node * bytes;
    TRY(request_new(m, bytes, false, request));
    if (everywhere)
        TRY_MPI(MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, (int)bytes, MPI_BYTE, MPI_COMM_WORLD,
                               &m->request[*request]));
    else
        TRY_MPI(MPI_Igather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD,
                            &m->request[*request]));
    return OK;
}

static Status request_test(MPI_Request *request, bool *ended, int *bytes)
{
    MPI_Status status;
    int done = 0;
    TRY_MPI(MPI_Test(request, &done, &status));
    *ended = done;
    if (done) TRY_MPI(MPI_Get_count(&status, MPI_BYTE, bytes));
    return OK;
}

static Status mpi_test(Link *link, int request, bool *ended)
{
    MpiLink *m = (MpiLink *)link;
    int bytes = 0, wanted = m->bytes[request];
    TRY(request_test(&m->request[request], ended, &bytes));
    if (!*ended) return OK;
    m->bytes[request] = -2;
    if (wanted < 0 || bytes == wanted) return OK;
    return FAIL(ERR_COMM,
                "a message of %d bytes where %d were expected: are all hosts running the same build with the same "
                "options?",
                bytes, wanted);
}

/* After an error there is nothing to wait for. */
static bool message_has_left(MpiLink *m, int i)
{
    bool ended = true;
    int bytes;
    return m->leaving[i] == MPI_REQUEST_NULL || request_test(&m->leaving[i], &ended, &bytes) != OK || ended;
}

static Status message_send(const LeaderMessage *message, int to, MPI_Request *leaving)
{
    TRY_MPI(MPI_Isend(message, sizeof *message, MPI_BYTE, to, TAG_MESSAGE, MPI_COMM_WORLD, leaving));
    return OK;
}

static Status mpi_notify(Link *link, int to, const LeaderMessage *message)
{
    MpiLink *m = (MpiLink *)link;
    int i = 0;
    while (i < MESSAGES_MAX && !message_has_left(m, i)) i++;
    if (i == MESSAGES_MAX) return OK; /* lost: many do not read */
    m->message[i] = *message;
    return message_send(&m->message[i], to, &m->leaving[i]);
}

static Status mpi_poll(Link *link, LeaderMessage *message, bool *heard)
{
    MPI_Status status;
    int there = 0, bytes = 0;
    (void)link;
    *heard = false;
    TRY_MPI(MPI_Iprobe(MPI_ANY_SOURCE, TAG_MESSAGE, MPI_COMM_WORLD, &there, &status));
    if (!there) return OK;
    TRY_MPI(MPI_Recv(message, sizeof *message, MPI_BYTE, status.MPI_SOURCE, TAG_MESSAGE, MPI_COMM_WORLD, &status));
    TRY_MPI(MPI_Get_count(&status, MPI_BYTE, &bytes));
    if (bytes != (int)sizeof *message || message->from != status.MPI_SOURCE)
        return FAIL(ERR_COMM, "a message of %d bytes from node %d: another build?", bytes, status.MPI_SOURCE);
    *heard = true;
    return OK;
}

static bool mpi_flushed(Link *link)
{
    bool out = true;
    for (int i = 0; i < MESSAGES_MAX; i++) out &= message_has_left((MpiLink *)link, i);
    return out;
}

static void mpi_close(Link *link, bool orderly)
{
    if (!orderly) {
        left_behind = (MpiLink *)link;
        return;
    }
    MPI_Finalize();
    finalized = true;
    free(link);
}

/* MPICH reports an orderly end to its launcher in an exit handler, and Hydra 4.2 kills all programs when one ends without.
 * Open MPI has no such handler, so that the destructors of all libraries can be left out. */
void link_mpi_exit(int code)
{
#ifndef OPEN_MPI
    if (finalized) exit(code);
#endif
    _exit(code);
}

static const LinkOps mpi_ops = {
    .send = mpi_send,
    .receive = mpi_receive,
    .broadcast = mpi_broadcast,
    .gather = mpi_gather,
    .test = mpi_test,
    .notify = mpi_notify,
    .poll = mpi_poll,
    .flushed = mpi_flushed,
    .close = mpi_close,
};

/* "Open MPI v4.1.4", "MPICH Version: 4.0.2" */
void link_mpi_text(char *text, size_t bytes)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(version, &length);
    version[strcspn(version, ",\n")] = 0;
    for (char *at = version; *at; at++)
        if (*at == '\t') *at = ' ';
    snprintf(text, bytes, "%s", version);
}

/* The number of processes that MPI knows, and this one's, are those that the launcher has reported. */
static Status world_check(const Placement *place)
{
    char version[128];
    int size = 0, rank = 0;
    link_mpi_text(version, sizeof version);
    TRY_MPI(MPI_Comm_size(MPI_COMM_WORLD, &size));
    TRY_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    const char *origin = place->origin && *place->origin ? place->origin : "the launcher";
    if (size == place->nodes && rank == place->node) return OK;
    if (size > 1)
        return FAIL(ERR_ARG, "%s says that this is process %d of %d, but MPI (%s) says %d of %d", origin, place->node,
                    place->nodes, version, rank, size);
    MPI_Finalize();
    return FAIL(ERR_ARG,
                "%s says that this is process %d of %d, but MPI (%s) knows only this one: use the mpirun of this MPI, "
                "srun --mpi=pmix (or pmi2), or a build for the launcher's MPI",
                origin, place->node, place->nodes, version);
}

Status link_mpi_open(const CommConfig *config, Link **made)
{
    const Placement *place = &config->place;
    int given = MPI_THREAD_SINGLE;
    struct sigaction caught = {.sa_handler = abort_caught, .sa_flags = SA_NODEFER};
#ifdef OPEN_MPI
    setenv("UCX_HANDLE_ERRORS", "none", 0); /* a backtrace on stderr helps no user */
    /* Chunks of sums go at once: Open MPI's handshakes for longer messages wait behind the data of the other direction,
     * which costs a third of a slow link's bandwidth. */
    setenv("OMPI_MCA_btl_tcp_eager_limit", EAGER_BYTES, 0);
    setenv("OMPI_MCA_btl_tcp_max_send_size", EAGER_BYTES, 0);
    /* Open MPI 5 returns the error of a connection that has broken, instead of ending the process. */
    setenv("OMPI_MCA_mpi_ft_enable", "1", 0);
#endif
    progress_made("MPI_Init_thread");
    TRY_MPI(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &given));
    progress_made("MPI_Init_thread");
    sigaction(SIGABRT, &caught, &caught_before);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (given < MPI_THREAD_FUNNELED) return FAIL(ERR_UNSUPPORTED, "this MPI does not allow threads beside its own");
    TRY(world_check(place));
    MpiLink *m = calloc(1, sizeof *m);
    if (!m) return FAIL(ERR_MEMORY, "no memory for messages between %d nodes", place->nodes);
    m->link.ops = &mpi_ops;
    m->node = place->node;
    for (int i = 0; i < LINK_REQUESTS; i++) m->bytes[i] = -2;
    for (int i = 0; i < MESSAGES_MAX; i++) m->leaving[i] = MPI_REQUEST_NULL;
    *made = &m->link;
    return OK;
}
