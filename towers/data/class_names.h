/* classes.txt: how many classes a folder's IDX data has, and what they are called: a name a line, label 0 first, UTF-8.
 * Without the file a set has the ten classes of the MNIST family, without names. */
#ifndef TOWERS_DATA_CLASS_NAMES_H
#define TOWERS_DATA_CLASS_NAMES_H

#include "kernels/status.h"

typedef struct ClassNames {
    int count;
    char **name; /* owned, as are the strings */
} ClassNames;

/* Fills `names` from `folder`/classes.txt; `most` is the largest number of classes. Without the file nothing is changed.
 * ERR_FORMAT names file and line, ERR_IO a file that cannot be read. */
NODISCARD Status class_names_read(const char *folder, int most, ClassNames *names);
/* `count` names: those of `from`, or "" where it is NULL. */
NODISCARD Status class_names_set(ClassNames *names, int count, const char *const *from);
void class_names_free(ClassNames *names);

#endif
