/* Sources whose samples are listed in an index (index.h): the description of the data set, and samples that are files of their
 * own below a folder. */
#pragma once

#include "towers/data/listing/index.h"
#include "towers/data/sources/source.h"

/* Fill in what the index says of a data set, and its name, that of the folder or file. *names [classes] becomes
 * info->class_names and is owned by the caller. ERR_MEMORY. */
NODISCARD Status indexed_describe(const SourceConfig *config, const Index *index, const char *format, SourceInfo *info,
                                  const char ***names);

/* A source of files: a sample is the file ROOT/CLASS/NAME or, if samples have lists of labels, ROOT/NAME. Takes over the index,
 * also after an error. A file that has another size than in the index is ERR_FORMAT, and the next start makes a new index. */
NODISCARD Status indexed_files_open(const SourceConfig *config, const char *root, const char *format, Index *index,
                                    Source **made);
