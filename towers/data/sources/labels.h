/* Data sets with other labels than their own. Each call replaces *source, which the new one owns; after an error *source is
 * closed and NULL. Errors: ERR_MEMORY. */
#pragma once

#include "towers/data/sources/source.h"

/* One more class, "background", before all others: it has no samples, and every label is one larger. The original Inception
 * trainer keeps label 0 in this way. */
NODISCARD Status source_background(Source **source);

/* Every label is 0, of one class without a name: for samples whose labels mean nothing, as those of prediction. */
NODISCARD Status source_unlabeled(Source **source);

/* The classes of a network, or of anything else: labels become the numbers of the same classes there (class_match.h). Their names are
 * those of `among`, which are copied, and of the source where these are not known. ERR_FORMAT or ERR_ARG if it is not known
 * which classes are the same. */
NODISCARD Status source_match(Source **source, const ClassList *among, ClassRule rule, struct Text *remark);
