/* The parts of a data set: how their folders and shards are named, and which of them serves for training, for the
 * evaluation during training, or as a test. One set of rules for folders of images and for shards.
 *
 * A set that has no parts is one whole, which --val-split divides. Images of a part for tests are never used during
 * training, so that they choose neither weights nor settings. */
#pragma once

#include "towers/data/sources/source.h"

enum { SPLITS_TEXT_BYTES = 32 };

/* The part that a word names, in any case: train, training; val, valid, validation, eval; test. SPLITS for others. */
Split split_of_word(const char *word, size_t bytes);
/* That which the first or the last word of a folder's name names, as "train_images", "test1", "images-val". */
Split split_of_folder(const char *name);

/* "train and test": the splits of these bits. */
void splits_text(unsigned bits, char text[SPLITS_TEXT_BYTES]);

/* Where the images of a split come from. */
typedef struct SplitChoice {
    Split from;   /* the part; SPLITS: the whole set, which has none */
    bool divided; /* by --val-split */
} SplitChoice;

/* `parts`: bits of the parts that the set has. `kind`: "folder" or "shards"; `tenth`: "a tenth of each class". ERR_ARG
 * names the path, what it has and what to do. */
NODISCARD Status split_choose(const SourceConfig *config, unsigned parts, Split split, const char *kind,
                              const char *tenth, SplitChoice *choice);

/* Images whose hash is below this are for evaluation: round(count * val_split) of them, but never all. Sorts the hashes. */
uint64_t split_limit(uint64_t *hashes, int64_t count, double val_split);
