/* classes.txt (or classnames.txt): number and names of the classes of IDX files or shards: one name per line, label 0
 * first, UTF-8. Without the file an IDX data set has the ten classes of the MNIST family, without names. */
#pragma once

#include "towers/data/listing/names.h"
#include "towers/files/files.h"

/* The file's path in `folder`; false if there is none. `records`: for TFRecords, beside which TensorFlow Datasets and TF-Slim write
 * label.labels.txt and labels.txt; in the latter a name may follow its number and a colon. */
bool class_names_find(const char *folder, bool records, char path[PATH_BYTES]);
bool class_names_is(const char *file); /* any of these names */
/* These names, in the order in which they are looked for; NULL behind the last one. */
const char *class_names_file(int i, bool records);
/* Fills `names` from such a file, as class_names_read does. */
NODISCARD Status class_names_load(const char *path, int most, Names *names);
/* Fills `names` from the file of `folder`; at most `most` classes. Without the file nothing changes. ERR_FORMAT names
 * file and line; ERR_IO if the file cannot be read. */
NODISCARD Status class_names_read(const char *folder, int most, Names *names);
/* `count` names: those of `from`, or "" if it is NULL. */
NODISCARD Status class_names_set(Names *names, int count, const char *const *from);
