/* File names and format versions of a capsule, shared by its writer and its reader. */
#pragma once

/* "format" in state.json. Augmentation records have 16 words in format 2 and 4 words in format 1. */
#define CAPSULE_FORMAT "towers capsule 2"
#define CAPSULE_FORMAT_1 "towers capsule 1"
enum { CAPSULE_RECORD_1 = 4 };
#define CAPSULE_BATCH "batch.safetensors"
#define CAPSULE_MODEL "model.safetensors"
#define CAPSULE_TRAIN "train.safetensors"
#define CAPSULE_STATE "state.json"
