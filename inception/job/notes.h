/* What the person who started the command should know: lines that are collected while a job is made. */
#pragma once

#include "inception/job/job.h"

/* Adds a line to the notes. */
void job_note(JobFiles *files, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same, about an option that was settled (settle.h): who makes a job of these options once more passes the line on. */
void settled_note(JobFiles *files, const char *format, ...) __attribute__((format(printf, 2, 3)));
void settled_notes_pass(const JobFiles *from, JobFiles *to);
/* A line on stderr about which tensors of a file of weights are the network's, if not all of them as they are. Errors: if the
 * file cannot be read, or nothing says which (weight_part.h). */
NODISCARD Status job_weights_say(const TrainJob *job, const char *path);
