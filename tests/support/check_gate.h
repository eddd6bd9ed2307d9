/* Checks of Backend.gate_extras and Backend.gate_decide that hold for every backend: the extras of a tower, the gates,
 * the latch after a step that ends the run, and the rule of the loss scale. */
#pragma once

#include "kernels/backend.h"

void check_extras(Device *device);
void check_gates(Device *device);
void check_halt(Device *device);
void check_loss_scale(Device *device);
void check_scalars(Device *device);
