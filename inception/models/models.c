/* The table of models; see models.h. */
#include "inception/models/models.h"
#include "inception/models/near_name.h"
#include "kernels/base/text.h"

// clang-format off
const Model *const all_models[] = {
    &model_inception_v3,
    &model_inception_v4,
    &model_inception_resnet_v2,
    &model_inception_v2,
    &model_googlenet,
    &model_xception,
    &model_resnet18,
    &model_resnet34,
    &model_resnet50,
    &model_resnet101,
    &model_mobilenet_v3_small,
    &model_mobilenet_v3_large,
    &model_efficientnet_b0,
    &model_efficientnet_lite0,
    &model_convnext_tiny,
    &model_inception_mini,
    &model_fashion_cnn,
    &model_wgan_gp,
    &model_wgan_gp_keras,
    NULL,
};
// clang-format on

/* Names used by other programs. */
static const char *const aliases[][2] = {{"inception3", "inception_v3"}, {"inception4", "inception_v4"}};

Status model_find(const char *name, const Model **found)
{
    const char *names[sizeof all_models / sizeof *all_models];
    char list[512];
    Text text = text_start(list, sizeof list);
    int count = 0;
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (!strcmp(aliases[i][0], name)) name = aliases[i][1];
    for (; all_models[count]; count++) {
        if (!strcmp(all_models[count]->name, name)) {
            *found = all_models[count];
            return OK;
        }
        names[count] = all_models[count]->name;
        text_add(&text, " %s", names[count]);
    }
    const char *near = nearest_name(name, names, count);
    return FAIL(ERR_ARG, "unknown model '%s'%s%s%s; the models are:%s", name, near ? "; did you mean " : "",
                near ? near : "", near ? "?" : "", list);
}

const ModelVariant *model_variant(const Model *model, const char *name)
{
    for (int i = 0; name && i < MODEL_VARIANTS && model->variants[i].name; i++)
        if (!strcmp(model->variants[i].name, name)) return &model->variants[i];
    return NULL;
}
