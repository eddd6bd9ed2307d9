/* Checks of the parts of a backend that are no ops, against the reference: cmocka fails the running test. */
#ifndef TOWERS_TESTS_CHECK_OPTIMIZER_H
#define TOWERS_TESTS_CHECK_OPTIMIZER_H

#include "kernels/backend.h"

void check_optimizers(Device *device); /* every kind, several steps long, with average and 16-bit copy */
void check_gate(Device *device);       /* a step that is not finite changes nothing, to the bit */
void check_slot_counts(void);
void check_square_sum(Device *device);
void check_average(Device *device);
void check_memory(Device *device); /* alloc, fill, copies, describe */

#endif
