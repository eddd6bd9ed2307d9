/* Data sets with other labels than their own. Each call replaces *source, which the new one owns; after an error *source is
 * closed and NULL. ERR_MEMORY. */
#ifndef TOWERS_DATA_LABELS_H
#define TOWERS_DATA_LABELS_H

#include "towers/data/sources/source.h"

/* One more class, "background", before all others: it has no samples, and every label is one larger. The original Inception
 * trainer keeps label 0 in this way. */
NODISCARD Status source_background(Source **source);

/* Every label is 0, of one class without a name: for samples whose labels mean nothing, as those of prediction. */
NODISCARD Status source_unlabeled(Source **source);

#endif
