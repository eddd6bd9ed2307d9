/* What a supervisor does for the processes of a node that a test forks: it waits for them, and its heartbeats tell the other nodes, which
 * tell it, who has not come to a collective. */
#pragma once

#include <sys/types.h>

#include "nccl_sync/comm.h"
#include "nccl_sync/hosts/control.h"

typedef struct SmallSupervisor {
    ControlPlane *control; /* owned; NULL: it sends no heartbeats */
    CommShared *shared;    /* borrowed */
} SmallSupervisor;

/* Meets the other nodes at a port of this machine; ends the process if they do not come. Behind the fork of the node's processes, or these
 * call control_forget. port: 0: it meets nobody. */
SmallSupervisor small_supervisor(int node, int nodes, int port, CommShared *shared);
/* The next process that has ended, and its status; 0, if none has within a moment, in which heartbeats are sent and taken. */
pid_t small_supervisor_wait(SmallSupervisor *s, int *status);
/* Waits for all: who is killed has left the run. The one of number `stays` (-1: none) does not end by itself, and is killed when
 * have_ended(of). Whether one has exited with another status than 0, as one does in which a sanitizer has found something. */
bool small_supervisor_wait_all(SmallSupervisor *s, pid_t *pid, int count, int stays, bool (*have_ended)(const void *of),
                               const void *of);
/* All nodes end together: the others may still meet, or wait for who is late. */
void small_supervisor_end(SmallSupervisor *s);
