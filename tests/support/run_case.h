/* Run one row of a case table on a device, in one dtype, in every storage that the kernel allows, against the
 * reference. */
#pragma once

#include "kernels/backend.h"
#include "tests/support/cases.h"

typedef struct CaseReport {
    int runs, failures, unsupported;
    double worst; /* largest error relative to its tolerance: 1 is the limit */
    double error; /* and the error itself, relative to the magnitude */
} CaseReport;

/* Adds to `report`; prints one line for every run that fails. */
void run_case(Device *device, const Case *row, Dtype dtype, CaseReport *report);
/* Every row of this kind in all tables; returns how many there are. */
int run_cases(Device *device, OpKind kind, Dtype dtype, CaseReport *report);
