/* Stopping early, and the learning rate on a plateau: decided at the end of an epoch from the exact evaluation, and so
 * equally by all ranks. What they have seen is part of RunState.
 *
 * --patience N --min-delta D: end the run when the monitored number has not been better than its best by more than D
 * for N evaluations in a row. --stop-at V: end it when the number is V or better.
 * --stop-epoch N: end it after that epoch, with the schedule of the whole run; a run that is resumed within a later epoch
 * ends behind that later one. --sched plateau: PyTorch's
 * torch.optim.lr_scheduler.ReduceLROnPlateau with its eps of 1e-8; factor is --decay-rate. Evaluations during the
 * warm-up do not count for it. */
#pragma once

#include "towers/replica/tower_process.h"

/* Nothing is decided by evaluations in this job. */
bool stopping_is_off(const TrainJob *job);
/* The header's line about it; nothing if it is off. */
void stopping_print(const TrainJob *job, FILE *to);
/* One call of ReduceLROnPlateau.step(value). True if the rate falls. */
bool plateau_step(const StoppingRules *rules, const Schedule *schedule, bool higher, double value, Stopping *state);
/* Take the numbers of an epoch, if the monitored one was measured; may lower the learning rate. All ranks. */
void stopping_take(TowerProcess *p, const EpochRecord *epoch);
/* Do the rules end the run after this step, from what they have seen so far? Also after a resume. */
bool stopping_is_due(const TowerProcess *p);
/* If so, make it the last one and say why. All ranks. */
void stopping_decide(TowerProcess *p);
/* Has the monitored number reached --stop-at? */
bool stopping_has_reached(const TowerProcess *p);
