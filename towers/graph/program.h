/* Program: a phase of a model for one batch size, built, differentiated and planned. A tower runs one program per step.
 *
 * Training: image -> model -> summed loss -> gradients of every parameter that the phase trains and that is not frozen.
 * Evaluation: image -> model -> loss and correct predictions. In f32 convolutions include the batch norms behind them, by
 * weights that are made again when the weights change (fold_end). A short last batch is another program over the same
 * arenas, so batch norm sees real samples only. */
#pragma once

#include "towers/graph/loss_kind.h"
#include "towers/graph/model.h"
#include "towers/graph/plan.h"

/* All of it is in a capsule: a new field goes into capsule_write.c and capsule.c too. */
typedef struct ProgramConfig {
    const Model *model; /* borrowed */
    ModelOptions options;
    int32_t data_channels, canvas; /* of the uploaded pixels */
    int32_t train_side; /* of images in training, if it is not options.side: program_training; 0. Not in a capsule */
    float smoothing, aux_weight;
    LossKind loss;
    bool multi_label; /* samples have any number of classes (LOSS_BCE only) */
    bool mixes;       /* training mixes images: the batch has one image more than samples (Batch.pixels) */
    bool targets; /* training takes targets instead of labels and smoothing (Batch.targets); LOSS_BCE: evaluation too */
    bool weighted;                /* losses are divided by the weights of the samples (Batch.weight) */
    const float *positive_weight; /* borrowed: [classes], of LOSS_BCE in training (OP_SIGMOID_LOSS); NULL: 1 each */
    Dtype compute;
    bool training;
    int phase; /* of the model's: program_phase; 0 of a classifier */
    bool fuse_siblings, pool_behind_conv, norm_into_pool;
    const char *freeze; /* borrowed: parameters that are not trained (names.h); NULL: none. Also in the programs of
                              evaluation, so that all programs have the same layout */
    /* borrowed: where in a file of weights they lie (weight_part.h); NULL: found by the names. Not in a capsule */
    const char *weights_key;
    bool recompute;        /* cheap activations are recomputed instead of kept */
    bool features, maps;   /* evaluation keeps them (Program); not in a capsule, which never evaluates */
    bool logits;           /* likewise: what softmax or sigmoid read, from which losses are exact */
    bool as_trained;       /* evaluation has auxiliary heads, and norms apart from convolutions; not in a capsule */
    bool separate_storage; /* every value has its own: for comparison */
} ProgramConfig;

typedef struct Program {
    int32_t n;
    Graph *graph; /* owned */
    Plan *plan;   /* owned */
    int phase;
    Value pixels, labels, targets, weight, positive_weight, augment, counter,
        dloss;                       /* inputs; Value 0 where the phase has none */
    Value loss, correct, weight_sum; /* results; Value 0 if nothing is predicted, or nothing is weighted */
    PhaseTerm
        term[PHASE_TERMS]; /* results: of a classifier with auxiliary heads the loss of each, the main one first */
    int term_count;
    Value features;  /* result of an evaluation with ProgramConfig.features: what the last layer reads */
    Value maps;      /* result of an evaluation with ProgramConfig.maps: the class activation maps {n, classes, h, w} */
    Value prob;      /* result of an evaluation: of every class; else Value 0 */
    Value logits;    /* result of an evaluation with ProgramConfig.logits, in the network's type */
    int fold_end;    /* ops [0, fold_end) make the weights that include batch norms; 0 in training */
    int forward_end; /* ops [0, forward_end) are the forward pass */
    int recomputed;  /* ops that run again in the backward pass */
    NormPools pools; /* set by program_create: fused ops */
} Program;

/* The phases of a model's training: its own, or those of a classifier, which has one, "train". */
int program_phases(const Model *model);
const Phase *program_phase(const Model *model, int phase);

/* A configuration of training, whose side and canvas are those of its images (train_side). */
ProgramConfig program_training(const ProgramConfig *config);

/* The graph alone, before ops are fused for a device: for `info`, for the layout, and for tests. */
NODISCARD Status program_graph(const ProgramConfig *config, int32_t n, Program *program);
/* The layout of all phases in training, made from their graphs of this batch size; `phase` and `training` are ignored. */
NODISCARD Status program_layout(const ProgramConfig *config, int32_t n, Layout **layout);
/* Graph and plan. `layout` and `device` are borrowed and must outlive the program. */
NODISCARD Status program_create(const ProgramConfig *config, int32_t n, const Layout *layout, Device *device,
                                Program *program);
/* The bytes of its arenas without the workspaces of kernels; needs no device. */
NODISCARD Status program_measure(const ProgramConfig *config, int32_t n, const Layout *layout, const Backend *backend,
                                 size_t bytes[ARENA_COUNT]);
void program_destroy(Program *program); /* a zeroed one is fine */
