/* Append to the lists of samples; see samples_log.h. */
#include "towers/train/samples_log.h"

#include <dirent.h>

#include "kernels/base/place.h"
#include "towers/files/csv.h"
#include "towers/files/files.h"
#include "towers/record/lines.h"

enum { NOTES = 5 /* bad samples that the console shows */ };

/* Appending to one file from several hosts could tear lines, and they may not see the same one. */
static Status list_path(const TowerProcess *p, const char *name, char path[PATH_BYTES])
{
    char file[64];
    if (p->place.node > 0) snprintf(file, sizeof file, "rank%d-%s", p->place.node, name);
    return path_join(path, p->job->run_dir, p->place.node > 0 ? file : name);
}

static Status draft_append(const TowerProcess *p, const char *name, Draft *draft)
{
    char path[PATH_BYTES];
    TRY(draft_end(draft, OK));
    Status st = list_path(p, name, path);
    if (st == OK) st = run_file_append(path, draft->text, draft->bytes);
    free(draft->text);
    return st;
}

Status samples_sync(const TowerProcess *p)
{
    char path[PATH_BYTES];
    if (!leads_node(&p->place)) return OK;
    TRY(list_path(p, BAD_SAMPLES_FILE, path));
    (void)!run_file_sync(path); /* training goes on without it */
    TRY(list_path(p, SAMPLES_FILE, path));
    return p->job->data.log_samples ? run_file_sync(path) : OK;
}

/* ---- a run that goes on from an earlier step */

static const char evaluation[] = "evaluation ";

/* "STEP,..." or "evaluation STEP,...", which comes after that step: the number of a line, as last_line_kept has it. */
static int64_t list_line_step(const char *line, size_t count)
{
    size_t skip = sizeof evaluation - 1;
    bool behind = count > skip && memcmp(line, evaluation, skip) == 0;
    int64_t step = behind ? line_number(line + skip, count - skip) : line_number(line, count);
    return step < 0 ? -1 : 2 * step + behind;
}

static Status list_forget(const char *path, int64_t last, bool goes_on)
{
    bool moved;
    return goes_on ? lines_cut(path, last, list_line_step) : lines_set_aside(path, &moved);
}

/* Those of programs that an earlier start had: with fewer programs now, nobody else goes on with them. */
static Status other_lists_forget(const char *run_dir, int64_t last, bool goes_on)
{
    Status st = OK;
    char path[PATH_BYTES];
    struct dirent *entry;
    DIR *listing = place_list(run_dir);
    if (!listing) return FAIL(ERR_IO, "cannot list '%s': %s", run_dir, strerror(errno));
    while (st == OK && (entry = place_next(listing))) {
        int rank, prefix = 0;
        if (sscanf(entry->d_name, "rank%d-%n", &rank, &prefix) != 1 || !prefix) continue;
        if (strcmp(entry->d_name + prefix, SAMPLES_FILE) && strcmp(entry->d_name + prefix, BAD_SAMPLES_FILE)) continue;
        st = path_join(path, run_dir, entry->d_name);
        if (st == OK) st = list_forget(path, last, goes_on);
    }
    closedir(listing);
    return st;
}

Status samples_forget(TowerProcess *p, bool goes_on)
{
    static const char *const lists[] = {SAMPLES_FILE, BAD_SAMPLES_FILE};
    const char *run_dir = p->job->run_dir;
    char path[PATH_BYTES];
    int64_t last = last_line_kept(p);
    for (size_t i = 0; leads_node(&p->place) && run_dir && i < sizeof lists / sizeof *lists; i++) {
        TRY(list_path(p, lists[i], path));
        TRY(list_forget(path, last, goes_on));
    }
    TRY(comm_barrier(p->comm)); /* two programs that cut one file at a time would read beyond its end */
    if (p->place.rank == 0 && run_dir) TRY(other_lists_forget(run_dir, last, goes_on));
    return comm_barrier(p->comm);
}

/* ---- bad samples */

static Status bad_print(TowerProcess *p, const Batch *batch, const char *when)
{
    Draft draft;
    TRY(draft_begin(&draft, "the list of bad samples"));
    for (int32_t i = 0; i < batch->skipped; i++) {
        const BadSample *bad = &batch->bad[i];
        fprintf(draft.to, "%s,%d,%" PRId64 ",", when, batch->tower, bad->id);
        csv_text(draft.to, bad->why);
        fputc('\n', draft.to);
    }
    return draft_append(p, BAD_SAMPLES_FILE, &draft);
}

void bad_samples_log(TowerProcess *p, const Batch *batch, bool evaluates, int64_t step)
{
    char when[48];
    snprintf(when, sizeof when, "%s%" PRId64, evaluates ? evaluation : "", step);
    for (int32_t i = 0; i < batch->skipped && p->bad_noted < NOTES; i++, p->bad_noted++)
        ledger_note(p->ledger, "skipped: %s", batch->bad[i].why);
    if (batch->skipped == 0 || !p->job->run_dir || bad_print(p, batch, when) == OK || p->bad_lost) return;
    p->bad_lost = true;
    storage_note(p, "the list of bad samples", step);
}

void rotated_note(TowerProcess *p, int64_t rotated, int64_t count, const char *kind)
{
    char text[256];
    if (rotated == 0 || p->rotated_noted || p->job->data.train.exif || p->job->surveyed) return;
    p->rotated_noted = true;
    snprintf(text, sizeof text,
             "%" PRId64 " of %" PRId64 " %s images are stored rotated (EXIF orientation) and are used as stored, as "
             "torchvision does; --exif rotates them upright",
             rotated, count, kind);
    ledger_note(p->ledger, "%s", text);
    process_log(p, "%s", text);
}

Status samples_log(TowerProcess *p, const Batch *batch, int64_t step)
{
    Draft draft;
    bad_samples_log(p, batch, false, step);
    atomic_fetch_add(&p->ledger->run.images, batch->n);
    atomic_fetch_add(&p->ledger->run.rotated, batch->rotated);
    if (!p->job->data.log_samples || !p->job->run_dir || batch->n == 0) return OK;
    TRY(draft_begin(&draft, "the list of samples"));
    fprintf(draft.to, "%" PRId64 ",%" PRId64 ",%d,", step, batch->step, batch->tower);
    for (int32_t i = 0; i < batch->n; i++) fprintf(draft.to, "%s%" PRId64, i ? " " : "", batch->ids[i]);
    fputc('\n', draft.to);
    return draft_append(p, SAMPLES_FILE, &draft);
}
