/* The tower processes of a supervisor; see children.h. */
#include "towers/supervisor/children.h"
#include "kernels/base/open.h"
#include "nccl_sync/hosts/control.h"
#include "towers/replica/norm_sync.h"
#include "towers/supervisor/stop_signals.h"

#include <sys/prctl.h>

Status children_create(const TrainJob *job, Children *c)
{
    Status st;
    Layout *layout;
    c->job = job;
    c->count = job->processes / job_nodes(job);
    c->first = job->node * c->count;
    c->child = calloc((size_t)c->count, sizeof *c->child);
    if (!c->child) {
        st = FAIL(ERR_MEMORY, "no memory for %d tower processes", c->count);
        c->count = 0;
        return st;
    }
    TRY(program_layout(&job->program, 1, &layout));
    size_t room = job_comm_room(job, layout);
    layout_destroy(layout);
    TRY(ledger_create(job->local_batches.towers, job->processes, &c->ledger));
    if (job->test)
        TRY(ledger_samples(c->ledger, source_info(job->test)->count,
                           job->program.multi_label || job->keep_scores ? job->program.options.classes : 0));
    Placement last = job_placement(job, c->first + c->count - 1);
    int towers = last.first_tower + last.local_towers - job_placement(job, c->first).first_tower;
    return comm_shared_create(towers, c->count, room, &c->shared);
}

/* What process r does, in place of this one. */
static _Noreturn void child_run(const Children *c, int r, pid_t parent, TowerMain tower_main, const sigset_t *mask)
{
    char name[16];
    control_forget(c->job->control);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* towers never outlive their supervisor */
    if (getppid() != parent) _exit(1);
    snprintf(name, sizeof name, "tower%d", job_placement(c->job, c->first + r).first_tower);
    prctl(PR_SET_NAME, name);
    stop_signals_leave(c->job, c->ledger);
    signal(SIGHUP, SIG_IGN); /* a closed terminal does not end a run */
    sigprocmask(SIG_SETMASK, mask, NULL);
    Status st = tower_main(c->job, c->first + r, c->ledger, c->shared);
    fflush(NULL);
    comm_exit(st == OK ? 0 : status_exit_code(st));
}

Status children_start(Children *c, TowerMain tower_main, const sigset_t *mask)
{
    pid_t parent = getpid();
    fflush(NULL);
    for (int r = 0; r < c->count; r++) {
        pid_t pid = fork();
        if (pid < 0)
            return FAIL(
                ERR_MEMORY,
                "cannot start tower process %d of %d: %s (a limit on processes, as ulimit -u or a container's?)", r + 1,
                c->count, strerror(errno));
        if (pid == 0) child_run(c, r, parent, tower_main, mask);
        c->child[r].pid = pid;
        c->alive++;
    }
    return OK;
}

void children_free(Children *c)
{
    free(c->child);
    c->child = NULL;
    c->count = 0;
}

void children_kill(Children *c)
{
    if (!c->killed_ns) c->killed_ns = clock_ns();
    for (int r = 0; r < c->count; r++)
        if (c->child[r].pid > 0) kill(c->child[r].pid, SIGKILL);
}

ChildPlace child_place(const Children *c, int r)
{
    ChildPlace at;
    int rank = c->first + r;
    Placement place = job_placement(c->job, rank);
    int tower = place.first_tower;
    for (int t = tower + 1; is_local_tower(&place, t); t++)
        if (atomic_load(&c->ledger->tower[t].heartbeat_ns) > atomic_load(&c->ledger->tower[tower].heartbeat_ns))
            tower = t;
    const LedgerTower *row = &c->ledger->tower[tower];
    const ProgressSlot *progress = comm_shared_progress(c->shared, r);
    bool here = atomic_load(&progress->at_ns) > atomic_load(&row->heartbeat_ns);
    snprintf(at.text, sizeof at.text, "tower %d (process %d), step %" PRId64 ", activity %s%s%.47s", tower, rank,
             atomic_load(&row->step), activity_name((Activity)atomic_load(&row->activity)), here ? ", after " : "",
             here ? progress->what : "");
    return at;
}

static int64_t last_of(const Children *c, int r, int64_t progress_ns)
{
    int64_t last = progress_ns;
    Placement place = job_placement(c->job, c->first + r);
    for (int t = place.first_tower; is_local_tower(&place, t); t++) {
        int64_t beat = atomic_load(&c->ledger->tower[t].heartbeat_ns);
        if (beat > last) last = beat;
    }
    return last;
}

/* By a signal or a debugger; see proc(5): the state is the field after the command name, which stands in parentheses. */
static bool is_stopped(pid_t pid)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    if (!system_text(path, text, sizeof text)) return false;
    const char *bracket = strrchr(text, ')');
    return bracket && (strncmp(bracket, ") T", 3) == 0 || strncmp(bracket, ") t", 3) == 0);
}

int64_t child_life(const Children *c, int r)
{
    const ProgressSlot *slot = comm_shared_progress(c->shared, r);
    return last_of(c, r, child_storage(c, r) ? clock_ns() : atomic_load(&slot->at_ns));
}

int64_t child_storage(const Children *c, int r)
{
    int64_t since = progress_storage(comm_shared_progress(c->shared, r));
    return since && !is_stopped(c->child[r].pid) ? since : 0;
}

static bool waits_for_others(const Children *c, int r)
{
    Placement place = job_placement(c->job, c->first + r);
    for (int t = place.first_tower; is_local_tower(&place, t); t++)
        if (atomic_load(&c->ledger->tower[t].activity) == ACTIVITY_REDUCE) return true;
    return comm_shared_waiting(c->shared, r);
}

bool child_loads(const Children *c, int r)
{
    int tower = job_placement(c->job, c->first + r).first_tower;
    return !waits_for_others(c, r) && atomic_load(&c->ledger->tower[tower].activity) == ACTIVITY_DATA;
}

void children_look(Children *c, int64_t now)
{
    for (int r = 0; r < c->count; r++)
        if (c->child[r].pid && waits_for_others(c, r)) c->child[r].waited_ns = now;
}

int children_silent(const Children *c, int64_t now, int64_t limit)
{
    int64_t worst = 0;
    int silent = -1;
    bool waits = false, alive = false;
    for (int r = 0; r < c->count; r++) {
        if (!c->child[r].pid) continue;
        bool waiting = waits_for_others(c, r);
        int64_t life = child_life(c, r), waited = waiting ? 0 : c->child[r].waited_ns;
        int64_t quiet = now - (life > waited ? life : waited), weight = quiet - (waiting ? limit / 2 : 0);
        alive |= quiet <= limit;
        if (quiet <= limit || weight <= worst) continue;
        worst = weight;
        silent = r;
        waits = waiting;
    }
    return waits && (alive || c->job->control) ? -1 : silent;
}

bool children_all_stalled(const Children *c, int64_t ns)
{
    for (int r = 0; r < c->count; r++) {
        if (!c->child[r].pid) continue;
        int64_t last = last_of(c, r, atomic_load(&comm_shared_progress(c->shared, r)->at_ns));
        if (clock_ns() - last < ns) return false;
    }
    return true;
}
