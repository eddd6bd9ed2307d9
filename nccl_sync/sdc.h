/* What a run does when its replicas no longer hold the same weights (silent data corruption: a flipped bit in a memory,
 * a transfer that lost something). */
#ifndef TOWERS_NCCL_SYNC_SDC_H
#define TOWERS_NCCL_SYNC_SDC_H

typedef enum SdcPolicy { SDC_POLICY_WARN = 0, SDC_POLICY_STOP, SDC_POLICY_ROLLBACK } SdcPolicy;

#endif
