/* Status: how every function of this project that can fail reports its result.
 *
 * Functions that can fail return `Status` and write results through pointers, only on success. The first failure is
 * described by FAIL(); each function on the way up adds itself with TRY() or TRY_OUT(). The message and the trace are
 * per thread and are read with status_message() and status_trace() where the failure is handled. Modelled on NCCL's
 * NCCLCHECK and NCCLCHECKGOTO. No function below main() exits or prints. */
#pragma once

/* The headers of the C library that most files need; who includes this file has them. */
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum Status {
    OK = 0,
    ERR_ARG,         /* the caller asked for something impossible (usage, configuration)            exit 2 */
    ERR_SHAPE,       /* shapes that do not fit together                                             exit 2 */
    ERR_MEMORY,      /* host or device memory                                                       exit 5 */
    ERR_IO,          /* storage: open, write, fsync, rename                                         exit 6 */
    ERR_FORMAT,      /* a data file that is not what it claims to be                                exit 3 */
    ERR_CHECKPOINT,  /* a checkpoint or weights file that cannot be used                            exit 4 */
    ERR_NEWER,       /* a checkpoint of a later version of this program, not known to be damaged            exit 4 */
    ERR_DEVICE,      /* device, driver, library                                                     exit 5 */
    ERR_COMM,        /* a peer tower left, or a collective ran past its deadline                    exit 7 */
    ERR_NUMERIC,     /* NaN, Inf, replicas that drifted apart                                       exit 8 */
    ERR_UNSUPPORTED, /* valid, but this build or device cannot do it                                exit 5 */
    ERR_INTERRUPTED, /* a signal asked for a stop; state was saved                                  exit 128 + signal */
    ERR_INTERNAL,    /* a bug of this program                                                       exit 1 */
    STATUS_COUNT
} Status;

#define NODISCARD __attribute__((warn_unused_result))

/* Describe a new failure and evaluate to its code. The message is one line, whatever names are in it: control characters
 * are escaped, but for the line breaks of a list, whose lines begin with two spaces. Replaces the thread's previous message
 * and clears its trace. FAIL and TRY evaluate to the code itself, not to what a function returns, so that a compiler knows
 * it is not OK and that results are written wherever OK is returned. */
#define FAIL(code, ...) (status_fail((code), __FILE__, __LINE__, __VA_ARGS__), (code))

/* Relay: return the code upward, adding this frame to the trace. */
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        Status try_status_ = (call);                                                                                   \
        if (try_status_ != OK) {                                                                                       \
            status_via(try_status_, __FILE__, __LINE__, #call);                                                        \
            return try_status_;                                                                                        \
        }                                                                                                              \
    } while (0)

/* Relay inside a function that owns things: needs a local `Status st` and one label `out:`. */
#define TRY_OUT(call)                                                                                                  \
    do {                                                                                                               \
        st = (call);                                                                                                   \
        if (st != OK) {                                                                                                \
            status_via(st, __FILE__, __LINE__, #call);                                                                 \
            goto out;                                                                                                  \
        }                                                                                                              \
    } while (0)

Status status_fail(Status code, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
Status status_via(Status code, const char *file, int line, const char *call);

/* The thread's current message ("" if none) and trace (one "via file:line call" per line). Borrowed; valid until the
 * thread's next FAIL or TRY. */
const char *status_message(void);
const char *status_trace(void);

/* A copy of a failure, kept while another call may fail or sent to another process. */
enum { STATUS_MESSAGE_BYTES = 2048, STATUS_TRACE_BYTES = 4096 };
typedef struct StatusText {
    char message[STATUS_MESSAGE_BYTES], trace[STATUS_TRACE_BYTES];
} StatusText;
void status_keep(StatusText *kept);
NODISCARD Status status_restore(Status code, const StatusText *kept); /* restores message and trace; returns code */

/* "ERR_IO", and the process exit code of docs/exit-codes (0 for OK). */
const char *status_name(Status code);
int status_exit_code(Status code);

/* How a command ends: the code with which its process exits, and which a run's outcome.json names, follows from this alone. */
typedef struct Ending {
    int signal; /* that asked for the end, or 0; it counts if the status is ERR_INTERRUPTED */
    bool coded; /* the state was saved, and `signal_code` is wanted in place of 128 + signal */
    int signal_code;
} Ending;
int ending_exit_code(Status code, const Ending *ending);

/* Print `error: message` and, with `trace`, the frames, to `to`. Control characters in the message are escaped. */
void status_print(FILE *to, Status code, int trace);
