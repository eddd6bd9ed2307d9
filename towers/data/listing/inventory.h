/* Inventory: what a reader used of what it found, and what it left out and why. Every kind of data set fills the same
 * struct, so that a run, `towers data info` and the records show it for all of them alike.
 *
 * A reader collects what it leaves out in Skips, by reasons; of each reason the number, the first by name and the kinds
 * are kept (endings of files, or the names that other programs give). */
#pragma once

#include <jansson.h>

#include "kernels/base/status.h"

/* Their words are in inventory.c. A new one needs another INDEX_VERSION (index.h). */
typedef enum SkipReason {
    SKIP_KIND = 0,  /* files that are no images by their names */
    SKIP_LOOSE,     /* images beside the folders of the classes */
    SKIP_UNLISTED,  /* images in no row of a labels file */
    SKIP_NO_SHARD,  /* files that hold samples, but have not the name of a shard */
    SKIP_ABSENT,    /* shards that the names of others speak of, but that are not there */
    SKIP_UNGROUPED, /* images and labels in tars that belong to no sample */
    SKIP_REPLACED,  /* members of tars that a later one of the same name replaces */
    SKIP_FOREIGN,   /* what other programs leave behind (leftovers.h) */
    SKIP_BESIDE,    /* other files beside shards and IDX files */
    SKIP_MEMBER,    /* other members of tars */
    SKIP_LABEL,     /* labels of samples of tars that contradict the one that is taken */
    SKIP_REASONS
} SkipReason;

enum { SKIP_KINDS_BYTES = 512, SKIP_LINE_BYTES = 8192 };

/* What was left out for one reason. The strings are borrowed from the source, NULL where count is 0. */
typedef struct Skipped {
    int64_t count;
    const char *first; /* a path, or SHARD/MEMBER */
    const char *kinds; /* "5 .gif, 2 .bmp, 1 other" */
} Skipped;

typedef struct Inventory {
    int64_t used; /* samples of this part */
    Skipped skipped[SKIP_REASONS];
} Inventory;

int64_t inventory_skipped(const Inventory *inventory); /* for all reasons */
const char *skip_name(SkipReason why);                 /* "not-an-image", in records */
/* True for what a person may take for data of the set; the rest is usually there on purpose. */
bool skip_warns(SkipReason why);
/* "warning: 3 files are ignored (1 .heic, 2 .avif), the first is PATH; images are files that end in ...", with the remedy: of
 * a reason whose count is not 0. */
const char *skip_line(const Inventory *inventory, SkipReason why, char text[SKIP_LINE_BYTES]);
/* {"used": 8, "skipped": [{"why": "not-an-image", "count": 3, "kinds": "3 .heic", "first": "PATH"}]}; the caller owns it. NULL
 * without memory. */
json_t *inventory_json(const Inventory *inventory);

/* ---- collecting */

typedef struct SkipKinds SkipKinds;

typedef struct Skips {
    SkipKinds *of[SKIP_REASONS]; /* owned; NULL: none */
} Skips;

/* One more, FOLDER/NAME, whose kind is the ending of its name; `kind`, if not NULL, is its kind. ERR_MEMORY. */
NODISCARD Status skips_add(Skips *skips, SkipReason why, const char *kind, const char *folder, const char *name);
/* So many at once, of which `path` is the first. */
NODISCARD Status skips_add_many(Skips *skips, SkipReason why, const char *kind, const char *path, int64_t count);
NODISCARD Status skips_join(Skips *skips, const Skips *more);
int64_t skips_count(const Skips *skips, SkipReason why);
/* The first, and "5 .gif, 2 .bmp, 1 other"; "" if there is none. Borrowed until the next is added. */
const char *skips_first(const Skips *skips, SkipReason why);
const char *skips_kinds(const Skips *skips, SkipReason why);
/* Kind `k` of what was left out for a reason, and how many; NULL behind the last. */
const char *skips_kind_at(const Skips *skips, SkipReason why, int k, int64_t *count);
/* Fill the struct of a source, which owns the skips (NULL: none) as long as it is open. */
void inventory_fill(Inventory *inventory, int64_t used, const Skips *skips);
void skips_free(Skips *skips);
