/* The per-thread error message and its trace; see status.h. */
#include "kernels/base/text.h"

static _Thread_local char message[STATUS_MESSAGE_BYTES];
static _Thread_local char trace[STATUS_TRACE_BYTES];

static const struct {
    const char *name;
    int exit_code;
} codes[STATUS_COUNT] = {
    [OK] = {"OK", 0},
    [ERR_ARG] = {"ERR_ARG", 2},
    [ERR_SHAPE] = {"ERR_SHAPE", 2},
    [ERR_MEMORY] = {"ERR_MEMORY", 5},
    [ERR_IO] = {"ERR_IO", 6},
    [ERR_FORMAT] = {"ERR_FORMAT", 3},
    [ERR_CHECKPOINT] = {"ERR_CHECKPOINT", 4},
    [ERR_NEWER] = {"ERR_NEWER", 4},
    [ERR_DEVICE] = {"ERR_DEVICE", 5},
    [ERR_COMM] = {"ERR_COMM", 7},
    [ERR_NUMERIC] = {"ERR_NUMERIC", 8},
    [ERR_UNSUPPORTED] = {"ERR_UNSUPPORTED", 5},
    [ERR_INTERRUPTED] = {"ERR_INTERRUPTED", 130},
    [ERR_INTERNAL] = {"ERR_INTERNAL", 1},
};

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void trace_add(const char *file, int line, const char *call)
{
    Text text = text_behind(trace, sizeof trace);
    text_add(&text, "  via %s:%d %s\n", file_name(file), line, call);
}

/* The beginning of a text that is too long for a message, and its length. */
static void clipped_put(FILE *to, const char *text)
{
    enum { SHOWN = 400, LONG = 800 };
    size_t bytes = strlen(text);
    if (bytes > LONG)
        fprintf(to, "%.*s... (%zu bytes)", SHOWN, text, bytes);
    else
        fputs(text, to);
}

/* A message that does not fit, with its longest texts cut: what follows them, the cause and the remedy, is more than they are. */
static void message_shorten(char text[STATUS_MESSAGE_BYTES], const char *format, va_list args)
{
    char *whole = NULL;
    size_t bytes;
    FILE *to = open_memstream(&whole, &bytes);
    if (!to) return;
    text_vput(to, clipped_put, format, args);
    if (fclose(to) == 0) snprintf(text, STATUS_MESSAGE_BYTES, "%s", whole);
    free(whole);
}

Status status_fail(Status code, const char *file, int line, const char *format, ...)
{
    char text[STATUS_MESSAGE_BYTES]; /* the arguments may point into `message` itself */
    va_list args;
    va_start(args, format);
    int bytes = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    va_start(args, format);
    if (bytes >= (int)sizeof text) message_shorten(text, format, args);
    va_end(args);
    text_escape(message, sizeof message, text);
    trace[0] = 0;
    trace_add(file, line, status_name(code));
    return code;
}

Status status_via(Status code, const char *file, int line, const char *call)
{
    trace_add(file, line, call);
    return code;
}

const char *status_message(void)
{
    return message;
}

const char *status_trace(void)
{
    return trace;
}

void status_keep(StatusText *kept)
{
    memcpy(kept->message, message, sizeof message);
    memcpy(kept->trace, trace, sizeof trace);
}

Status status_restore(Status code, const StatusText *kept)
{
    memcpy(message, kept->message, sizeof message);
    memcpy(trace, kept->trace, sizeof trace);
    return code;
}

const char *status_name(Status code)
{
    return (unsigned)code < STATUS_COUNT ? codes[code].name : "unknown status";
}

int status_exit_code(Status code)
{
    return (unsigned)code < STATUS_COUNT ? codes[code].exit_code : 1;
}

int ending_exit_code(Status code, const Ending *ending)
{
    if (code != ERR_INTERRUPTED || !ending->signal) return status_exit_code(code);
    return ending->coded ? ending->signal_code : 128 + ending->signal;
}

void status_print(FILE *to, Status code, int with_trace)
{
    fputs("error: ", to);
    text_print(to, message);
    fprintf(to, "%s\n", message[0] ? "" : status_name(code));
    if (with_trace) fputs(trace, to);
}
