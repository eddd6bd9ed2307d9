/* The models of this program: one row and one file per model. */
#pragma once

#include "towers/graph/model.h"

extern const Model model_fashion_cnn;
extern const Model model_googlenet;
extern const Model model_inception_mini;
extern const Model model_inception_resnet_v2;
extern const Model model_inception_v2;
extern const Model model_inception_v3;
extern const Model model_inception_v4;
extern const Model model_mobilenet_v3_large;
extern const Model model_mobilenet_v3_small;
extern const Model model_efficientnet_b0;
extern const Model model_efficientnet_lite0;
extern const Model model_convnext_tiny;
extern const Model model_resnet18;
extern const Model model_resnet34;
extern const Model model_resnet50;
extern const Model model_resnet101;
extern const Model model_wgan_gp;
extern const Model model_wgan_gp_keras;
extern const Model model_xception;

/* Figure 7 of the paper of Inception v4 and Inception-ResNet, 35 -> 17, with its k, l, m and n channels. */
Value reduction_a(Graph *g, Value x, const char *name, int32_t k, int32_t l, int32_t m, int32_t n);

/* Find a model by name ("inception3" and "inception4" are accepted too). ERR_ARG suggests a similar name or lists
 * all. */
NODISCARD Status model_find(const char *name, const Model **found);
/* The variant of this name; NULL if the model has none, or for NULL. */
const ModelVariant *model_variant(const Model *model, const char *name);
/* All models, NULL-terminated, in the order of the help. */
extern const Model *const all_models[];
