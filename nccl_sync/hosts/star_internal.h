/* The inside of a star, for star.c, star_meet.c and star_run.c. */
#pragma once

#include <pthread.h>

#include "kernels/base/silence.h"
#include "nccl_sync/hosts/net.h"
#include "nccl_sync/hosts/star.h"

enum {
    STRANGERS_MAX = 32, /* connections that have not said who they are */
    NOTICES_MAX = 64    /* messages that nobody has heard */
};

/* A program at the other end, and what is known of it. */
typedef struct Peer {
    NetPeer net;
    int64_t heard_ns, alive_ns; /* when the last frame came; the last sign of life of its towers, 0: none yet */
    int64_t ended_ns;           /* when its result came */
    bool proven;                /* it belongs to this job (handshake.h) */
    bool stranger;              /* it has not proven that to rank 0 */
    bool ready, ended;
    bool starved; /* no memory for what it sends, or for what is sent to it */
    StarEnd end;
    char host[STAR_HOST_BYTES];
    char *bytes; /* that it has sent, followed by a zero byte; of a gather, or of a broadcast from rank 0 */
    size_t byte_count;
} Peer;

/* A connection that has not proven yet that it belongs to this job. */
typedef struct Stranger {
    Peer peer;
    bool greeted; /* `hello` has come, and the challenge was sent */
    StarHello hello;
    Challenge challenge;
} Stranger;

struct Star {
    int rank, ranks;
    int64_t timeout_ms;
    uint64_t build;
    StarConfig config;
    StarHello hello; /* of this rank's connection to rank 0 */
    Peer *peer;      /* [ranks]: rank 0 is connected to all, the others only to rank 0 */
    int listener;
    int64_t met_from_ns, note_ns; /* when it began to meet the others; when it is to say next that it still does */
    Stranger stranger[STRANGERS_MAX];
    int refused;      /* connections that did not prove to be of this job */
    StarHello claims; /* what the last of them said of itself */
    bool watching, welcome, go, failed, decided;
    bool orphaned; /* the connection to rank 0 has ended before the result came */
    Silence awake; /* between turns: silence is counted from when this program was last continued */
    int64_t beaten_ns;
    int stop_signal;
    StarEnd failure, result;
    StarTake *take;
    void *take_context;
    int taking;        /* the rank of which `take` is being called, without the lock; -1: none */
    StarFile unwanted; /* the last that rank 0 did not want */
    int64_t file_ns;   /* when rank 0 last received a part of a file */
    StarNotice notice[NOTICES_MAX];
    int notice_first, notice_count;
    bool left; /* star_leave */
    pthread_mutex_t mutex;
};

static inline bool star_is_root(const Star *c)
{
    return c->rank == 0;
}

static inline Hello hello_of(const char *channel, const StarHello *hello)
{
    return (Hello){channel, hello, sizeof *hello};
}

void peer_send(Peer *peer, StarKind kind, const void *content, size_t bytes);
/* To everybody that this rank is connected to, except one. */
void all_send(Star *star, StarKind kind, const void *content, size_t bytes, int except);
/* Takes what has come; false at the end of the connection. A stranger has little to say. */
bool peer_receive(Peer *peer);

/* The first failure counts, and goes to everybody but `from`. */
void failure_take(Star *star, const StarEnd *end, int from);
__attribute__((format(printf, 4, 5))) void failure_make(Star *star, Status status, int rank, const char *format, ...);
NODISCARD Status failure_status(const Star *star);

/* Nothing has been heard of it for longer than the timeout, without the time in which this program was stopped itself. */
bool is_silent(const Star *star, int rank);
/* One round: wait at most wait_ms for something to happen, then take and send what there is. */
void star_round(Star *star, int wait_ms);
