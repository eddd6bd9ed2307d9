/* The inside of a control plane, for control.c, control_meet.c and control_run.c. */
#pragma once

#include <pthread.h>

#include "kernels/base/silence.h"
#include "nccl_sync/hosts/control.h"
#include "nccl_sync/hosts/net.h"

enum {
    PENDING_MAX = 32, /* connections that have not said who they are */
    MESSAGES_MAX = 64 /* messages that nobody has heard */
};

/* A node at the other end, and what is known of it. */
typedef struct Peer {
    NetPeer net;
    int64_t heard_ns, alive_ns; /* when the last frame came; the last sign of life of its towers, 0: none yet */
    int64_t ended_ns;           /* when its result came */
    int64_t collective;         /* to which its towers have come; of rank 0, on another one: to which all have */
    bool proven;                /* it belongs to this job (handshake.h) */
    bool pending;               /* it has not proven that to rank 0 */
    bool ready, ended;
    bool starved; /* no memory for what it sends, or for what is sent to it */
    ControlEnd end;
    char host[CONTROL_HOST_BYTES];
    char *bytes; /* that it has sent, followed by a zero byte; of a gather, or of a broadcast from rank 0 */
    size_t byte_count;
} Peer;

/* A connection that has not proven yet that it belongs to this job. */
typedef struct Pending {
    Peer peer;
    bool challenged; /* `hello` has come, and the challenge was sent */
    ControlHello hello;
    Challenge challenge;
} Pending;

struct ControlPlane {
    int rank, ranks;
    int64_t timeout_ms;
    uint64_t build;
    ControlConfig config;
    ControlHello hello; /* of this rank's connection to rank 0 */
    Peer *peer;         /* [ranks]: rank 0 is connected to all, the others only to rank 0 */
    int listener;
    int64_t met_from_ns, note_ns; /* when it began to meet the others; when it is to say next that it still does */
    Pending pending[PENDING_MAX];
    int refused;         /* connections that did not prove to be of this job */
    ControlHello claims; /* what the last of them said of itself */
    bool watching, welcome, go, failed, decided;
    bool orphaned; /* the connection to rank 0 has ended before the result came */
    Silence awake; /* between rounds: silence is counted from when this node was last continued */
    int64_t beaten_ns;
    NodesBehind behind; /* the last that rank 0 has told; not on rank 0 */
    int stop_signal;
    ControlEnd failure, result;
    bool takes;          /* files */
    pthread_cond_t came; /* one of them; or `takes` has changed */
    /* the rank of which one is being taken, without the lock (-1: none); the last of which one was */
    int taking, taken;
    int64_t takings;      /* counts them, and the ends of all taking */
    ControlFile unwanted; /* the last that rank 0 did not want */
    int64_t file_ns;      /* when rank 0 last received a part of a file */
    ControlMessage message[MESSAGES_MAX];
    int message_first, message_count;
    int64_t ending_ns, waits_ns; /* when control_end was first called; since when it has waited for what is to come */
    bool left, closed;           /* control_leave, control_close */
    int users;                   /* control_keep */
    pthread_mutex_t mutex;
};

static inline bool control_is_root(const ControlPlane *c)
{
    return c->rank == 0;
}

static inline Hello hello_of(const char *channel, const ControlHello *hello)
{
    return (Hello){channel, hello, sizeof *hello};
}

void peer_send(Peer *peer, ControlKind kind, const void *content, size_t bytes);
/* To everybody that this rank is connected to, except one. */
void all_send(ControlPlane *control, ControlKind kind, const void *content, size_t bytes, int except);
/* Takes what has come; false at the end of the connection. One that is pending has little to say. */
bool peer_receive(Peer *peer);

/* The first failure counts, and goes to everybody but `from`. */
void failure_take(ControlPlane *control, const ControlEnd *end, int from);
__attribute__((format(printf, 4, 5))) void failure_make(ControlPlane *control, Status status, int rank,
                                                        const char *format, ...);
NODISCARD Status failure_status(const ControlPlane *control);

/* Nothing has been heard of it for longer than the timeout, without the time in which this node was stopped itself. */
bool is_silent(const ControlPlane *control, int rank);
/* The same for half of that time: it counts as behind, whatever it has said before. */
bool is_late(const ControlPlane *control, int rank);
/* On rank 0: the nodes that have come to no later collective than any other, and which that is. */
NodesBehind behind_find(const ControlPlane *control, int64_t *least);
/* Whether a frame comes in its direction, and speaks of this run's ranks. Before rank 0 has proven itself it has nothing to
 * say but its challenge. */
bool frame_fits(const ControlPlane *control, const Peer *peer, const ControlFrame *frame);
/* Wait at most wait_ms for something to happen, then take and send what there is. */
void control_move(ControlPlane *control, int wait_ms);
/* The same by who watches: with a heartbeat, and a look for silence. */
void control_round(ControlPlane *control, int wait_ms);
