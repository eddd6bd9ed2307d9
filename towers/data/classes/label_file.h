/* A labels file: which classes each image of a folder has, as CSV (RFC 4180) with a header.
 *
 *     two columns: a file, and its labels         more columns: a file, and 1 or 0 for each class
 *         image,tags                                  image_id,hat,smile
 *         a.jpg,haze primary                          a.jpg,1,0
 *         b.jpg,                                      b.jpg,0,1
 *
 * Labels are separated by ';' if any cell has one, else by '|' if any has one, else by ',' (in a cell in quotes), else by
 * blanks. All files of a data set decide that together. Classes are in the order of their bytes. With a column for each class
 * they are in the order of the columns; instead of 0 and 1 a file may have -1 and 1, and each number may end in ".0". These are
 * the forms of Kaggle's "planet" and of CelebA's list_attr. */
#pragma once

#include "kernels/base/status.h"

enum { LABEL_CLASSES_MAX = 65536, LABEL_NAME_MAX = 255 /* bytes */ };

typedef struct LabelRow {
    const char *name;    /* of the file */
    const char *group;   /* the value of the group's column; NULL without one */
    int64_t line, first; /* its labels: LabelFile.labels + first; lines count from 1 */
    int32_t count;
} LabelRow;

/* The characters that stand between labels in some cell, of which the first here is the separator. */
typedef enum LabelMark { LABEL_SEMICOLON = 1, LABEL_BAR = 2, LABEL_COMMA = 4 } LabelMark;
/* The separator where cells have these marks (bits): ";", "|", "," or " \t". */
const char *label_separator(unsigned marks);

/* All owned; names point into `text`. */
typedef struct LabelFile {
    char *text;
    const char *first; /* cell of the header, which names the column of files */
    const char **classes;
    int classes_count;
    bool columns; /* one for each class, so that the file speaks of these classes only */
    LabelRow *rows;
    int64_t rows_count;
    int32_t *labels; /* of each row increasing, in [0, classes_count) */
    int64_t labels_count;
} LabelFile;

/* Whether a cell is what programs write for a missing value, as "NaN" or "NULL": neither a label nor a group. */
bool label_is_missing(const char *cell);

/* Errors: ERR_FORMAT with file and line for anything else than the above, for a first line that is no header, labels in
 * brackets or quotes, a cell that is a missing value, a file that is listed twice, a label that an image has twice, and
 * names of files that leave the folder; ERR_IO, ERR_ARG. `group`: a column that is no class, for example the patient of each image, ERR_ARG if there is no such
 * column; NULL: none. `marks`: those of all files of the set. */
NODISCARD Status label_file_read(const char *path, const char *group, unsigned marks, LabelFile *file);
/* Adds the marks of a file, none for one with a column for each class. */
NODISCARD Status label_file_marks(const char *path, const char *group, unsigned *marks);
/* label_file_read without a group, from memory, with its own marks; `path` is for messages. */
NODISCARD Status label_file_parse(const char *path, const char *bytes, size_t count, LabelFile *file);
/* ERR_FORMAT if the labels of a list are numbers or words for yes and no: the column of one class, which would be two. Only
 * the file of the training images has all classes. */
NODISCARD Status label_file_answers_refuse(const LabelFile *file, const char *path);
/* ERR_FORMAT with the line if a label of a list consists of other labels with another character between them than the separator that `marks`
 * mean: "cat|dog" beside "cat", "dog" and "cat;dog". */
NODISCARD Status label_file_mixed_refuse(const LabelFile *file, const char *path, unsigned marks);
/* Renumber the labels to the classes of another file, that of the training images: ERR_FORMAT if that lacks one, or if
 * this has columns and not all of them. */
NODISCARD Status label_file_match(LabelFile *file, const char *path, const LabelFile *train, const char *train_path);
void label_file_free(LabelFile *file); /* a zeroed one is fine */
