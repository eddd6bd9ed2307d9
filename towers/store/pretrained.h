/* Weights from elsewhere: a file of torchvision, timm or an earlier run as the start of a training, for evaluation or
 * for export. What a file may lack or have too much is decided here, from the network itself: auxiliary heads as a
 * whole; with HEAD_RESET its classifiers, too. */
#ifndef TOWERS_STORE_PRETRAINED_H
#define TOWERS_STORE_PRETRAINED_H

#include "towers/graph/program.h"
#include "towers/store/weights.h"

typedef struct HeadNames {
    int count;              /* classifiers: the main one, then the auxiliary ones */
    char classifier[3][64]; /* "fc.", "AuxLogits.fc." */
    char part[3][64];       /* "", "AuxLogits.": the whole auxiliary head */
} HeadNames;
/* From the graph at its canonical size, with all its heads. */
NODISCARD Status head_names(const ProgramConfig *config, HeadNames *heads);
/* Points into `heads`. */
WeightRules head_rules(const HeadNames *heads, bool reset_head);
/* The number of classes of a classifier ("fc.") in a file; 0 if the file lacks it. */
int head_classes(const SafeTensors *file, const char *classifier);

/* What becomes of the classifiers: read from the file; read, with --reset-head as a remedy if they do not fit; or left
 * at their starting values. */
typedef enum HeadUse { HEAD_READ = 0, HEAD_READ_OR_RESET, HEAD_RESET } HeadUse;

/* Fill host arenas from a file; what it does not have keeps its value. ERR_CHECKPOINT with a table unless everything
 * else matches and all values are finite. `absent` receives the optional parts that the file lacks, or "". */
NODISCARD Status pretrained_read(const WeightMap *map, const ProgramConfig *config, const char *path, HeadUse use,
                                 float *params, float *states, char *absent, size_t bytes);

/* Everything about names that can be refused before a run exists: a file of weights to start
 * from (path; NULL: none) and patterns of what stays frozen (NULL: none). */
NODISCARD Status pretrained_check(const ProgramConfig *program, const char *path, bool reset_head, char *absent,
                                  size_t bytes);

#endif
