/* libFuzzer target of a control plane: its frames; what it does with any frames that a proven peer or a pending connection
 * sends, in any order (rank 0 or another rank, while programs meet, gather or watch); and the variables of launchers. */

#include "nccl_sync/hosts/control_meet.c" /* a control plane without a meeting */
#include "towers/replica/launch.h"

enum { FUZZ_RANKS = 3, FUZZ_ROUNDS = 40 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool file_wanted(void *context, int rank, ControlKind kind, const void *content, size_t bytes)
{
    (void)context, (void)content;
    if (rank <= 0 || rank >= FUZZ_RANKS || (kind != CONTROL_FILE && kind != CONTROL_PIECE) ||
        bytes > CONTROL_CONTENT_MAX)
        abort();
    return bytes % 2 == 0;
}

/* A control plane of three ranks, whose peers have sent these bytes, and then ended. */
static void control_fuzz(uint8_t choice, const uint8_t *data, size_t size)
{
    bool root = choice & 1, pending = root && choice & 2, came;
    uint8_t to[64], message[CONTROL_MESSAGE_BYTES];
    int pair[2];
    ControlPlane *c = calloc(1, sizeof *c);
    Peer *peer = calloc(FUZZ_RANKS, sizeof *peer);
    if (!c || !peer || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) != 0) abort();
    *c = (ControlPlane){
        .rank = root ? 0 : 1, .ranks = FUZZ_RANKS, .timeout_ms = 1000, .listener = -1, .taking = -1, .peer = peer};
    c->config =
        (ControlConfig){.ranks = FUZZ_RANKS, .channel = "fuzz", .part = "peer", .master = "", .secret_from = ""};
    pthread_mutex_init(&c->mutex, NULL);
    pthread_cond_init(&c->came, NULL);
    for (int i = 0; i < PENDING_MAX; i++) c->pending[i].peer.net.fd = -1;
    for (int r = 0; r < FUZZ_RANKS; r++) peer[r] = (Peer){.net.fd = -1, .proven = !(choice & 4)};
    if (pending)
        c->pending[0].peer = (Peer){.net.fd = pair[0], .heard_ns = clock_ns(), .pending = true};
    else
        peer[root ? 2 : 0].net.fd = pair[0];
    if (choice & 8) control_watch(c);
    if (choice & 16) control_take(c, true);
    (void)!write(pair[1], data, size);
    shutdown(pair[1], SHUT_WR);
    for (int i = 0; i < FUZZ_ROUNDS; i++) {
        if (pending && c->pending[0].peer.net.fd >= 0) pending_serve(c, &c->pending[0]);
        Status st = control_pump(c);
        if (st == OK) st = control_collect(c, root ? 2 : 0, to, choice % sizeof to, &came);
        (void)st;
        if (choice & 16) (void)control_file_next(c, 0, file_wanted, NULL);
        if (control_poll(c, message, sizeof message) && c->message_count < 0) abort();
        for (int r = 0; r < FUZZ_RANKS; r++)
            if (memchr(peer[r].host, 0, sizeof peer[r].host) == NULL) abort();
        if (c->failed && (c->failure.rank < 0 || c->failure.rank >= FUZZ_RANKS || c->failure.status == OK)) abort();
        if (pending && (peer[1].proven || peer[2].proven) && !(choice & 4) && peer[2].net.fd >= 0) abort();
    }
    for (int i = 0; i < PENDING_MAX; i++) net_close(&c->pending[i].peer.net);
    close(pair[1]);
    control_forget(c);
    control_close(c);
}

static void frames_fuzz(const uint8_t *data, size_t size)
{
    ControlFrame frame;
    for (size_t at = 0; at < size;) {
        int64_t length = control_frame_read(data + at, size - at, &frame);
        if (length <= 0) break;
        if ((size_t)length > size - at || frame.content + frame.bytes != data + at + length) abort();
        at += (size_t)length;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), *environment[64] = {NULL}, host[32];
    int count = 0;
    Launch launch;
    frames_fuzz(data, size);
    if (size > 0 && size < 1 << 16) control_fuzz(data[0], data + 1, size - 1);
    if (!text) return 0;
    memcpy(text, data, size);
    text[size] = 0;
    if (launch_first_host(text, host, sizeof host) == OK && (strlen(host) >= sizeof host || !*host)) abort();
    for (char *line = strtok(text, "\n"); line && count < 63; line = strtok(NULL, "\n")) environment[count++] = line;
    if (launch_read(environment, &launch) == OK && (launch.rank < 0 || launch.rank >= launch.ranks)) abort();
    free(text);
    return 0;
}
