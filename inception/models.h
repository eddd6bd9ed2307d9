/* The models this program knows: one row each, one file each. */
#ifndef TOWERS_INCEPTION_MODELS_H
#define TOWERS_INCEPTION_MODELS_H

#include "towers/model.h"

extern const Model model_fashion_cnn;
extern const Model model_googlenet;
extern const Model model_inception_mini;
extern const Model model_inception_resnet_v2;
extern const Model model_inception_v3;
extern const Model model_inception_v4;

/* By name ("inception3" and "inception4" are accepted too). ERR_ARG with the nearest name or the list. */
NODISCARD Status model_find(const char *name, const Model **found);
/* All models, NULL-terminated, in the order of the help. */
const Model *const *models_all(void);

#endif
