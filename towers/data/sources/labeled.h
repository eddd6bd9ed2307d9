/* Folders of images with a labels file, labels.csv (label_file.h), which gives each image any number of classes.
 *
 *     IMAGES/train/labels.csv  IMAGES/train/...    IMAGES/val/labels.csv  IMAGES/val/...    and test/, see splits.h
 *     IMAGES/labels.csv        IMAGES/...          with --val-split, which keeps the images whose names have the smallest hashes
 *
 * The file of a row is below the folder of the labels file; a name without the ending of an image is completed
 * by the first ending of an image (endings.h) with which it exists. Samples are in the order of the rows, classes are those of the
 * training images. Images that are in no row are not used. Errors: those of label_file.h, and ERR_FORMAT with the line
 * for a file that is missing, is no regular file or has no such ending. */
#pragma once

#include "towers/data/sources/source.h"

/* True if the directory, or the folder of one of its parts, has a labels file. */
bool labeled_is_in(const char *path);
/* Bits of its parts. */
unsigned labeled_splits(const char *path);
NODISCARD Status labeled_source_open(const SourceConfig *config, Split split, Source **made);
