/* Watching the devices of a node's processes, from the supervisor: their telemetry once a second into the ledger, and the
 * errors that end a run. A thread of its own asks, because a driver whose device is lost may not answer; no tower is slowed. */
#pragma once

#include "towers/replica/job.h"

typedef struct DeviceWatch DeviceWatch;

/* Begin, after the towers were forked, to watch the devices of processes first .. first + count - 1. NULL: there is nothing to
 * watch, or it cannot be watched, which a note says. All are borrowed. */
DeviceWatch *device_watch_start(const TrainJob *job, Ledger *ledger, int first, int count);
/* The process, counted from `first`, whose device cannot go on, and why; else -1. */
int device_watch_failed(const DeviceWatch *watch, const char **why);
/* Ask it to end; whether it has; and leave it. NULL is fine. One that the driver blocks is left alone, and then the ledger must not be
 * freed: false. */
void device_watch_ask(DeviceWatch *watch);
bool device_watch_ended(const DeviceWatch *watch);
bool device_watch_leave(DeviceWatch *watch);
