/* What writer and reader of a capsule agree on: the names of its files. */
#ifndef TOWERS_GUARD_CAPSULE_FILES_H
#define TOWERS_GUARD_CAPSULE_FILES_H

#define CAPSULE_FORMAT "towers capsule 1" /* "format" in state.json */
#define CAPSULE_BATCH "batch.safetensors"
#define CAPSULE_MODEL "model.safetensors"
#define CAPSULE_TRAIN "train.safetensors"
#define CAPSULE_STATE "state.json"

#endif
