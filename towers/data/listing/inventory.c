/* Counts of what readers leave out, and their words; see inventory.h. */
#include "towers/data/listing/inventory.h"

#include <ctype.h>

#include "towers/data/listing/endings.h"
#include "towers/files/files.h"
#include "towers/files/json.h"

enum { KINDS = 12, KIND_BYTES = 32 };

struct SkipKinds {
    int64_t count;
    struct {
        char name[KIND_BYTES]; /* "" for names without an ending or with a long one */
        int64_t count;
    } kind[KINDS]; /* if there are more, "" counts them too */
    int kinds;
    char *first; /* owned */
    char text[SKIP_KINDS_BYTES];
};

static const struct {
    const char *name, *one, *many, *remedy;
    bool warns;
} reasons[SKIP_REASONS] = {
    [SKIP_KIND] = {"not-an-image", "file is ignored", "files are ignored",
                   "images are files that end in " IMAGE_ENDINGS IMAGE_ENDINGS_LACKING
                   "; ImageMagick converts others: mogrify -format png FILE",
                   true},
    [SKIP_LOOSE] = {"beside-classes", "image beside the folders of the classes is ignored",
                    "images beside the folders of the classes are ignored", "move each into the folder of its class",
                    true},
    [SKIP_UNLISTED] = {"not-listed", "image is in no row of the labels file and is ignored",
                       "images are in no row of the labels file and are ignored", "give each a row to use it", true},
    [SKIP_NO_SHARD] = {"not-a-shard", "file holds samples, but is ignored because its name is not that of a shard",
                       "files hold samples, but are ignored because their names are not those of shards",
                       "a shard ends in " SHARD_ENDINGS " or -K-of-N: remove copies, rename what is to be used", true},
    [SKIP_ABSENT] = {"absent", "shard is not there", "shards are not there",
                     "the names of the others say how many there are", true},
    [SKIP_UNGROUPED] = {"no-sample", "image or label in the tars belongs to no sample and is ignored",
                        "images and labels in the tars belong to no sample and are ignored",
                        "the name of a member up to its first dot is the sample, and the rest must be the ending of an "
                        "image, .cls or .json: write names with one dot",
                        true},
    [SKIP_REPLACED] = {"replaced", "member of the tars is replaced by a later one of the same name",
                       "members of the tars are replaced by later ones of the same names",
                       "as tar does when it unpacks them", true},
    [SKIP_FOREIGN] = {"foreign", "file or folder that another program left behind is ignored",
                      "files and folders that other programs left behind are ignored", NULL, false},
    [SKIP_BESIDE] = {"beside", "file beside the data is ignored", "files beside the data are ignored", NULL, false},
    [SKIP_MEMBER] = {"other-member", "other member of the tars is ignored", "other members of the tars are ignored",
                     NULL, false},
    [SKIP_LABEL] = {"other-label", "label in a .json is not used, as the .cls beside it is another one",
                    "labels in .json are not used, as the .cls beside them are others",
                    "the .cls decides: correct the one that is wrong", true},
};

/* ---- collecting */

static int kind_find(const SkipKinds *skipped, const char *kind)
{
    int k = 0;
    while (k < skipped->kinds && strcmp(skipped->kind[k].name, kind) != 0) k++;
    return k;
}

static void kind_count(SkipKinds *skipped, const char *kind, int64_t count)
{
    int k = kind_find(skipped, kind);
    if (k == skipped->kinds && k >= KINDS - 1) k = kind_find(skipped, kind = "");
    if (k == skipped->kinds) snprintf(skipped->kind[skipped->kinds++].name, KIND_BYTES, "%s", kind);
    skipped->kind[k].count += count;
    skipped->count += count;
}

/* The ending of a name in lower case, "" if it has none, or one that is long or not of letters and digits. */
static void ending_of(const char *name, char ending[KIND_BYTES])
{
    enum { ENDING_BYTES = 12 };
    const char *dot = strrchr(name, '.');
    size_t bytes = dot && dot > name ? strlen(dot) : 0;
    ending[0] = 0;
    if (!bytes || bytes >= ENDING_BYTES) return;
    for (size_t i = 1; i < bytes; i++)
        if (!isalnum((unsigned char)dot[i])) return;
    for (size_t i = 0; i <= bytes; i++) ending[i] = (char)tolower((unsigned char)dot[i]);
}

static Status kinds_of(Skips *skips, SkipReason why, SkipKinds **kinds)
{
    if (!skips->of[why]) skips->of[why] = calloc(1, sizeof *skips->of[why]);
    *kinds = skips->of[why];
    return *kinds ? OK : FAIL(ERR_MEMORY, "no memory for the list of what is left out");
}

Status skips_add_many(Skips *skips, SkipReason why, const char *kind, const char *path, int64_t count)
{
    SkipKinds *skipped;
    TRY(kinds_of(skips, why, &skipped));
    if (!skipped->first) skipped->first = strdup(path);
    if (!skipped->first) return FAIL(ERR_MEMORY, "no memory for the list of what is left out");
    kind_count(skipped, kind, count);
    return OK;
}

Status skips_add(Skips *skips, SkipReason why, const char *kind, const char *folder, const char *name)
{
    char ending[KIND_BYTES], path[2 * PATH_BYTES];
    ending_of(name, ending);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return skips_add_many(skips, why, kind ? kind : ending, path, 1);
}

Status skips_join(Skips *skips, const Skips *more)
{
    for (SkipReason why = 0; why < SKIP_REASONS; why++) {
        const SkipKinds *from = more->of[why];
        SkipKinds *to;
        if (!from) continue;
        TRY(kinds_of(skips, why, &to));
        for (int k = 0; k < from->kinds; k++) kind_count(to, from->kind[k].name, from->kind[k].count);
        if (to->first) continue;
        to->first = strdup(from->first);
        if (!to->first) return FAIL(ERR_MEMORY, "no memory for the list of what is left out");
    }
    return OK;
}

int64_t skips_count(const Skips *skips, SkipReason why)
{
    return skips->of[why] ? skips->of[why]->count : 0;
}

const char *skips_first(const Skips *skips, SkipReason why)
{
    return skips->of[why] ? skips->of[why]->first : "";
}

const char *skips_kind_at(const Skips *skips, SkipReason why, int k, int64_t *count)
{
    const SkipKinds *skipped = skips->of[why];
    if (!skipped || k >= skipped->kinds) return NULL;
    *count = skipped->kind[k].count;
    return skipped->kind[k].name;
}

const char *skips_kinds(const Skips *skips, SkipReason why)
{
    SkipKinds *skipped = skips->of[why];
    if (!skipped) return "";
    Text to = text_start(skipped->text, sizeof skipped->text);
    for (int k = 0; k < skipped->kinds; k++)
        text_add(&to, "%s%" PRId64 " %s", k ? ", " : "", skipped->kind[k].count,
                 *skipped->kind[k].name ? skipped->kind[k].name : "other");
    return skipped->text;
}

void skips_free(Skips *skips)
{
    for (SkipReason why = 0; why < SKIP_REASONS; why++) {
        if (skips->of[why]) free(skips->of[why]->first);
        free(skips->of[why]);
    }
    *skips = (Skips){0};
}

/* ---- the struct of a source */

void inventory_fill(Inventory *inventory, int64_t used, const Skips *skips)
{
    *inventory = (Inventory){.used = used};
    for (SkipReason why = 0; skips && why < SKIP_REASONS; why++)
        if (skips->of[why])
            inventory->skipped[why] =
                (Skipped){skips_count(skips, why), skips_first(skips, why), skips_kinds(skips, why)};
}

int64_t inventory_skipped(const Inventory *inventory)
{
    int64_t count = 0;
    for (SkipReason why = 0; why < SKIP_REASONS; why++) count += inventory->skipped[why].count;
    return count;
}

const char *skip_name(SkipReason why)
{
    return reasons[why].name;
}

bool skip_warns(SkipReason why)
{
    return reasons[why].warns;
}

const char *skip_line(const Inventory *inventory, SkipReason why, char text[SKIP_LINE_BYTES])
{
    const Skipped *skipped = &inventory->skipped[why];
    const char *remedy = reasons[why].remedy;
    snprintf(text, SKIP_LINE_BYTES, "%s%" PRId64 " %s (%s), the first is %s%s%s", reasons[why].warns ? "warning: " : "",
             skipped->count, skipped->count == 1 ? reasons[why].one : reasons[why].many, skipped->kinds, skipped->first,
             remedy ? "; " : "", remedy ? remedy : "");
    return text;
}

json_t *inventory_json(const Inventory *inventory)
{
    json_t *all = json_array();
    for (SkipReason why = 0; why < SKIP_REASONS; why++) {
        const Skipped *skipped = &inventory->skipped[why];
        if (!skipped->count) continue;
        json_array_append_new(all, json_pack("{s:s, s:I, s:o, s:o}", "why", skip_name(why), "count",
                                             (json_int_t)skipped->count, "kinds", json_text(skipped->kinds), "first",
                                             json_text(skipped->first)));
    }
    return json_pack("{s:I, s:o}", "used", (json_int_t)inventory->used, "skipped", all);
}
