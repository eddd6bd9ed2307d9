/* Model: the interface between a model file and the trainer, which names no model. */
#pragma once

#include "towers/graph/layers.h"

typedef struct ModelOptions {
    int classes;
    int32_t side, channels; /* of the image that enters the network */
    float dropout;          /* rate; < 0: the model's default */
    bool aux;               /* build auxiliary heads (training only) */
    const char *variant;    /* "" or one of the model's own names */
    int32_t width;         /* channels of a model's narrowest layer, where it has such a size; 0: the model's default */
    float penalty_weight;  /* of the gradient penalty of a critic; < 0: the model's default */
    float mean[3], std[3]; /* of pixels in [0, 1]; std 0: the model's */
    float drop_path;       /* rate of the last block's stochastic depth */
} ModelOptions;

enum { MODEL_AUX_HEADS = 2, MODEL_HEADS = 1 + MODEL_AUX_HEADS };

/* The outputs from which losses are computed. Logits are {n, classes, 1, 1}. */
typedef struct ModelHeads {
    Value logits;
    Value aux[MODEL_AUX_HEADS];
    int aux_count;
} ModelHeads;

/* Another form of a model, selected by name, with its own defaults. */
typedef struct ModelVariant {
    const char *name; /* "tf2016" */
    int classes;
    float dropout;
} ModelVariant;
enum { MODEL_VARIANTS = 4 };

/* A phase: a loss and the parameters that it trains, updated by an optimizer of their own. A classifier has one phase; an
 * adversarial model has one for its critic and one for its generator. Every phase names all parameters and running statistics that
 * it uses in full ("critic.conv1.weight"), so that phases share them by name. */
enum { PHASES_MAX = 4, PHASE_TERMS = 8 };

typedef struct PhaseInputs {
    int32_t n;     /* samples of this tower */
    Value image;   /* normalized real batch {n, channels, side, side} in the compute dtype; Value 0 if it takes none */
    Value counter; /* for ops with random numbers (graph_op's "counter" input) */
    Value labels;  /* of the real batch, i32 {n,1,1,1}; Value 0 if it takes none */
} PhaseInputs;

/* A number for the record: f32 scalar, the sum over the samples of the tower. */
typedef struct PhaseTerm {
    const char *name; /* "critic_real": letters, digits and _ */
    Value sum;
    bool spread; /* `sum` is that of the squares of the term before it: the record shows its standard deviation */
    bool shown;  /* also on the console, beside the losses */
} PhaseTerm;

typedef struct PhaseOutputs {
    Value loss; /* f32 scalar, summed over the samples of the tower; the program differentiates it */
    PhaseTerm term[PHASE_TERMS];
    int term_count;
} PhaseOutputs;

typedef struct Phase {
    const char *name;   /* "critic" */
    const char *trains; /* names of the parameters that it trains (names.h): "critic.*" */
    int repeats;        /* updates in a row in one cycle; the model's default */
    bool takes_batch;   /* of real images */
    void (*build)(Graph *g, const ModelOptions *options, const void *networks, const PhaseInputs *inputs,
                  PhaseOutputs *outputs); /* networks: the model's */
} Phase;

typedef struct Model {
    const char *name;                      /* "inception_v3" */
    const char *title;                     /* "Inception v3" */
    const char *paper;                     /* authors, title, arXiv number */
    int32_t side;                          /* canonical input side */
    int32_t min_side;                      /* smallest that the network can take */
    int32_t aux_min_side;                  /* smallest at which its auxiliary heads fit */
    int32_t channels;                      /* 1 or 3; default, if `adapts` */
    bool adapts;                           /* its images have as many channels as the data */
    int classes;                           /* default; 0: it predicts none */
    float dropout;                         /* default rate */
    float drop_path;                       /* default rate; 0: it has no stochastic depth, or not by itself */
    int residuals;                         /* of a network from a file: sums that can have it */
    float aux_weight;                      /* default weight of each auxiliary loss; 0: the model has none */
    float mean[3], std[3];                 /* of pixels in [0, 1] */
    const char *defaults;                  /* settings that suit it, as YAML for the option table; NULL */
    ModelVariant variants[MODEL_VARIANTS]; /* ended by a NULL name */
    void (*build)(Graph *g, const ModelOptions *options, const void *networks, Value image,
                  ModelHeads *heads); /* a classifier; else NULL */
    const Phase *phases; /* [phase_count], in the order of the cycle; NULL: a classifier, with one phase "train" */
    int phase_count;
    /* A name of a tensor in another program's files, as this network's: writes it and returns true; false: it is none. NULL: there
     * are no such files. */
    bool (*renames)(const char *name, char *to, size_t bytes);
    int32_t width;        /* default; 0: it has no such size */
    float penalty_weight; /* default; 0: it has no penalty */
    int32_t latent;       /* numbers from which a generator makes one image; 0: it has no generator */
    /* Images {n, channels, side, side}, normalized as the real ones, from z {n, latent, 1, 1}; NULL: none. */
    void (*generate)(Graph *g, const ModelOptions *options, const void *networks, Value z, Value *images);
    /* passed to `generate`, to `build` and to the `build` of each phase, for code that models share; or NULL */
    const void *networks;
    const char *file;   /* that the network was read from; NULL: it is one of this program's */
    const char *digest; /* of that file's structure, which the name does not identify; NULL: as `file` */
} Model;

/* The normalization of a network's input: (pixel - mean) / std. */
static inline const float *model_mean(const Model *model, const ModelOptions *options)
{
    return options->std[0] > 0 ? options->mean : model->mean;
}
static inline const float *model_std(const Model *model, const ModelOptions *options)
{
    return options->std[0] > 0 ? options->std : model->std;
}
