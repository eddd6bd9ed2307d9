/* Source: numbered samples, each an encoded or raw 8-bit image and a label. Opened once by the supervisor before it
 * forks the towers, so that an invalid data set is reported once and pages are shared; afterwards read-only and
 * thread-safe.
 *
 * Kinds: folder.c (ImageFolder trees of the formats of image.h), labeled.c (the same with a labels file: several classes
 * for an image), shards.c (WebDataset tars, TFRecords, MDS), idx.c (MNIST family, .gz or plain, gray or color), paths.c
 * (files without labels, for predictions), synthetic.c (truncated normal, as in tf_cnn_benchmarks). Labels and sizes are
 * known once it is open; encoded images are examined when they are read (image.h), which is when damage is found. */
#pragma once

#include "kernels/base/status.h"
#include "towers/data/classes/class_match.h"
#include "towers/data/images/pixels.h"
#include "towers/data/listing/inventory.h"

/* VAL: for the evaluation during training, which chooses the best weights. IDX files have no such part: their test images
 * serve for it. */
typedef enum Split { SPLIT_TRAIN = 0, SPLIT_VAL, SPLIT_TEST, SPLITS } Split;
#define SPLIT_BIT(split) (1u << (split))

typedef struct SourceInfo {
    char name[64];      /* "fashion-mnist", "synthetic", "flowers" */
    const char *format; /* of its files, a literal: "IDX", "folder of images", "generated" */
    int64_t count;      /* samples */
    int classes;
    const char *const *class_names; /* [classes], of any length, "" if unknown; borrowed from the source */
    int32_t first_label;            /* the label of the first class in its files; a background comes before it */
    FirstLabel first_origin;        /* how that is known */
    bool background;                /* class 0 is none of the files' (labels.h) */
    const char *labels_note;        /* a sentence about how its labels were read, for people; borrowed, NULL: none */
    bool multi_label;               /* a sample has any number of classes: source_labels */
    int32_t h, w;                   /* of every image; 0 if they differ or are unknown */
    int32_t c;                      /* 1 or 3 */
    uint64_t state;                 /* changes whenever its files are listed anew; 0: they are not listed in an index */
    uint64_t fingerprint[2];        /* XXH3-128 of the samples' names, sizes and labels (folders) or of all bytes */
    /* [shards + 1]: number of the first sample of each shard; NULL if there are none. Borrowed */
    const int64_t *shard_first;
    int shards;
    bool elsewhere; /* the bytes of its shards may come from a server while it is read */
    /* what the reader used and left out; of the whole part, also where only some samples are selected */
    Inventory inventory;
} SourceInfo;

/* The label of the first class in shards; AUTO: 0, but 1 for TFRecords without a label 0 (shards.c). */
typedef enum LabelBase { LABEL_BASE_AUTO = 0, LABEL_BASE_0, LABEL_BASE_1 } LabelBase;

typedef struct Source Source;

typedef struct SourceConfig {
    const char *path;
    double val_split; /* fraction of the training images kept for evaluation; 0: the set has its own */
    bool equal_apart; /* val_split divides by names alone, as earlier versions did; else equal files stay together */
    bool whole;       /* images for evaluation may be missing; a set without parts is used whole */
    bool unlabeled;   /* classes do not matter: images that lie in a folder without folders of classes are taken too */
    bool partial;     /* shards of which the names of others speak may be missing */
    LabelBase label_base;
    ClassRule rule;      /* how shards of one part name the classes of another; CLASSES_NUMBERED: not by names */
    bool background;     /* a class 0 without images, before those of the set (labels.h) */
    const char *group;   /* a column of labels.csv that is no class; NULL: none */
    const Source *train; /* the training part, if it is open: its files were examined, and are not again; or NULL */
    /* NULL: the first problem of a folder is an error. Else each folder of a class that has one, such as no image at
     * all, is left without images, and the problem is added here (names.h) */
    struct Names *problems;
    /* Borrowed: of a set of shards whose bytes are elsewhere (shards/shard_fetch.h); or NULL. */
    const struct ShardFetch *fetch;
    void (*progress)(void *context, int64_t done, int64_t all); /* while an index is built; NULL is fine */
    void *context;
} SourceConfig;

/* `path`: an ImageFolder tree (folder.h), shards (shards.h), or a directory with (or with a folder fashion-mnist/ with)
 * {train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz] (idx4: with channels), and classes.txt unless there are ten
 * classes; splits.h has the rules for splits. Errors: ERR_FORMAT if a file is invalid (file, offset, expected, found),
 * ERR_IO, ERR_ARG. */
NODISCARD Status source_open(const SourceConfig *config, Split split, Source **made);
/* Bits of the splits that a set has folders or shards for; 0 for a set without parts, which is one whole. */
unsigned source_splits(const char *path);
const char *split_name(Split split); /* "train", "val", "test" */
/* Fixed random images and labels, for benchmarks: truncated normal (mean 127, deviation 60), labels uniform. */
NODISCARD Status source_synthetic(int64_t count, int classes, int32_t h, int32_t w, int32_t c, uint64_t seed,
                                  Source **made);
/* Some samples of another source, which is borrowed and must outlive it. */
NODISCARD Status source_select(const Source *from, const int64_t *ids, int64_t count, Source **made);
void source_close(Source *source); /* NULL is fine */

const SourceInfo *source_info(const Source *source);
/* The bytes of a sample and its label in [0, classes), of a sample with any number of classes 0. `index` in [0, count).
 * ERR_IO if they cannot be read; ERR_FORMAT if the file has changed since the index was built. */
NODISCARD Status source_read(const Source *source, int64_t index, Bytes *bytes, int32_t *label);
/* The label of a sample alone. `index` in [0, count). */
int32_t source_label(const Source *source, int64_t index);
/* The classes of a sample, increasing; returns their number. Only if info.multi_label; borrowed from the source. */
int32_t source_labels(const Source *source, int64_t index, const int32_t **labels);
/* The number of samples of each class: [classes]. */
void source_classes_count(const Source *source, int64_t *counts);
/* The place of a sample for messages: "data/train-images-idx3-ubyte.gz, record 12", "flowers/train/rose/12.jpg". */
void source_where(const Source *source, int64_t index, char *text, size_t bytes);
/* The file that a sample is, and the bytes that it had when it was listed; false if samples are no files of their own. */
bool source_file(const Source *source, int64_t index, char *path, size_t room, uint64_t *bytes);
/* Whether its bytes are on this machine; else reading it may wait for a server. */
bool source_is_here(const Source *source, int64_t index);
/* What came from elsewhere since the source was opened, and how long its threads have waited for that; zeros of one that is on this machine. */
typedef struct SourceTraffic {
    int64_t bytes, retries, wait_ns;
} SourceTraffic;
void source_traffic(const Source *source, SourceTraffic *traffic);
/* Announce to the storage that a sample will be read soon; does nothing if that is not supported. */
void source_hint(const Source *source, int64_t index);
/* A window of shards begins, and those of the next one are announced now. Shards that were announced before the last call are no longer
 * needed. */
void source_hint_window(const Source *source);
/* Announce that a whole shard will be read soon. */
void source_hint_shard(const Source *source, int shard);
/* Announce that a whole shard will be read later, after all of which that was said before. */
void source_hint_later(const Source *source, int shard);
