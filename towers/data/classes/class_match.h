/* What the classes of one side are on another: the only place where the labels of two sources are compared, be they the
 * parts of a data set, shards, folders, the classes that a file of weights learned, or the data of two runs. A number means
 * a class only together with the list in which it counts, so each side says what it knows of its list, and where it begins.
 *
 *   names on both sides             the class with that name. Names that several classes have (ImageNet has two "crane") are
 *                                   paired in their order if both sides have as many of them
 *   numbers as names, on one side   they are labels: "7" and "07" are label 7 of the other side, whose first label is known
 *                                   or else 0. With numbers as names on both sides the equal ones are the same class
 *   no names on either side         equal labels are the same class, if both sides know with which label they begin
 *   names on one side only          refused
 *
 * Nothing is guessed: what is not known is refused with both sides named, ERR_ARG where an option says it, ERR_FORMAT for a
 * class that the other side lacks. Samples decide: a class without any may be missing on the other side. */
#pragma once

#include "kernels/base/status.h"

struct Text; /* kernels/base/text.h */

/* How it is known which label of a side's files is its first class. */
typedef enum FirstLabel {
    FIRST_KNOWN = 0,
    FIRST_GUESSED, /* from the labels alone (shard_index.c) */
    FIRST_UNKNOWN, /* weights of earlier versions and of other programs do not say */
} FirstLabel;

typedef struct ClassList {
    const char *whose;        /* for messages: "'d/val'", "the network" */
    const char *const *names; /* [count], "" for one that is not known; NULL: none is */
    const bool *used;         /* [count]: it has samples; NULL: all have */
    int count;
    int32_t first; /* the label of class 0 in the files of this side; behind a background one less */
    FirstLabel origin;
} ClassList;

/* CLASSES_SPELLED: of parts of one data set, whose names must be spelled alike, so that numbers as names are only names.
 * CLASSES_NUMBERED: the user says that the first class is the first, whatever the names are (--match-classes number). */
typedef enum ClassRule { CLASSES_NAMED = 0, CLASSES_NUMBERED, CLASSES_SPELLED } ClassRule;

/* map[of->count] receives the class in `among` of each class, -1 for one without samples that is not there. `remark`, which
 * may be NULL, gets a sentence about what was taken for the same though no names say so. */
NODISCARD Status class_match(const ClassList *of, const ClassList *among, ClassRule rule, int32_t *map,
                             struct Text *remark);

/* The class that a word of a file or option means: its name, or else its number, unless numbers are the names; -1: none. */
int class_of_word(const ClassList *list, const char *word);

/* How many classes have a name that equals or looks like that of another one of the list (look_alike.h), or is the same number ("1",
 * "01" and "1.0"): mostly one class that was written in two ways. The first two are in `pair`, why in `why` (ALIKE_BYTES). *left_out: so many, whose names
 * are of one length in letters that may be composed, were too many to compare. */
NODISCARD Status classes_alike(const ClassList *list, int *count, int *left_out, int pair[2], char *why);

/* "ant, bee, cat and 7 more" */
void class_names_text(const char *const *names, int count, struct Text *to);
