/* Model: the interface between a model file and the trainer, which names no model. */
#ifndef TOWERS_GRAPH_MODEL_H
#define TOWERS_GRAPH_MODEL_H

#include "towers/graph/layers.h"

typedef struct ModelOptions {
    int classes;
    int32_t side, channels; /* of the image that enters the network */
    float dropout;          /* rate; < 0: the model's default */
    bool aux;               /* build auxiliary heads (training only) */
    const char *variant;    /* "" or one of the model's own names */
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

typedef struct Model {
    const char *name;                      /* "inception_v3" */
    const char *title;                     /* "Inception v3" */
    const char *paper;                     /* authors, title, arXiv number */
    int32_t side;                          /* canonical input side */
    int32_t min_side;                      /* smallest that the network can take */
    int32_t aux_min_side;                  /* smallest at which its auxiliary heads fit */
    int32_t channels;                      /* 1 or 3 */
    int classes;                           /* default */
    float dropout;                         /* default rate */
    float aux_weight;                      /* default weight of each auxiliary loss; 0: the model has none */
    float mean[3], std[3];                 /* of pixels in [0, 1] */
    const char *defaults;                  /* settings that suit it, as YAML for the option table; NULL */
    ModelVariant variants[MODEL_VARIANTS]; /* ended by a NULL name */
    void (*build)(Graph *g, const ModelOptions *options, Value image, ModelHeads *heads);
} Model;

#endif
