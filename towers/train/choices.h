/* What devices choose by time (Backend.choices_text), chosen once for a whole run.
 *
 * Timing differs from device to device and from run to run, and with it the kernels and so the bits. Rank 0 chooses for
 * all batch sizes of all towers, keeps its choices in RUN/plans.txt and sends them to the others. A resumed run takes those
 * of its run directory. A device that cannot (another GPU, another version of a library) chooses for itself, which the
 * log says. Devices that choose nothing by time exchange nothing. */
#pragma once

#include "towers/replica/tower_process.h"

/* Build the opened replica of this process with the choices of rank 0. Collective. */
NODISCARD Status choices_build(TowerProcess *p);
