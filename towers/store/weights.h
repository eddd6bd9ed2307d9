/* Weights on disk: converts the arenas of a replica to named tensors in PyTorch's order (OIHW, torchvision's names) and
 * back. Convolution weights have rank 4, dense weights rank 2 {out, c*h*w} in CHW order (that of PyTorch's flatten), vectors
 * rank 1, unless the graph says otherwise (graph_rank). Outputs that become a map are in CHW order, too (that of PyTorch's view). */
#pragma once

#include "towers/graph/layout.h"
#include "towers/store/weight_part.h"

/* Whether a word names the file of a network: FILE.onnx. */
bool network_is_named(const char *word);
/* A file of weights that its user names: safetensors, or torch.save's (torch_file.h), told apart by its first bytes; or
 * FILE.onnx, whose values belong to the parameters of the network that it describes. */
NODISCARD Status weights_open(const char *path, SafeTensors **made);
/* Reads FILE.onnx, of which only an upper floor knows how; set before there are threads. NULL: such files are refused. */
extern Status (*weights_of_network)(const char *path, SafeTensors **made);

/* A growing list of named tensors; owns names and data. */
typedef struct WeightList {
    StTensor *tensor;
    int count;
} WeightList;
void weight_list_clear(WeightList *list);

/* The parameters of a file: the first `count` of the layout, and its running statistics. */
typedef struct WeightMap {
    const Layout *layout; /* borrowed */
    int count;
} WeightMap;
static inline WeightMap weight_map(const Layout *layout)
{
    return (WeightMap){layout, layout->param_count};
}

/* Append the first map->count parameters of `arena` (host memory, layout of PARAM) as `<prefix><name>`. */
NODISCARD Status weights_pack(const WeightMap *map, const char *prefix, const float *arena, WeightList *list);
/* Append all running statistics (host memory, layout of RUNNING). With `tracked` >= 0 also `<layer>.num_batches_tracked` (I64
 * scalar). */
NODISCARD Status running_pack(const WeightMap *map, const char *prefix, const float *arena, int64_t tracked,
                              WeightList *list);

/* Allowed differences between file and network. A part is a prefix of names: "fc." All lists end in NULL. */
typedef struct WeightRules {
    const char *reset[4];        /* parts that keep their initial values and are not read */
    const char *reset_names[10]; /* single parameters of which the same is true, by their whole names */
    const char *optional[4];     /* parts that may be missing from the file, or extra in it, as a whole */
} WeightRules;

/* Narrows a file to the tensors of the map's network (weight_part.h). What `rules` (may be NULL) exclude need not be among
 * them. */
NODISCARD Status weights_narrow(const WeightMap *map, const WeightRules *rules, const char *path, const char *key,
                                SafeTensors *file, WeightPart *part);

typedef struct WeightMatch {
    int missing, mismatched, extra; /* names missing from the file, with another shape, not in the network */
    int spoiled;      /* tensors with values that are not finite, or variances below 0; copied nevertheless */
    int lines;        /* of the table, including those that did not fit */
    char table[1600]; /* one line per name, ending in "... and N more" if cut */
    char absent[256]; /* optional parts missing from the file, or "" */
} WeightMatch;
/* The refusal of a file with spoiled tensors. ERR_CHECKPOINT */
NODISCARD Status weights_spoiled(const char *path, const WeightMatch *match);
/* Fill the arenas from a file. Names that match in shape are copied; the others are counted in `match`. F32, F16, BF16
 * and F64 data are converted; anything else is a mismatch. `params`, `running` and `rules` may be NULL. Tensors
 * `<layer>.num_batches_tracked` are never extra. */
NODISCARD Status weights_unpack(const WeightMap *map, const char *prefix, const SafeTensors *file,
                                const WeightRules *rules, float *params, float *running, WeightMatch *match);
/* weights_unpack, and ERR_CHECKPOINT with the table unless everything matched (extra names are tolerated if `prefix` is not
 * ""). */
NODISCARD Status weights_unpack_exact(const WeightMap *map, const char *prefix, const SafeTensors *file, float *params,
                                      float *running);
