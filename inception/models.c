/* The table of models; see models.h. */
#include "inception/models.h"

#include <string.h>

static const Model *const models[] = {
    &model_inception_mini,
    &model_fashion_cnn,
    NULL,
};

const Model *const *models_all(void)
{
    return models;
}

Status model_find(const char *name, const Model **found)
{
    char names[512] = "";
    for (int i = 0; models[i]; i++) {
        if (!strcmp(models[i]->name, name)) {
            *found = models[i];
            return OK;
        }
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, " %s", models[i]->name);
    }
    return FAIL(ERR_ARG, "no model '%s'; there are:%s", name, names);
}
