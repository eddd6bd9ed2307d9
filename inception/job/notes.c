/* Notes; see notes.h. */
#include "inception/job/notes.h"

#include "towers/store/pretrained.h"

static void note_add(JobFiles *files, bool settled, const char *format, va_list args)
{
    Text notes = text_behind(files->notes, sizeof files->notes),
         kept = text_behind(files->settled, sizeof files->settled);
    Draft line;
    if (draft_begin(&line, "a note") != OK) return;
    text_vprintf(line.to, format, args);
    if (draft_end(&line, OK) == OK) {
        text_add(&notes, "%s\n", line.text);
        if (settled) text_add(&kept, "%s\n", line.text);
    }
    free(line.text);
}

void job_note(JobFiles *files, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    note_add(files, false, format, args);
    va_end(args);
}

void settled_note(JobFiles *files, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    note_add(files, true, format, args);
    va_end(args);
}

void settled_notes_pass(const JobFiles *from, JobFiles *to)
{
    Text notes = text_behind(to->notes, sizeof to->notes);
    text_add(&notes, "%s", from->settled);
}

Status job_weights_say(const TrainJob *job, const char *path)
{
    SafeTensors *file;
    WeightPart part;
    char text[PATH_BYTES + 1024];
    TRY(pretrained_open(&job->program, HEAD_READ, path, &file, &part));
    if (*weight_part_text(&part, path, text, sizeof text)) text_printf(stderr, "%s\n", text);
    safetensors_close(file);
    return OK;
}
