/* The range of every value of a classifier over images of its training data, prepared as for an evaluation: what
 * `towers export --int8` needs. Smallest and largest numbers do not depend on the order in which images are seen. */
#pragma once

#include "inception/library/classifier.h"
#include "towers/store/onnx.h"

enum { RANGE_IMAGES = 512 };

typedef struct ActivationRanges {
    Classifier classifier; /* its first program of evaluation has the graph */
    OnnxRange *range;      /* owned: by value id */
    int64_t images;        /* at most RANGE_IMAGES */
} ActivationRanges;

/* The training data are those of the run or of --data-path. `program`: of the weights in the file `path`, in f32; it becomes
 * the job's. The caller closes the classifier and frees the range, after an error too. Errors: those of opening data;
 * ERR_NUMERIC naming a layer with a value that is not finite. */
NODISCARD Status activation_ranges_measure(const Options *options, JobFiles *files, const ProgramConfig *program,
                                           const char *path, ActivationRanges *made);
