/* The loss of a classifier, of every head alike. */
#pragma once

/* Softmax cross-entropy over the classes, or sigmoid (binary) cross-entropy of each. */
typedef enum LossKind { LOSS_SOFTMAX = 0, LOSS_BCE } LossKind;
