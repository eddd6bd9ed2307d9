/* Who is behind, by what the heartbeats of nodes have said and by how old that is (control_internal.h). */
#include "kernels/base/clock.h"
#include "nccl_sync/hosts/control_internal.h"
#include "tests/support/unit.h"

enum { NODES = 4, MINUTE_MS = 60000 };
static Peer peer[NODES];

/* Of NODES that have come to these collectives; `quiet` was last heard so many ms ago. */
static ControlPlane plane(int rank, const int64_t *collectives, int quiet, int64_t ms)
{
    ControlPlane c = {
        .rank = rank, .ranks = NODES, .timeout_ms = MINUTE_MS, .watching = true, .taking = -1, .peer = peer};
    const int64_t now = clock_ns();
    for (int r = 0; r < NODES; r++)
        peer[r] = (Peer){.collective = collectives[r], .heard_ns = now + 3600 * INT64_C(1000000000)};
    if (quiet >= 0) peer[quiet].heard_ns = now - ms * 1000000;
    pthread_mutex_init(&c.mutex, NULL);
    return c;
}

static void is_behind(ControlPlane c, int count, int first)
{
    NodesBehind behind = control_behind(&c);
    assert_int_equal(behind.count, count);
    if (count) assert_int_equal(behind.node[0], first);
    pthread_mutex_destroy(&c.mutex);
}

TEST(test_by_what_was_said)
{
    is_behind(plane(0, (const int64_t[]){7, 7, 7, 7}, -1, 0), 0, 0);
    is_behind(plane(0, (const int64_t[]){7, 7, 6, 7}, -1, 0), 1, 2);
    is_behind(plane(0, (const int64_t[]){6, 7, 7, 7}, -1, 0), 0, 0); /* it is behind itself */
}

/* A host without power has said that it had come. */
TEST(test_by_silence)
{
    const int64_t same[] = {7, 7, 7, 7};
    is_behind(plane(0, same, 2, MINUTE_MS / 2 + 1), 1, 2);
    is_behind(plane(0, same, 2, MINUTE_MS / 60), 0, 0);
    is_behind(plane(0, same, 0, MINUTE_MS), 0, 0); /* nobody hears himself */
    is_behind(plane(0, (const int64_t[]){0, 0, 0, 0}, 2, MINUTE_MS), 0,
              0); /* no collective has begun: none is before it */
    ControlPlane woken = plane(0, same, 2, MINUTE_MS / 2 + 1);
    woken.awake.since_ns = clock_ns() + 3600 * INT64_C(1000000000); /* this node was stopped meanwhile */
    is_behind(woken, 0, 0);
}

TEST(test_by_silence_of_rank_0)
{
    const int64_t same[] = {7, 7, 7, 7};
    ControlPlane c = plane(1, same, 0, MINUTE_MS / 2 + 1);
    c.behind = (NodesBehind){1, {3}}; /* the last that it has told */
    is_behind(c, 1, 0);
    c = plane(1, same, -1, 0);
    c.behind = (NodesBehind){1, {3}};
    is_behind(c, 0, 0);
}
