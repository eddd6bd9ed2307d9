/* The table of models; see models.h. */
#include "inception/models/models.h"
#include "inception/models/near_name.h"
#include "kernels/text.h"

// clang-format off
static const Model *const models[] = {
    &model_inception_v3,
    &model_inception_v4,
    &model_inception_resnet_v2,
    &model_googlenet,
    &model_resnet18,
    &model_resnet50,
    &model_inception_mini,
    &model_fashion_cnn,
    &model_wgan_gp,
    &model_wgan_gp_keras,
    NULL,
};
// clang-format on

const Model *const *models_all(void)
{
    return models;
}

/* Names used by other programs. */
static const char *const aliases[][2] = {{"inception3", "inception_v3"}, {"inception4", "inception_v4"}};

static const char *model_near(const char *name)
{
    const char *names[sizeof models / sizeof *models];
    int count = 0;
    for (; models[count]; count++) names[count] = models[count]->name;
    return nearest_name(name, names, count);
}

Status model_find(const char *name, const Model **found)
{
    char list[512];
    Text names = text_start(list, sizeof list);
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (!strcmp(aliases[i][0], name)) name = aliases[i][1];
    for (int i = 0; models[i]; i++) {
        if (!strcmp(models[i]->name, name)) {
            *found = models[i];
            return OK;
        }
        text_add(&names, " %s", models[i]->name);
    }
    const char *near = model_near(name);
    return FAIL(ERR_ARG, "unknown model '%s'%s%s%s; the models are:%s", name, near ? "; did you mean " : "",
                near ? near : "", near ? "?" : "", list);
}

const ModelVariant *model_variant(const Model *model, const char *name)
{
    for (int i = 0; name && i < MODEL_VARIANTS && model->variants[i].name; i++)
        if (!strcmp(model->variants[i].name, name)) return &model->variants[i];
    return NULL;
}
