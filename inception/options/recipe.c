/* Find and apply recipes; see recipe.h. Their texts are in a generated file (cmake/embed_texts.cmake). */
#include "inception/options/recipe.h"
#include "inception/models/near_name.h"
#include "kernels/base/text.h"

enum { RECIPES_MAX = 32 };

static Status recipe_missing(const char *name)
{
    const char *names[RECIPES_MAX];
    char list[512];
    Text text = text_start(list, sizeof list);
    int count = 0;
    for (; count < RECIPES_MAX && recipes[count].name; count++) {
        names[count] = recipes[count].name;
        text_add(&text, "%s%s", count ? ", " : "", names[count]);
    }
    const char *near = nearest_name(name, names, count);
    return FAIL(ERR_ARG, "--recipe: unknown recipe '%s'%s%s%s; use one of %s, or a file such as ./my.yaml", name,
                near ? "; did you mean " : "", near ? near : "", near ? "?" : "", list);
}

/* The one without a name if there is none. */
static const Recipe *recipe_find(const char *name)
{
    const Recipe *recipe = recipes;
    while (recipe->name && strcmp(recipe->name, name) != 0) recipe++;
    return recipe;
}

bool recipe_is_built_in(const char *name)
{
    return recipe_find(name)->name != NULL;
}

Status recipe_apply(Options *options)
{
    const char *name = options->recipe;
    bool chosen = options->origin[OPTION_ID_recipe] == ORIGIN_DEFAULT_RECIPE;
    if (!name) return OK;
    if (strpbrk(name, "/.")) return options_apply_file(options, name, ORIGIN_RECIPE);
    const Recipe *recipe = recipe_find(name);
    if (!recipe->name) return recipe_missing(name);
    TRY(options_apply_yaml(options, recipe->text, chosen ? ORIGIN_DEFAULT_RECIPE : ORIGIN_RECIPE, name));
    double most = (double)options->epochs / 3;
    if (options->origin[OPTION_ID_warmup_epochs] == ORIGIN_DEFAULT_RECIPE && options->warmup_epochs > most)
        options->warmup_epochs = most;
    return OK;
}

Status recipe_choose(Options *options, const char *name)
{
    char yaml[64];
    snprintf(yaml, sizeof yaml, "recipe: %s\n", name);
    TRY(options_apply_yaml(options, yaml, ORIGIN_DEFAULT_RECIPE, name));
    return recipe_apply(options);
}

void recipe_gaps_print(const Options *options, FILE *to)
{
    static const char start[] = "Not reproduced: ";
    char comment[4096];
    Text text = text_start(comment, sizeof comment);
    const Recipe *recipe = recipes;
    while (recipe->name && (!options->recipe || strcmp(recipe->name, options->recipe) != 0)) recipe++;
    for (const char *line = recipe->name ? recipe->text : ""; *line == '#'; line += strcspn(line, "\n") + 1)
        text_add(&text, "%.*s ", (int)strcspn(line + 2, "\n"), line + 2);
    char *gaps = strstr(comment, start), *end = gaps ? strstr(gaps, ". ") : NULL;
    if (end) fprintf(to, "not reproduced %.*s\n", (int)(end - gaps - (long)strlen(start)), gaps + strlen(start));
}

void recipes_print(FILE *to)
{
    fprintf(to, "\n%-22s %s\n", "recipe (--recipe)", "settings");
    for (const Recipe *recipe = recipes; recipe->name; recipe++) {
        const char *title = recipe->text + strspn(recipe->text, "# ");
        fprintf(to, "%-22s %.*s\n", recipe->name, (int)strcspn(title, "\n"), title);
    }
}
