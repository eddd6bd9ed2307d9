/* The search for the first number that is not finite; see forensics.h. */
#include "towers/forensics.h"

#include "towers/capsule.h"
#include "towers/trace.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { IDS_TOLD = 8 };

/* ---- the report: lines, each behind a newline */

static void report_add(LedgerSearch *search, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void report_add(LedgerSearch *search, const char *format, ...)
{
    size_t used = strlen(search->report);
    va_list args;
    va_start(args, format);
    if (used + 1 < sizeof search->report) {
        search->report[used++] = '\n';
        vsnprintf(search->report + used, sizeof search->report - used, format, args);
    }
    va_end(args);
}

static void report_finding(LedgerSearch *search, const char *start)
{
    char text[512];
    finding_text(&search->found, text, sizeof text);
    report_add(search, "%s%s", start, text);
}

static void report_samples(const TowerProcess *p, LedgerSearch *search, const Batch *batch)
{
    char where[512], ids[IDS_TOLD * 21 + 1] = "";
    if (search->found.samples) {
        dataset_where(p->job->train, search->found.sample, where, sizeof where);
        report_add(search, "  in %d of %d samples, the first is number %lld (%s)", search->found.samples, batch->n,
                   (long long)search->found.sample, where);
    }
    for (int32_t i = 0; i < batch->n && i < IDS_TOLD; i++)
        snprintf(ids + strlen(ids), sizeof ids - strlen(ids), " %lld", (long long)batch->ids[i]);
    dataset_where(p->job->train, batch->ids[0], where, sizeof where);
    report_add(search, "  samples of the tower:%s%s (%d in all; the first: %s)", ids, batch->n > IDS_TOLD ? " ..." : "",
               batch->n, where);
}

/* ---- running the step again */

/* The batches that the tower had in the step, from the data set: what a batch holds follows from its number. */
static Status loader_again(const TowerProcess *p, const Refusal *refusal, Loader **made)
{
    LoaderConfig config = process_loader(p);
    config.first_tower = refusal->tower;
    config.local = 1;
    config.start_step = job_first_batch(p->job, refusal->step - 1);
    config.max_steps = job_first_batch(p->job, refusal->step);
    config.workers = 0;
    return loader_create(&config, made);
}

/* *batch is the one that shows it, or the last of the step. */
static Status batches_trace(TowerProcess *p, const Refusal *refusal, Loader *loader, Finding *found,
                            const Batch **batch)
{
    int64_t batches = job_first_batch(p->job, refusal->step) - job_first_batch(p->job, refusal->step - 1),
            patience_ns = p->job->comm_timeout_ms * 1000000 / 2, deadline_ns = clock_ns() + patience_ns;
    for (int64_t b = 0; b < batches && (b == 0 || found->place == FOUND_NOTHING); b++) {
        TRY(loader_next(loader, batch));
        TraceJob job = {.replica = p->replica,
                        .tower = refusal->tower,
                        .slot = refusal->tower - p->first,
                        .step = refusal->step,
                        .seed = p->job->seed,
                        .scale = refusal->scale,
                        .batch = *batch,
                        .deadline_ns = deadline_ns};
        if ((*batch)->n && found->place == FOUND_NOTHING) TRY(trace_run(&job, found));
    }
    return OK;
}

static void capsule_make(TowerProcess *p, const Refusal *refusal, const Batch *batch, LedgerSearch *search)
{
    char path[PATH_BYTES];
    if (!p->job->run_dir) return;
    Status st = capsule_write(p, batch, refusal->scale, &search->found, path);
    if (st == OK && *path)
        report_add(search, "  capsule: towers replay %s", path);
    else
        report_add(search, "  no capsule: %s", st == OK ? "there are enough of them" : status_message());
}

static void report_place(LedgerSearch *search, Status traced)
{
    if (traced != OK)
        report_add(search, "  running the tower's batch again failed: %s", status_message());
    else if (search->found.place == FOUND_NOTHING)
        report_add(search, "  the tower's batch, run again op by op, gives finite numbers only: neither weights nor "
                           "data explain it (an error of the hardware, or of the sum over several batches)");
    else
        report_finding(search, "  first in ");
}

/* Weights that are spoilt explain everything; statistics and slots do not explain a step, which does not read them. */
static Status step_search(TowerProcess *p, const Refusal *refusal, LedgerSearch *search)
{
    Status st = OK;
    Loader *loader = NULL;
    const Batch *batch = NULL;
    Finding state;
    TRY(trace_state(p->replica, p->first, refusal->tower - p->first, &state));
    if (state.place == FOUND_WEIGHT) search->found = state;
    TRY_OUT(loader_again(p, refusal, &loader));
    Status traced = batches_trace(p, refusal, loader, &search->found, &batch);
    if (search->found.place == FOUND_NOTHING) search->found = state;
    search->found.tower = refusal->tower;
    search->found.step = refusal->step;
    report_place(search, traced);
    if (!batch || !batch->n) goto out;
    capsule_make(p, refusal, batch, search);
    report_samples(p, search, batch);
out:
    loader_destroy(loader);
    return st;
}

static Status moved_search(TowerProcess *p, const Refusal *refusal, LedgerSearch *search)
{
    TRY(trace_state(p->replica, p->first, refusal->tower - p->first, &search->found));
    search->found.step = refusal->step;
    if (search->found.place != FOUND_NOTHING) report_finding(search, "  after the update: ");
    return OK;
}

static Status sum_search(TowerProcess *p, const Refusal *refusal, LedgerSearch *search)
{
    TRY(trace_gradients(p->replica, FOUND_SUM, &search->found));
    search->found.step = refusal->step;
    if (search->found.place != FOUND_NOTHING) report_finding(search, "  first in ");
    return OK;
}

Status forensics_search(TowerProcess *p, const Refusal *refusal)
{
    LedgerSearch *search = &p->ledger->search;
    int tower = refusal->tower < 0 ? 0 : refusal->tower;
    if (tower >= p->first && tower < p->first + p->local) {
        *search = (LedgerSearch){.found = {.tower = -1, .op = -1}};
        Status st = refusal->tower < 0 ? sum_search(p, refusal, search)
                    : refusal->moved   ? moved_search(p, refusal, search)
                                       : step_search(p, refusal, search);
        if (st != OK) report_add(search, "  the search for the cause failed: %s", status_message());
    }
    return comm_barrier(p->comm);
}

/* ---- state that is to be kept */

Status forensics_state(TowerProcess *p, bool *finite)
{
    Finding found;
    int first = -1;
    TRY(trace_state(p->replica, p->first, -1, &found));
    for (int rank = 0; rank < p->job->processes; rank++) {
        char bad = found.place != FOUND_NOTHING;
        TRY(comm_broadcast(p->comm, &bad, 1, rank));
        if (bad && first < 0) first = rank;
    }
    *finite = first < 0;
    if (first < 0) return OK;
    if (first == p->rank) {
        found.step = p->run.step;
        p->ledger->search = (LedgerSearch){.found = found};
        report_finding(&p->ledger->search, "");
    }
    return comm_barrier(p->comm);
}
