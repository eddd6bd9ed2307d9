/* A graph, its plan on the fake backend, and a run that tracks every element: each op writes a unique pattern, CONCAT,
 * SLICE and RESHAPE move patterns, and every operand must hold its value's pattern. This reveals storage that is shared
 * by mistake, moved wrongly or reused too early. */
#pragma once

#include "tests/support/fake_backend.h"
#include "towers/graph/plan.h"

typedef struct PlanRun {
    FakeBackend *fake;
    Device device;
    Graph *graph;
    Layout *layout;
    Plan *plan;
    void *arena[ARENA_COUNT];
    uint8_t **expected; /* [values + 1]: packed elements */
    int errors;
    char why[256]; /* the first error */
} PlanRun;

enum { ALL_OPERANDS = 0xff };

/* All masks set, an f32 training graph without ops. */
void plan_run_open(PlanRun *run);
void plan_run_close(PlanRun *run);
/* Layout, plan and arenas of what is in the graph by now; fails the test on an error. */
void plan_run_create(PlanRun *run, bool no_alias);
/* Plan again (other options, masks, layout): the old plan and arenas go. */
void plan_run_again(PlanRun *run, bool no_alias);
/* Run all ops and check every operand of every op, and what is kept for the host afterwards; fails the test on an
 * error. */
void plan_run_check(PlanRun *run);
