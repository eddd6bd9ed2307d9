/* What the file of a network settles: its values are the weights to start from, its input is normalized as it says, and its end says
 * the loss. */
#pragma once

#include "inception/job/job.h"

/* Settles --pretrained, --mean, --std and --loss where they are open. ERR_ARG where the answers of a network would depend on an input that
 * nothing describes. */
NODISCARD Status own_network_settle(Options *options, const Model *model, JobFiles *files);
/* --norms restore: the network with batch norms. ERR_ARG if none is lacking, unless a run that has them goes on or is described. */
NODISCARD Status own_network_restore(const Options *options, const JobFiles *files, const Model **model);
/* Before weights are written that say how images are prepared: ERR_ARG if that was a guess. */
NODISCARD Status own_network_described(const Options *options, const Model *model);
/* Notes what a person should know of it before it is trained. */
void own_network_say(const Options *options, JobFiles *files);
/* The classes are known now: if they are more or fewer than the file's, the classifier is not its. */
void own_network_head(const Options *options, JobFiles *files);
