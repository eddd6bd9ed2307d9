/* Which files are images by their names, and a count of the others; see endings.h. */
#include "towers/data/sources/endings.h"

#include <ctype.h>
#include <strings.h>

#include "kernels/text.h"

const char *const image_endings[IMAGE_ENDINGS_COUNT] = {".jpg", ".jpeg", ".jpe", ".jfif",
                                                        ".png", ".webp", ".ppm", ".pgm"};

bool ending_is_image(const char *name)
{
    const char *dot = strrchr(name, '.');
    for (int i = 0; dot && i < IMAGE_ENDINGS_COUNT; i++)
        if (!strcasecmp(dot, image_endings[i])) return true;
    return false;
}

/* ---- files that are not read */

static int kind_find(const Ignored *ignored, const char *ending)
{
    int k = 0;
    while (k < ignored->kinds && strcmp(ignored->kind[k].ending, ending) != 0) k++;
    return k;
}

static void kind_count(Ignored *ignored, const char *ending, int64_t count)
{
    int k = kind_find(ignored, ending);
    if (k == ignored->kinds && k >= IGNORED_KINDS - 1) k = kind_find(ignored, ending = "");
    if (k == ignored->kinds) snprintf(ignored->kind[ignored->kinds++].ending, IGNORED_ENDING_BYTES, "%s", ending);
    ignored->kind[k].count += count;
    ignored->count += count;
}

Status ignored_add(Ignored *ignored, const char *folder, const char *name)
{
    char ending[IGNORED_ENDING_BYTES] = "";
    const char *dot = strrchr(name, '.');
    size_t bytes = dot && dot > name ? strlen(dot) : sizeof ending;
    for (size_t i = 0; bytes < sizeof ending && i < bytes; i++) {
        if (i > 0 && !isalnum((unsigned char)dot[i])) bytes = sizeof ending;
        ending[i] = (char)tolower((unsigned char)dot[i]);
    }
    if (!ignored->first && asprintf(&ignored->first, "%s/%s", folder, name) < 0) {
        ignored->first = NULL;
        return FAIL(ERR_MEMORY, "no memory for the list of images");
    }
    kind_count(ignored, bytes < sizeof ending ? ending : "", 1);
    return OK;
}

Status ignored_join(Ignored *ignored, const Ignored *more)
{
    for (int k = 0; k < more->kinds; k++) kind_count(ignored, more->kind[k].ending, more->kind[k].count);
    if (ignored->first || !more->first) return OK;
    ignored->first = strdup(more->first);
    return ignored->first ? OK : FAIL(ERR_MEMORY, "no memory for the list of images");
}

void ignored_text(const Ignored *ignored, char text[IGNORED_TEXT_BYTES])
{
    Text to = text_start(text, IGNORED_TEXT_BYTES);
    for (int k = 0; k < ignored->kinds; k++)
        text_add(&to, "%s%" PRId64 " %s", k ? ", " : "", ignored->kind[k].count,
                 *ignored->kind[k].ending ? ignored->kind[k].ending : "other");
}

void ignored_free(Ignored *ignored)
{
    free(ignored->first);
    *ignored = (Ignored){0};
}
