/* A link that a process of its own keeps for leaders that follow each other (comm_carrier_start). Internal to
 * nccl_sync. */
#pragma once

#include "nccl_sync/link.h"

/* Fork the process, which opens its link when the first leader asks for one. `place`: that of the node's leader. */
NODISCARD Status carrier_start(LinkOpen open, const Placement *place, struct ControlPlane *control, Carrier **made);
/* The link of config->carrier, after that of the leader before this one has been closed. */
NODISCARD Status link_carried_open(const CommConfig *config, Link **made);
