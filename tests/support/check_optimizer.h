/* Checks of the backend's functions that are not ops, against the reference; a failure fails the running cmocka
 * test. */
#pragma once

#include "kernels/backend.h"

void check_optimizers(Device *device); /* every kind, several steps long, with average and 16-bit copy */
void check_gate(Device *device);       /* a step that is not finite changes nothing, to the bit */
void check_state_counts(void);
void check_square_sum(Device *device);
void check_l2_term(Device *device);
void check_average(Device *device);
void check_memory(Device *device); /* alloc, fill, copies, describe */
