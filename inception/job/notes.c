/* Notes; see notes.h. */
#include "inception/job/notes.h"

#include "towers/store/pretrained.h"

void job_note(JobFiles *files, const char *format, ...)
{
    Text notes = text_behind(files->notes, sizeof files->notes);
    Draft line;
    va_list args;
    if (draft_begin(&line, "a note") != OK) return;
    va_start(args, format);
    text_vprintf(line.to, format, args);
    va_end(args);
    if (draft_end(&line, OK) == OK) text_add(&notes, "%s\n", line.text);
    free(line.text);
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
