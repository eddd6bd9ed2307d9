/* Published weights: where files of pretrained weights are, and what is known about them.
 *
 * The table is weights.json, which is compiled into the program; --weights-table FILE adds rows of the same form. A row has
 *
 *   model, name            what a user writes: "resnet18", "imagenet"
 *   title, license         for people
 *   address                http or https; the last part is the name of the file in the cache
 *   sha256                 of the file, or its first 8 or more digits if no more are published (those in the file's name)
 *   bytes                  of the file; may be absent
 *   class_names            a list of names, or "imagenet" for those of imagenet.txt, or "imagenet-background" for these after
 *                          a class "background", which is 0
 *   also                   a list of other files that have these weights, in packages; may be absent
 *   settings               texts under the keys of about.h: img_size, mean, std, crop, eval_resize, eval_crop, interpolation
 *
 * A table is untrusted text. Everything is checked when it is read; ERR_ARG names the row and what is wrong. */
#pragma once

#include <jansson.h>

#include "kernels/base/text.h"

enum { SHA256_LEAST = 8, SHA256_DIGITS = 64 }; /* hexadecimal digits of a SHA-256: that are enough, and all */

typedef struct PublishedRow {
    const char *model, *name, *title, *license, *address, *sha256;
    const char *file;       /* the last part of the address */
    int64_t bytes;          /* 0: not known */
    const json_t *also;     /* array of names of files; NULL: none */
    const json_t *names;    /* array of the names of the classes; NULL: not known */
    const json_t *settings; /* object of texts; NULL: none */
} PublishedRow;

typedef struct Published Published;
/* `more`: a file of further rows, or NULL. They come before the built-in ones. */
NODISCARD Status published_open(const char *more, Published **made);
NODISCARD Status published_parse(const char *text, size_t bytes, const char *name,
                                 Published **made);                  /* this text alone */
void published_close(Published *table);                              /* NULL is fine */
const PublishedRow *published_at(const Published *table, int index); /* NULL after the last; borrowed */
/* The row of a model with this name ("imagenet"; NULL: its first), or of any model if that is NULL. NULL if
 * there is none. */
const PublishedRow *published_find(const Published *table, const char *model, const char *name);
/* ERR_ARG: there is no such row, with those that there are. */
Status published_refuse(const Published *table, const char *model, const char *name);
/* The row of which a file has this name. */
const PublishedRow *published_file(const Published *table, const char *file);

/* If these are the names of ImageNet's classes, with a background before them or without: their ids in WordNet, which
 * ImageNet's folders have ("n01440764"), in the same order, as an array that the caller owns; otherwise NULL. */
json_t *published_synsets(const json_t *names);

/* True if `text` consists of letters, digits and the characters of numbers and lists, so that it can be a setting. */
int setting_is_plain(const char *text);

/* weights.json, and imagenet.txt: of each class of ImageNet, in order, its id in WordNet and its name. The last has a NULL
 * name. */
extern const EmbeddedText model_texts[];
