/* Append to the lists of samples; see samples_log.h. */
#include "towers/train/samples_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "towers/files/csv.h"
#include "towers/files/files.h"

enum { NOTES = 5 /* bad samples that the console shows */ };

/* A single write to a file that several processes have open for appending, so that lines stay intact. */
static Status text_append(const TowerProcess *p, const char *name, const char *text, size_t bytes)
{
    char path[PATH_BYTES], file[64];
    /* Appending to one file from several hosts could tear lines, and they may not see the same one. */
    if (p->place.group > 0) snprintf(file, sizeof file, "rank%d-%s", p->place.group, name);
    TRY(path_join(path, p->job->run_dir, p->place.group > 0 ? file : name));
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    ssize_t put = fd < 0 ? -1 : write(fd, text, bytes);
    int code = errno;
    if (fd >= 0) close(fd);
    if (put == (ssize_t)bytes) return OK;
    return FAIL(ERR_IO, "cannot write '%s': %s", path, put < 0 ? strerror(code) : "the disk is full");
}

static Status bad_print(TowerProcess *p, const Batch *batch, const char *when)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);
    if (!to) return FAIL(ERR_MEMORY, "no memory for the list of bad samples");
    for (int32_t i = 0; i < batch->skipped; i++) {
        const BadSample *bad = &batch->bad[i];
        fprintf(to, "%s,%d,%lld,", when, batch->tower, (long long)bad->id);
        csv_text(to, bad->why);
        fputc('\n', to);
    }
    Status st = fclose(to) == 0 ? text_append(p, BAD_SAMPLES_FILE, text, bytes)
                                : FAIL(ERR_MEMORY, "no memory for the list of bad samples");
    free(text);
    return st;
}

Status bad_samples_log(TowerProcess *p, const Batch *batch, const char *when)
{
    for (int32_t i = 0; i < batch->skipped && p->bad_noted < NOTES; i++, p->bad_noted++)
        ledger_note(p->ledger, "skipped: %s", batch->bad[i].why);
    return batch->skipped > 0 && p->job->run_dir ? bad_print(p, batch, when) : OK;
}

Status rotated_note(TowerProcess *p, int64_t rotated, int64_t count, const char *kind)
{
    char text[256];
    if (rotated == 0 || p->rotated_noted || p->job->data.train.exif) return OK;
    p->rotated_noted = true;
    snprintf(
        text, sizeof text,
        "%lld of %lld %s images are stored rotated (EXIF orientation) and are used as stored, as torchvision does; "
        "--exif rotates them upright",
        (long long)rotated, (long long)count, kind);
    ledger_note(p->ledger, "%s", text);
    return process_log(p, "%s", text);
}

Status samples_log(TowerProcess *p, const Batch *batch, int64_t step)
{
    char when[32], *text = NULL;
    size_t bytes = 0;
    snprintf(when, sizeof when, "%lld", (long long)step);
    TRY(bad_samples_log(p, batch, when));
    atomic_fetch_add(&p->ledger->run.images, batch->n);
    atomic_fetch_add(&p->ledger->run.rotated, batch->rotated);
    if (!p->job->data.log_samples || !p->job->run_dir || batch->n == 0) return OK;
    FILE *to = open_memstream(&text, &bytes);
    if (!to) return FAIL(ERR_MEMORY, "no memory for the list of samples");
    fprintf(to, "%s,%lld,%d,", when, (long long)batch->step, batch->tower);
    for (int32_t i = 0; i < batch->n; i++) fprintf(to, "%s%lld", i ? " " : "", (long long)batch->ids[i]);
    fputc('\n', to);
    Status st = fclose(to) == 0 ? text_append(p, SAMPLES_FILE, text, bytes)
                                : FAIL(ERR_MEMORY, "no memory for the list of samples");
    free(text);
    return st;
}
