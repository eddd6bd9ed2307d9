/* The loss of a classifier, of every head alike. */
#ifndef TOWERS_GRAPH_LOSS_KIND_H
#define TOWERS_GRAPH_LOSS_KIND_H

/* Softmax cross-entropy over the classes, or sigmoid (binary) cross-entropy of each. */
typedef enum LossKind { LOSS_SOFTMAX = 0, LOSS_BCE } LossKind;

#endif
