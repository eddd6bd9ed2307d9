/* Data sets with other labels than their own. Each call replaces *source, which the new one owns; after an error *source is
 * closed and NULL. Errors: ERR_MEMORY. */
#pragma once

#include "towers/data/sources/source.h"

/* One more class, "background", before all others: it has no samples, and every label is one larger. The original Inception
 * trainer keeps label 0 in this way. */
NODISCARD Status source_background(Source **source);

/* Every label is 0, of one class without a name: for samples whose labels mean nothing, as those of prediction. */
NODISCARD Status source_unlabeled(Source **source);

/* The classes of a network, known by their names: labels become the numbers that these have there. Data without names, whose
 * labels are numbers, stays as it is. ERR_FORMAT for a class whose name is not among them. The names are copied. */
NODISCARD Status source_match(Source **source, const char *const *names, int count);
