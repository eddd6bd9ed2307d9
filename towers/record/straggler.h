/* Straggler: the tower that all others wait for, and the activity in which it loses the time. All towers' steps last
 * equally long, because each ends with the all-reduce; they differ in the time until they arrive at it.
 *
 * Robust and relative: a tower is slow in an activity if over a window of steps the median of (its time - what the
 * others' median needs for as many samples) is above SLOW_SHARE of a step's work and SLOW_LEAST (a time slice of a busy
 * machine), if it is above half of that in 34 of 40 steps, and if its work as a whole takes longer than the others'. A
 * single disturbance, or noise that affects the towers in turn, names no tower. A tower is named if two windows in a
 * row agree, or six on a machine with more runnable threads than cores, where a healthy tower may lack a core for
 * seconds. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { STRAGGLER_WINDOW = 40, STRAGGLER_ACTIVITIES = 4 };

/* One tower, one step. */
typedef struct StragglerTimes {
    double seconds[STRAGGLER_ACTIVITIES]; /* data, copy, forward, backward */
    int64_t samples;
} StragglerTimes;

typedef struct Straggler {
    int tower;              /* -1: none */
    int activity;           /* 0 .. STRAGGLER_ACTIVITIES - 1 */
    double seconds, others; /* medians: its time in the activity, the others' for as many samples */
} Straggler;

const char *straggler_activity_name(int activity);

/* Searches one window: times[step * towers + tower], at most STRAGGLER_WINDOW steps and any number of towers. */
Straggler straggler_find(const StragglerTimes *times, int steps, int towers);

/* State from window to window. */
typedef struct StragglerWatch {
    Straggler before; /* of the last window */
    Straggler named;  /* enough windows agreed; tower -1: nobody */
    int agreed;       /* windows in a row, up to the last one, that found the same */
    int64_t noted;    /* step of the last note about it */
} StragglerWatch;

typedef enum StragglerChange { STRAGGLER_SAME = 0, STRAGGLER_NAMED, STRAGGLER_GONE } StragglerChange;

void straggler_start(StragglerWatch *watch);
/* Whether the load of the last minute exceeds the machine's cores. */
bool straggler_machine_loaded(double load, int cores);
/* STRAGGLER_NAMED: report watch->named, now and every STRAGGLER_REMIND steps; STRAGGLER_GONE: it is no longer slow. */
enum { STRAGGLER_REMIND = 1000 };
enum { STRAGGLER_AGREE = 2, STRAGGLER_AGREE_LOADED = 6 }; /* windows */
StragglerChange straggler_window(StragglerWatch *watch, const Straggler *found, bool loaded, int64_t step);
