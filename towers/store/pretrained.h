/* Weights trained elsewhere: a file of torchvision, timm or an earlier run as a starting point for training, or for
 * evaluation or export. The network determines which names may be missing from the file or extra in it: an auxiliary
 * head as a whole and, with HEAD_RESET, the classifiers. */
#pragma once

#include "towers/graph/program.h"
#include "towers/store/weights.h"

typedef struct HeadNames {
    int count;                   /* classifiers: the main one, then the auxiliary ones */
    char weight[3][ST_MAX_NAME]; /* "fc.weight", "AuxLogits.fc.weight" */
    char bias[3][ST_MAX_NAME];   /* "fc.bias", or "": it has none */
    char gain[3][ST_MAX_NAME];   /* "fc.gain", a factor of each output of weights that are standardized; or "" */
    char layer[3][ST_MAX_NAME];  /* "fc.": all of it; "" of a network from a file, whose names say nothing of layers */
    char part[3][64];            /* "", "AuxLogits.": the whole auxiliary head */
} HeadNames;
/* Found in the graph at its canonical size, with all its heads. */
NODISCARD Status head_names(const ProgramConfig *config, HeadNames *heads);
/* The number of classes of a classifier in a file, by its weight ("fc.weight"); 0 if the file lacks it. */
int head_classes(const SafeTensors *file, const char *weight);

/* How classifiers are filled: read from the file; read, and an error suggests --reset-head if they do not fit; or left
 * at their initial values, narrowed to a deviation of 1 / sqrt(inputs). */
typedef enum HeadUse { HEAD_READ = 0, HEAD_READ_OR_RESET, HEAD_RESET } HeadUse;

/* What a user should know about weights that were read. */
typedef struct PretrainedNotes {
    char absent[256]; /* optional parts that the file lacks, or "" */
    WeightPart part;  /* which of its tensors are the network's */
} PretrainedNotes;

/* The tensors of a classifier in a file, found by its names (weight_part.h) and ProgramConfig.weights_key. */
NODISCARD Status pretrained_narrow(const ProgramConfig *config, HeadUse use, const char *path, SafeTensors *file,
                                   WeightPart *part);
NODISCARD Status pretrained_open(const ProgramConfig *config, HeadUse use, const char *path, SafeTensors **file,
                                 WeightPart *part);

/* Channels of the images of a network that adapts to its data (Model): from the metadata of a file, else from the first
 * weight of a classifier in it (pretrained_open), else the model's default. */
int32_t file_channels(const SafeTensors *file, const ProgramConfig *config);

/* Fill host arenas from a file; a tensor that the file does not have keeps its value. ERR_CHECKPOINT with a table if
 * anything else does not match or a tensor is spoiled. `notes` may be NULL. */
NODISCARD Status pretrained_read(const WeightMap *map, const ProgramConfig *config, const char *path, HeadUse use,
                                 float *params, float *running, PretrainedNotes *notes);

/* Checks on names that need no run: `path`, the weights file to start from (NULL: none), and the patterns of frozen
 * parameters (NULL: none). */
NODISCARD Status pretrained_check(const ProgramConfig *program, const char *path, bool reset_head,
                                  PretrainedNotes *notes);
