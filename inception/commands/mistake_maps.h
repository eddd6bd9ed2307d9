/* Where a network looked when it was wrong and sure of it: towers eval --cam DIR. */
#pragma once

#include "inception/job/job.h"
#include "towers/replica/ledger.h"

/* Of the most confident mistakes of an evaluation: DIR/cam.csv (rows as of mistakes.h) and for its row k, from 0, a picture
 * DIR/00000k-mistake.png of two class maps side by side (class_maps.h): of the class that the network took the image for, and of
 * its own. The report of a run shows those in RUN/cam. Only for samples of one class; program.h says which networks have maps. */
NODISCARD Status mistake_maps_write(const Options *options, JobFiles *files, const char *weights,
                                    const EvalSample *samples);
