/* Weights on disk: the arenas of a replica as named tensors in PyTorch's order (OIHW, torchvision's names), and back.
 *
 * Convolution weights are rank 4, dense weights rank 2 {out, c*h*w} in CHW order (what PyTorch's flatten gives),
 * vectors rank 1. */
#ifndef TOWERS_STORE_WEIGHTS_H
#define TOWERS_STORE_WEIGHTS_H

#include "towers/graph/plan.h"
#include "towers/store/safetensors.h"

/* A growing list of named tensors; owns names and data. */
typedef struct WeightList {
    StTensor *tensor;
    int count, room;
} WeightList;
void weight_list_clear(WeightList *list);

/* Which dimensions a parameter has on disk, and where it lies: the layout seen with the ops that read it. */
typedef struct WeightMap {
    const Layout *layout; /* borrowed */
    int *rank;            /* owned: [param_count] */
    int count;            /* the first so many parameters of the layout are packed and unpacked; at first all */
} WeightMap;
NODISCARD Status weight_map_create(const Layout *layout, const Graph *graph, WeightMap *map);
void weight_map_destroy(WeightMap *map);

/* Append the first map->count parameters of `arena` (host memory, layout of PARAM) as `<prefix><name>`. */
NODISCARD Status weights_pack(const WeightMap *map, const char *prefix, const float *arena, WeightList *list);
/* Append every state (host memory, layout of STATE). With `tracked` >= 0 also `<layer>.num_batches_tracked` (I64
 * scalar). */
NODISCARD Status states_pack(const WeightMap *map, const char *prefix, const float *arena, int64_t tracked,
                             WeightList *list);

/* What a file may differ in. A part is all names that begin with the text: "fc." */
typedef struct WeightRules {
    const char *reset[4];    /* parts that are not read: they keep their starting values; NULL at the end */
    const char *optional[4]; /* parts that the file may lack as a whole, or have in excess as a whole */
} WeightRules;

typedef struct WeightMatch {
    int missing, mismatched, extra; /* names that the file lacks, has in another shape, has too much */
    int spoiled;                    /* names of which some values are not finite; copied none the less */
    int lines;                      /* of the table, with those that did not fit */
    char table[1600];               /* a line each, cut with "... and N more" */
    char absent[256];               /* optional parts that the file lacks, or "" */
} WeightMatch;
/* Fill the arenas from a file. Names that match in shape are copied; the others are counted in `match`. F32, F16, BF16
 * and F64 data are converted; anything else is a mismatch. `params`, `states` and `rules` may be NULL. Tensors
 * `<layer>.num_batches_tracked` are never extra. */
NODISCARD Status weights_unpack(const WeightMap *map, const char *prefix, const SafeTensors *file,
                                const WeightRules *rules, float *params, float *states, WeightMatch *match);
/* The same, and ERR_CHECKPOINT with the table unless everything matched (extra names are tolerated if `prefix` is not
 * ""). */
NODISCARD Status weights_unpack_exact(const WeightMap *map, const char *prefix, const SafeTensors *file, float *params,
                                      float *states);

#endif
