/* See small_supervisor.h. */
#include "tests/support/small_supervisor.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/base/clock.h"
#include "kernels/base/pause.h"

enum { MEET_MS = 60000 };

SmallSupervisor small_supervisor(int node, int nodes, int port, CommShared *shared)
{
    SmallSupervisor s = {.shared = shared};
    const ControlConfig config = {.rank = node,
                                  .ranks = nodes,
                                  .host = "here",
                                  .master = "127.0.0.1",
                                  .port = port,
                                  .secret = {{1}},
                                  .secret_from = "the test",
                                  .channel = "control",
                                  .part = "supervisor",
                                  .any_build = true,
                                  .timeout_ms = MEET_MS};
    if (!port) return s;
    if (control_open(&config, &s.control) != OK) {
        fprintf(stderr, "node %d does not meet the others: %s\n", node, status_message());
        _exit(1);
    }
    control_watch(s.control);
    return s;
}

pid_t small_supervisor_wait(SmallSupervisor *s, int *status)
{
    pid_t gone = waitpid(-1, status, WNOHANG);
    if (gone) return gone;
    if (s->control) {
        control_come(s->control, comm_shared_come_to(s->shared));
        control_serve(s->control, 0);
        comm_shared_behind(s->shared, control_behind(s->control));
    }
    pause_ns(MOMENT_NS);
    return 0;
}

bool small_supervisor_wait_all(SmallSupervisor *s, pid_t *pid, int count, int stays, bool (*have_ended)(const void *of),
                               const void *of)
{
    bool found = false;
    for (int left = count, status; left > 0;) {
        if (stays >= 0 && stays < count && pid[stays] > 0 && have_ended(of)) kill(pid[stays], SIGKILL);
        pid_t gone = small_supervisor_wait(s, &status);
        for (int i = 0; i < count && gone; i++) {
            if (pid[i] != gone) continue;
            pid[i] = 0;
            left--;
            found |= WIFEXITED(status) && WEXITSTATUS(status);
            if (WIFSIGNALED(status)) comm_shared_abort(s->shared, i);
        }
    }
    return found;
}

void small_supervisor_end(SmallSupervisor *s)
{
    const ControlEnd mine = {0};
    ControlEnd all;
    while (s->control && !control_end(s->control, &mine, &all)) {
        control_serve(s->control, 0);
        pause_ns(MOMENT_NS);
    }
    control_close(s->control);
}
