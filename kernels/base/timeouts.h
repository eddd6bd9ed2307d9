/* The times between parts of a run that watch each other: how often one looks, how long it waits, when it gives up. They stand
 * together, because most of them are meant to be smaller than another one, which the assertions below say. --comm-timeout, which the
 * user gives, is no constant: a tower or a program that has shown no sign of life for so long ends the run.
 *
 * Who waits: the calls of a communicator wait for other towers; a supervisor watches its towers; the supervisors of several programs
 * hold each other by a control plane; the leaders of several nodes report failures to each other. */
#pragma once

#include <assert.h>

enum {
    /* ---- looks */
    POLL_NS = 20000,         /* the first pause between polls (pause.h) */
    POLL_MAX_NS = 1000000,   /* the longest one where a sum may come at any time */
    MOMENT_NS = 1000000,     /* between looks at what comes soon: a process that ends, a link that opens */
    SAVE_LOOK_MS = 2,        /* at a checkpoint that is being written */
    CARRIER_IDLE_MS = 5,     /* at messages, by a carrier that has nothing in progress */
    CONTROL_SERVE_MS = 10,   /* at a control plane, between rounds that others may interrupt */
    OUTLET_LOOK_MS = 10,     /* at a stream that is read */
    DEVICE_TRY_LOOK_MS = 10, /* at a device that is being opened */
    TICK_MS = 50,            /* of a supervisor */
    HOLDER_LOOK_MS = 50,     /* at the towers of a trainer that has died */
    WAIT_LOOK_MS = 100,      /* of who waits in shared memory for the others of a node */
    CONTROL_LOOK_MS = 100,   /* of who waits for frames of a control plane, and between attempts to connect */
    DEVICE_WAIT_MS = 100,    /* for an event of a device */
    DEVICE_READ_MS = 1000,   /* between readings of the telemetry of devices */
    SWEEP_LOOK_MS = 200,     /* of a sweep, at its runs */
    NET_WAIT_MS = 1000,      /* for an answer, before the next look at what else is to do */
    FETCH_LOOK_MS = 100,     /* for room in a cache */
    BEGINNING_SECONDS = 10,  /* without a lock, until what has come of an object may make room for another */
    FETCH_LIFE_SECONDS = 1,  /* between signs of life of who waits for data from a server */
    PASSED_SECONDS = 10,     /* at least, for which a shard that comes slowly keeps those behind it from beginning */
    COMMAND_LOOK_MS = 50,    /* at checkpoints that are ready for a command, and at the command */
    COMMAND_SHOWN_MS = 1000, /* between drawings, on a terminal, of how long a command is waited for */
    CONTROL_BEAT_MS = 1000,  /* between signs of life of a program */
    HEARTBEAT_SECONDS = 10,  /* between writings of heartbeat.json, whose directory is looked at every second */

    /* ---- who was stopped, and who is late */
    SUSPENDED_MS = 1000, /* between two looks: who looks was stopped itself, and the others may have been (silence.h) */
    STORAGE_LIFE_MS = 100, /* a wait for storage whose end is a sign of life */
    LOOKED_MS = 4000,      /* a thread that waits looks every WAIT_LOOK_MS, but may get no processor for some time */
    JITTER_MS = 300,       /* of messages between supervisors */
    /* beyond --comm-timeout, for which a tower waits: its supervisor, which knows more about a silent one, is the first */
    SUPERVISOR_FIRST_MS = 1000,
    WARN_MS = 60000, /* silence before a warning, or the end of who has failed; at most half of --comm-timeout */
    STORAGE_REPORT_MS = 5000, /* without an answer of storage, before that is reported */
    STUCK_MS = 5000,          /* without progress, after a second stop signal */
    BLOCKED_MS = 10000,       /* after a second stop signal: for storage and for other nodes, at the end of a run */

    /* ---- meeting */
    NET_ATTEMPT_MS = 2000, /* to connect, or to look up a name */
    HELLO_MS = 2000,       /* for the handshake of a connection */
    MEET_LATE_MS = 2000,   /* for the others to come and learn that the programs do not agree */
    MEET_NOTE_MS = 5000,   /* of waiting, before it is said for whom */
    MEET_AGAIN_MS = 60000, /* until that is said again */
    /* without a sign of progress in the first collective of GPUs: they do not reach each other; unless --comm-timeout is given */
    FIRST_SUM_MS = 60000,
    DOCTOR_MEET_S = 60, /* of programs that only look whether they can meet, unless --comm-timeout is given */
    /* for the driver to say which GPUs there are: without persistence mode it initializes each first, seconds each */
    DEVICE_SEARCH_SECONDS = 180,

    /* ---- the end */
    DRAIN_MS = 1000,     /* for the leaders of other nodes to know of a failure */
    GRACE_MS = 1500,     /* for the other towers to end, after one has failed */
    LOOK_LATE_MS = 2000, /* a leader that has not looked for so long has not come to its collective */
    /* for heartbeats to say who is behind: to rank 0, and from there */
    BEHIND_MS = 2 * CONTROL_BEAT_MS + 4 * TICK_MS + JITTER_MS,
    CAUSE_MS = 3000,          /* for the cause of a failure to be reported, after its consequence */
    EXPLAIN_MS = 6000,        /* beside GRACE_MS, for a tower that lacks memory and looks for a batch that fits */
    CONTROL_FAILED_MS = 8000, /* for the results of the other programs, after a failure */
    AGREED_MS = 20000,        /* to leave, after all have agreed to */
    LEAVE_MS = 4000,          /* for a killed process to end; one that the kernel holds is left */
    /* for one with a GPU, which the driver takes back: more than 30 s were seen (sgl-project/sglang 36589) */
    DEVICE_LEAVE_MS = 60000,
    DEVICE_WATCH_LEAVE_SECONDS = 2, /* for the thread that watches devices */
    DEVICE_TRY_MS = 60000,          /* for a device to open: a lost one may hang its caller */
    CARRIER_END_MS = 10000,         /* for the other carriers to end, too */
    HOLDER_MS = 5000,               /* for the towers of a trainer that has died to end */
    CONTROL_FLUSH_MS = 1000,        /* for the last frames to leave */
    CONTROL_STALL_MS = 8000,        /* without progress of a file, and without a sign of life of rank 0 */
    CONTROL_FILES_MS = 120000,      /* for the files of all programs, which are brought before the results */
    OUTLET_STALL_MS = 1000,         /* for a reader of a stream to read something */
    OUTLET_LATE_MS = 20000,         /* for the thread that writes, on a busy machine, while the stream takes more */
    HEARTBEAT_LEAVE_MS = 1000,      /* for a heartbeat that storage delays */
    FILES_LEAVE_MS = 1000,          /* for a file of another node that storage delays */
    COMMAND_LEAVE_MS = 2000,        /* for a command to end after SIGTERM, before SIGKILL */
    COMMAND_SAID_MS = 2000,         /* of waiting for a command, before it is said */
    COMMAND_AGAIN_MS = 60000,       /* until that is said again */
    OUTCOME_ANSWER_MS = 2000,       /* for storage to take the outcome, before a warning */
    OUTCOME_WAIT_MS = 60000,        /* after that; --comm-timeout, if it is longer */
    RESTART_LONGEST_S = 60          /* between a crash and the next start; at first 1 s */
};

/* Who looks does so several times before anybody takes it for stopped or late. */
static_assert(POLL_NS < POLL_MAX_NS && POLL_MAX_NS < TICK_MS * 1000000, "pauses of polls are shorter than any wait");
static_assert(4 * TICK_MS + WAIT_LOOK_MS < SUSPENDED_MS, "who looks as ever was not stopped");
static_assert(10 * WAIT_LOOK_MS < LOOKED_MS && SUSPENDED_MS < LOOKED_MS, "who waits looks often enough");
static_assert(STORAGE_LIFE_MS < STUCK_MS, "a wait that has ended is known before anybody takes it for stuck");
static_assert(JITTER_MS < CONTROL_BEAT_MS, "beats differ by more than the delays of the network");
/* A supervisor finds a silent tower before the other towers do, which know less. */
static_assert(4 * TICK_MS + JITTER_MS < SUPERVISOR_FIRST_MS, "the supervisor times out first");
static_assert(OUTLET_STALL_MS < OUTLET_LATE_MS, "what nobody reads is not waited for as what is written late is");
static_assert(STUCK_MS < BLOCKED_MS, "towers are ended before the supervisor waits for nobody");
/* The cause of a failure travels before its consequences do. */
static_assert(DRAIN_MS < GRACE_MS, "leaders report a failure before they are killed");
static_assert(GRACE_MS < CAUSE_MS, "towers that end in consequence do so before the cause is given up");
static_assert(GRACE_MS + EXPLAIN_MS < CONTROL_FAILED_MS, "other programs wait for an explanation");
static_assert(CAUSE_MS < CONTROL_FAILED_MS, "the cause comes before the results are given up");
static_assert(CONTROL_FAILED_MS < AGREED_MS && LEAVE_MS < DEVICE_LEAVE_MS && OUTCOME_ANSWER_MS < OUTCOME_WAIT_MS,
              "who needs longer has longer");
static_assert(COMMAND_LEAVE_MS + 2 * COMMAND_LOOK_MS < LEAVE_MS && LEAVE_MS < HOLDER_MS,
              "a command has ended before its run, or the next trainer, gives up waiting for it");
static_assert(MEET_NOTE_MS < MEET_AGAIN_MS && NET_ATTEMPT_MS <= HELLO_MS, "one attempt is made before it is said");
