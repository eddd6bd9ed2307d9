/* What is conspicuous about the images of a set before any of them is trained on: files that are empty or have no header of
 * an image, images that are stored rotated (EXIF), tiny, of one color, or gray of 16 bits, files of equal bytes (copies,
 * contradictions of classes, evaluation images that are also trained on, test images that are also evaluated on), classes of few images or of none,
 * and files that are left out.
 *
 * Of files the first 64 KiB are read, of shards a part of the samples whole. Images are decoded only where their size lets
 * one suspect a single color, and some of 16 bits, whose range is found. */
#pragma once

#include "towers/data/sources/source.h"
#include "towers/files/json.h"

typedef struct FindingsConfig {
    const Source *part[SPLITS]; /* borrowed; only that for training must be there */
    const char *turned;         /* what becomes of rotated images: "are turned upright" */
    int64_t most;    /* images of each part that are looked at, evenly spread; of shards SHARDS_LOOKED at most */
    int64_t decoded; /* images at most that are decoded for each of the two reasons */
    int examples;    /* files at most that are named of each kind */
    void (*progress)(void *context, int64_t done, int64_t all);
    void *context;
} FindingsConfig;

enum { SHARDS_LOOKED = 512 };

/* {"images": all, "looked": at how many, "findings": [{"kind", "left_out", "text", "count", "files": [...]}, ...]}, the gravest
 * first: what makes numbers wrong, what ends a run, what is good to know; then, with left_out true, what the readers have left
 * out (inventory.h). The caller owns it. ERR_MEMORY, ERR_DEVICE without threads. */
NODISCARD Status findings_make(const FindingsConfig *config, json_t **made);
