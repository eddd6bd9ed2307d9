/* Digests: compare all replicas bit for bit. */
#pragma once

#include "towers/replica/tower_process.h"

/* True if the replicas are to be compared after this step: every job->sdc_check steps, or with `now`. */
bool digest_is_due(const TowerProcess *p, bool now);
/* Compare all replicas. `drift` receives the difference (towers, tensor, element, values), or "" if they are equal. No
 * step may be in flight. Collective. */
enum { DRIFT_TEXT = LEDGER_MESSAGE / 2 };
NODISCARD Status digest_compare(TowerProcess *p, char drift[DRIFT_TEXT]);
/* The digest of this process's weights, optimizer states and weight average. Uses p->replica and p->scratch only. */
NODISCARD Status digest_replica(TowerProcess *p, uint64_t *digest);
