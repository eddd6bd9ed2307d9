/* The communicator between nodes of processes over TCP, as NCCL uses it beside its own sums: broadcasts, gathers and
 * barriers for every root; and its ends: a process that leaves, is killed, is stopped or does not come is named on all
 * others, and connections of others are turned away. Every node is a process that forks the processes of the node. */
#include "kernels/base/clock.h"
#include "nccl_sync/hosts.h"
#include "nccl_sync/hosts/control.h"
#include "nccl_sync/hosts/net.h"
#include "tests/support/free_port.h"
#include "tests/support/small_supervisor.h"
#include "tests/support/unit.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NODES = 3, PER = 2, RANKS = NODES * PER, COUNT = 64, PATIENT_MS = 60000, HANG_S = 200, PENDING = 40 };

typedef struct Seen {
    Status status[RANKS];
    char message[RANKS][1024];
} Seen;

typedef struct Case {
    Status (*live)(Comm *comm, int rank);
    int64_t timeout_ms;
    int leaves;      /* the rank that does not end by itself; -1: none */
    int absent;      /* the node that is not there; -1: none */
    int other_token; /* the node that belongs to another job; -1: none */
    bool one_alone;  /* the last node has one process only */
    bool silent;     /* silent connections to node 0 that come before the other nodes' */
    bool intruder;   /* a connection in the name of the last node, from somebody who does not know the secret */
    bool beats;      /* the supervisors have a control plane */
    int port, control_port;
    Seen *seen;
} Case;

static void rank_live(const Case *c, int rank, CommShared *shared)
{
    CommConfig config = {
        .place =
            {.rank = rank, .ranks = RANKS, .node = rank / PER, .nodes = NODES, .first_tower = rank, .local_towers = 1},
        .towers = RANKS,
        .max_count = COUNT,
        .timeout_ms = c->timeout_ms,
        .master = "127.0.0.1",
        .port = c->port,
        .secret = {{rank / PER == c->other_token ? 8 : 7}}};
    Comm *comm = NULL;
    if (c->one_alone && rank / PER == NODES - 1) {
        config.place.rank = NODES - 1;
        config.place.ranks = NODES;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(HANG_S);
    snprintf(config.place.host, sizeof config.place.host, "host%d", rank / PER);
    Status st = comm_hosts_open(&config, shared, link_control_open, &comm);
    if (st == OK) st = c->live(comm, rank);
    snprintf(c->seen->message[rank], sizeof c->seen->message[rank], "%s", st == OK ? "" : status_message());
    c->seen->status[rank] = st;
    if (st != OK) comm_abort(comm);
    comm_close(comm);
    _exit(0);
}

/* A rank that stays does so until then. */
static bool others_have_ended(const void *of)
{
    const Case *c = of;
    bool ended = true;
    for (int r = 0; r < RANKS; r++)
        ended &= r == c->leaves || *(volatile const Status *)&c->seen->status[r] != STATUS_COUNT;
    return ended;
}

/* The supervisor of a node. */
static void node_live(const Case *c, int node)
{
    CommShared *shared;
    pid_t pid[PER];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int count = c->one_alone && node == NODES - 1 ? 1 : PER;
    if (comm_shared_create(count, count, COUNT, &shared) != OK) _exit(1);
    for (int i = 0; i < count; i++) {
        if ((pid[i] = fork()) == 0) rank_live(c, node * PER + i, shared);
        if (pid[i] < 0) _exit(1);
    }
    SmallSupervisor supervisor = small_supervisor(node, NODES, c->control_port, shared);
    (void)small_supervisor_wait_all(&supervisor, pid, count, c->leaves - node * PER, others_have_ended, c);
    small_supervisor_end(&supervisor);
    _exit(0);
}

/* Sends node 0's own proof back to it. */
static void intruder_comes(const Case *c)
{
    char why[256];
    ControlHead head = {CONTROL_MAGIC, CONTROL_HELLO, sizeof(ControlHello)},
                answer = {CONTROL_MAGIC, CONTROL_PROOF, PROOF_BYTES};
    ControlHello hello = {.nonce = {7}, .rank = NODES - 1, .ranks = NODES, .version = "1", .host = "thief"};
    Challenge challenge;
    int fd;
    while ((fd = net_connect("127.0.0.1", c->port, why, sizeof why)) < 0) usleep(1000);
    (void)fcntl(fd, F_SETFL, 0);
    assert_int_equal(write(fd, &head, sizeof head), sizeof head);
    assert_int_equal(write(fd, &hello, sizeof hello), sizeof hello);
    assert_int_equal(recv(fd, &head, sizeof head, MSG_WAITALL), sizeof head);
    assert_int_equal(recv(fd, &challenge, sizeof challenge, MSG_WAITALL), sizeof challenge);
    assert_int_equal(write(fd, &answer, sizeof answer), sizeof answer);
    assert_int_equal(write(fd, challenge.proof, PROOF_BYTES), PROOF_BYTES);
    assert_int_equal(recv(fd, &head, sizeof head, MSG_WAITALL), 0);
    close(fd);
}

static void case_live(Case *c)
{
    pid_t pid[NODES] = {0};
    int pending[PENDING], silent = c->silent ? PENDING : 0;
    char why[256];
    c->port = free_port();
    c->control_port = c->beats ? free_port() : 0;
    c->seen = mmap(NULL, sizeof *c->seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(c->seen != MAP_FAILED);
    for (int r = 0; r < RANKS; r++) c->seen->status[r] = STATUS_COUNT;
    for (int g = 0; g < NODES; g++) {
        if (g == c->absent) continue;
        pid[g] = fork();
        assert_true(pid[g] >= 0);
        if (pid[g] == 0) node_live(c, g);
        for (int i = 0; g == 0 && i < silent; i++)
            while ((pending[i] = net_connect("127.0.0.1", c->port, why, sizeof why)) < 0) usleep(1000);
    }
    if (c->intruder) intruder_comes(c);
    for (int g = 0; g < NODES; g++)
        if (pid[g]) assert_int_equal(waitpid(pid[g], NULL, 0), pid[g]);
    for (int i = 0; i < silent; i++) close(pending[i]);
}

/* All ranks of the nodes in `nodes` (bits), but the one that leaves, ended with an error that holds `text`. */
static void all_report(const Case *c, unsigned nodes, const char *text)
{
    for (int r = 0; r < RANKS; r++) {
        if (r == c->leaves || !(nodes >> (r / PER) & 1)) continue;
        if (c->seen->status[r] != ERR_COMM || !strstr(c->seen->message[r], text))
            fail_msg("rank %d: status %d, '%s', wanted '%s'", r, (int)c->seen->status[r], c->seen->message[r], text);
    }
    munmap(c->seen, sizeof *c->seen);
}

/* ---- collectives */

static Status everything(Comm *comm, int rank)
{
    enum { LARGE = 600001 };
    static unsigned char bytes[LARGE], all[RANKS * LARGE];
    static const size_t sizes[] = {0, 1, 262144, LARGE};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        size_t n = sizes[k];
        for (int root = 0; root < RANKS; root++) {
            for (size_t i = 0; i < n; i++) bytes[i] = rank == root ? (unsigned char)(i * 31 + k + (size_t)root) : 99;
            TRY(comm_broadcast(comm, bytes, n, root));
            for (size_t i = 0; i < n; i++)
                if (bytes[i] != (unsigned char)(i * 31 + k + (size_t)root))
                    return FAIL(ERR_INTERNAL, "broadcast of %zu bytes from rank %d: byte %zu", n, root, i);
        }
        for (size_t i = 0; i < n; i++) bytes[i] = (unsigned char)(i * 7 + (size_t)rank);
        TRY(comm_gather(comm, bytes, n, all));
        for (size_t i = 0; i < n * RANKS; i++)
            if (all[i] != (unsigned char)(i % n * 7 + i / n))
                return FAIL(ERR_INTERNAL, "gather of %zu: byte %zu", n, i);
        memset(all, 0, sizeof all);
        TRY(comm_gather_root(comm, bytes, n, rank == 0 ? all : NULL));
        for (size_t i = 0; i < n * RANKS; i++)
            if (all[i] != (rank == 0 ? (unsigned char)(i % n * 7 + i / n) : 0))
                return FAIL(ERR_INTERNAL, "gather of %zu for rank 0: byte %zu of rank %d", n, i, rank);
        TRY(comm_barrier(comm));
    }
    return OK;
}

TEST(test_collectives)
{
    Case c = {everything, PATIENT_MS, -1, -1, -1};
    case_live(&c);
    for (int r = 0; r < RANKS; r++)
        if (c.seen->status[r] != OK) fail_msg("rank %d: %s", r, c.seen->message[r]);
    munmap(c.seen, sizeof *c.seen);
}

/* ---- ends */

static Status barriers_until(Comm *comm, int rank, int leaver, int signal_number)
{
    TRY(comm_barrier(comm));
    if (rank == leaver && signal_number) kill(getpid(), signal_number);
    if (rank == leaver) return FAIL(ERR_IO, "an error of its own");
    TRY(comm_barrier(comm));
    return FAIL(ERR_INTERNAL, "nobody left");
}

static Status rank_3_fails(Comm *comm, int rank)
{
    return barriers_until(comm, rank, 3, 0);
}

static Status leader_2_dies(Comm *comm, int rank)
{
    return barriers_until(comm, rank, 2, SIGKILL);
}

static Status leader_4_stops(Comm *comm, int rank)
{
    return barriers_until(comm, rank, 4, SIGSTOP);
}

/* fault: F30 */
TEST(test_process_that_fails)
{
    Case c = {rank_3_fails, PATIENT_MS, 3, -1, -1};
    case_live(&c);
    assert_int_equal(c.seen->status[3], ERR_IO);
    all_report(&c, 7, "tower process 3");
}

/* fault: F30 */
TEST(test_leader_that_dies)
{
    Case c = {leader_2_dies, PATIENT_MS, 2, -1, -1};
    case_live(&c);
    all_report(&c, 1 << 0 | 1 << 2, "rank 1 on host1: its first tower process has ended");
}

/* fault: F43 */
TEST(test_leader_that_stops)
{
    Case c = {leader_4_stops, 5000, 4, -1, -1, .beats = true};
    case_live(&c);
    all_report(&c, 1 << 0 | 1 << 1, "host host2 (tower processes 4..5) did not arrive at the collective within 5.0 s");
}

/* ---- a link that carries nothing after the leaders have met */

enum { QUIET_NODES = 6, QUIET_MEETING = 3 /* a gather and two broadcasts */ };
static int quiet_begun;

static Status quiet_gather(Link *link, void *all, size_t bytes, bool everywhere, int *request)
{
    NodeInfo *node = all;
    *request = quiet_begun++;
    if (bytes != sizeof *node) return OK;
    for (int g = 1; g < QUIET_NODES; g++) {
        node[g] = node[0];
        node[g].number = node[g].first_tower = g;
        snprintf(node[g].host, sizeof node[g].host, "host%d", g);
    }
    return OK;
}

static Status quiet_broadcast(Link *link, void *buf, size_t bytes, int root, int *request)
{
    *request = quiet_begun++;
    return OK;
}

static Status quiet_test(Link *link, int request, bool *ended)
{
    *ended = request < QUIET_MEETING;
    return OK;
}

static Status quiet_notify(Link *link, int to, const LeaderMessage *message)
{
    return OK;
}

static Status quiet_poll(Link *link, LeaderMessage *message, bool *heard)
{
    *heard = false;
    return OK;
}

static bool quiet_flushed(Link *link)
{
    return true;
}

static void quiet_close(Link *link, bool orderly)
{
}

static Status quiet_open(const CommConfig *config, Link **made)
{
    static const LinkOps ops = {.gather = quiet_gather,
                                .broadcast = quiet_broadcast,
                                .test = quiet_test,
                                .notify = quiet_notify,
                                .poll = quiet_poll,
                                .flushed = quiet_flushed,
                                .close = quiet_close};
    static Link link = {&ops};
    *made = &link;
    return OK;
}

/* `behind`: what the supervisor knows by heartbeats. */
static void quiet_barrier(NodesBehind behind, const char *wanted)
{
    CommShared *shared;
    Comm *comm = NULL;
    CommConfig config = {.place = {.ranks = QUIET_NODES, .nodes = QUIET_NODES, .local_towers = 1, .host = "host0"},
                         .towers = QUIET_NODES,
                         .max_count = COUNT,
                         .timeout_ms = 100};
    assert_int_equal(comm_shared_create(1, 1, COUNT, &shared), OK);
    quiet_begun = 0;
    assert_int_equal(comm_hosts_open(&config, shared, quiet_open, &comm), OK);
    comm_shared_behind(shared, behind);
    assert_int_equal(comm_barrier(comm), ERR_COMM);
    if (!strstr(status_message(), wanted)) fail_msg("'%s', wanted '%s'", status_message(), wanted);
    comm_close(comm);
    comm_shared_destroy(shared);
}

TEST(test_all_are_there_but_no_message)
{
    quiet_barrier((NodesBehind){0},
                  "host host3 (tower process 3) and 2 more came to the collective, but its messages did not arrive");
}

TEST(test_nodes_that_are_behind)
{
    quiet_barrier((NodesBehind){2, {2, 5}},
                  "host host2 (tower process 2), host host5 (tower process 5) did not arrive at the collective");
    quiet_barrier((NodesBehind){4, {1, 3, 4}}, "host host4 (tower process 4) and 1 more did not arrive");
}

/* A supervisor's heartbeats: a node has come to a collective if its leader looks there and all others have done their parts. */
TEST(test_collective_that_a_node_has_come_to)
{
    CommShared *shared;
    assert_int_equal(comm_shared_create(2, 2, COUNT, &shared), OK);
    assert_int_equal(comm_shared_come_to(shared), 0);
    atomic_store(&shared->come_to, 7);
    assert_int_equal(comm_shared_come_to(shared), 6);
    const int64_t later = clock_ns() + 3600 * INT64_C(1000000000); /* however slow this machine is */
    atomic_store(&shared->looked_ns[0], later);
    assert_int_equal(comm_shared_come_to(shared), 7);
    atomic_store(&shared->partials, 3);
    atomic_store(&shared->added[1], 2);
    assert_int_equal(comm_shared_come_to(shared), 6);
    atomic_store(&shared->added[1], 3);
    assert_int_equal(comm_shared_come_to(shared), 7);
    comm_shared_destroy(shared);
}

/* ---- meeting */

TEST(test_node_that_does_not_come)
{
    Case c = {everything, 4000, -1, 1, -1};
    case_live(&c);
    for (int r = 0; r < RANKS; r += 2 * PER)
        if (c.seen->status[r] != ERR_COMM ||
            !strstr(c.seen->message[r], "of 3 programs rank 1 did not connect to port ") ||
            !strstr(c.seen->message[r], " within 4 s (--comm-timeout); here are 0 (host0), 2 (host2)"))
            fail_msg("rank %d: '%s'", r, c.seen->message[r]);
    munmap(c.seen, sizeof *c.seen);
}

TEST(test_node_of_another_job)
{
    Case c = {everything, 4000, -1, -1, 2};
    case_live(&c);
    for (int r = 0; r < RANKS; r += PER) {
        const char *wanted = r == 2 * PER ? "has found the rank 0 of another job, or another program, at 127.0.0.1"
                                          : "rank 2 did not connect";
        if (c.seen->status[r] != (r == 2 * PER ? ERR_ARG : ERR_COMM) || !strstr(c.seen->message[r], wanted))
            fail_msg("rank %d: '%s'", r, c.seen->message[r]);
    }
    munmap(c.seen, sizeof *c.seen);
}

TEST(test_intruder_in_place_of_a_node)
{
    Case c = {everything, 4000, -1, NODES - 1, -1, .intruder = true};
    case_live(&c);
    const char *wanted = "here are 0 (host0), 1 (host1); 1 connections did not prove to be of this job (TOWERS_TOKEN, "
                         "the number of programs), "
                         "the last as rank 2 of 3 on ";
    for (int r = 0; r < RANKS - PER; r += PER)
        if (c.seen->status[r] != ERR_COMM || !strstr(c.seen->message[r], wanted))
            fail_msg("rank %d: '%s'", r, c.seen->message[r]);
    munmap(c.seen, sizeof *c.seen);
}

TEST(test_node_with_fewer_processes)
{
    Case c = {everything, PATIENT_MS, -1, -1, -1, .one_alone = true};
    case_live(&c);
    const char *wanted = "host host2 takes part as node 2 of 3, with 1 processes of 3 in all, 6 towers in all and 64 "
                         "floats; host host0: 0 of 3, 2 of 6, 6 towers, 64 floats";
    for (int r = 0; r < RANKS; r += PER)
        if (c.seen->status[r] != ERR_COMM || !strstr(c.seen->message[r], wanted))
            fail_msg("rank %d: '%s'", r, c.seen->message[r]);
    munmap(c.seen, sizeof *c.seen);
}

/* Connections that say nothing take all places of pending connections, but not for ever. */
TEST(test_silent_connections)
{
    Case c = {everything, PATIENT_MS, -1, -1, -1, .silent = true};
    case_live(&c);
    for (int r = 0; r < RANKS; r++)
        if (c.seen->status[r] != OK) fail_msg("rank %d: %s", r, c.seen->message[r]);
    munmap(c.seen, sizeof *c.seen);
}

/* Sooner or later the kernel gives a connection the very port that it is to lead to. Here that happens at once: the next
 * sockets of this program are bound to `own_port` (this function stands before that of the C library). */
static int own_port;

int socket(int family, int type, int protocol)
{
    int fd = (int)syscall(SYS_socket, family, type, protocol);
    struct sockaddr_in own = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)own_port)};
    if (fd >= 0 && own_port && family == AF_INET) bind(fd, (struct sockaddr *)&own, sizeof own);
    return fd;
}

TEST(test_connection_to_itself)
{
    char why[256] = "";
    int port = free_port();
    own_port = port;
    int fd = net_connect("127.0.0.1", port, why, sizeof why);
    own_port = 0;
    if (fd >= 0) fail_msg("a connection that leads to itself was taken for one to a server");
    assert_string_equal(why, "127.0.0.1: Connection refused");
}

/* Where all programs are on one host nobody else can connect. */
TEST(test_listener_for_this_host_alone)
{
    static const struct {
        const char *master;
        bool here;
    } cases[] = {{"127.0.0.1", true}, {"localhost", true}, {"127.0.1.1", false}, {"node1", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int fd;
        struct sockaddr_storage at = {0};
        socklen_t bytes = sizeof at;
        assert_int_equal(net_listen(cases[i].master, 0, &fd), OK);
        assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
        bool here =
            at.ss_family == AF_INET && ((const struct sockaddr_in *)&at)->sin_addr.s_addr == htonl(INADDR_LOOPBACK);
        if (here != cases[i].here) fail_msg("%s: %s", cases[i].master, here ? "loopback" : "all addresses");
        close(fd);
    }
}

TEST(test_no_descriptor_to_listen_with)
{
    int fd = -1, next = dup(0);
    struct rlimit was, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    none = was;
    none.rlim_cur = (rlim_t)next;
    close(next);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    Status st = net_listen("node1", 0, &fd);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    assert_int_equal(st, ERR_COMM);
    assert_int_equal(fd, -1);
    assert_string_equal(status_message(), "rank 0 cannot listen on port 0: Too many open files");
}
