/* What writer and reader of a capsule agree on: the names of its files. */
#ifndef TOWERS_GUARD_CAPSULE_FILES_H
#define TOWERS_GUARD_CAPSULE_FILES_H

/* "format" in state.json. Records of augmentation have 16 words in 2 and had 4 in 1. */
#define CAPSULE_FORMAT "towers capsule 2"
#define CAPSULE_FORMAT_1 "towers capsule 1"
enum { CAPSULE_RECORD_1 = 4 };
#define CAPSULE_BATCH "batch.safetensors"
#define CAPSULE_MODEL "model.safetensors"
#define CAPSULE_TRAIN "train.safetensors"
#define CAPSULE_STATE "state.json"

#endif
