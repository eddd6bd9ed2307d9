/* The search for a network's tensors; see weight_part.h. */
#include "towers/store/weight_part.h"
#include "kernels/base/array.h"

/* A prefix is the beginning of a tensor's name in the file. */
typedef struct Prefix {
    const char *text; /* borrowed, not ended */
    size_t bytes;
    int found; /* names of the network under it */
} Prefix;

typedef struct PrefixSearch {
    const SafeTensors *file;
    const char *path, *key, *const *names;
    int count;
    Prefix *prefix; /* owned: those that fit; if none does, the best one */
    int prefixes;
} PrefixSearch;

/* ---- what fits */

/* The length of what stands before `name` at the end of a tensor's name, dicts at least; false if it does not. */
static bool prefix_of(const StTensor *t, const char *name, size_t *bytes)
{
    size_t whole = strlen(t->name), end = strlen(name);
    if (whole < end || strcmp(t->name + whole - end, name) != 0) return false;
    *bytes = whole - end;
    return *bytes >= t->dict && (*bytes == 0 || t->name[*bytes - 1] == '.');
}

/* Whether whole parts of the prefix are the key: "model" in "state_dict.model.". */
static bool has_key(const Prefix *p, const char *key)
{
    size_t bytes = strlen(key);
    while (bytes && key[bytes - 1] == '.') bytes--;
    for (size_t at = 0; at + bytes < p->bytes; at++)
        if ((at == 0 || p->text[at - 1] == '.') && !memcmp(p->text + at, key, bytes) && p->text[at + bytes] == '.')
            return true;
    return false;
}

static bool is_inside(const StTensor *t, const Prefix *p)
{
    return t->dict <= p->bytes && !strncmp(t->name, p->text, p->bytes);
}

/* How many names of the network are found under a prefix; with `whole` 0 unless all are. */
static int names_found(const PrefixSearch *s, const Prefix *p, bool whole)
{
    char name[2 * ST_MAX_NAME];
    int found = 0;
    for (int i = 0; i < s->count; i++) {
        snprintf(name, sizeof name, "%.*s%s", (int)p->bytes, p->text, s->names[i]);
        const StTensor *t = safetensors_find(s->file, name);
        bool there = t && is_inside(t, p);
        if (whole && !there) return 0;
        found += there;
    }
    return found;
}

/* Adds the prefixes under which name number `which` of the network is found, with all other names if `whole`, else the
 * one that has most of them. */
static Status prefixes_find(PrefixSearch *s, int which, bool whole)
{
    for (int i = 0; i < safetensors_count(s->file); i++) {
        const StTensor *t = safetensors_at(s->file, i);
        Prefix p = {.text = t->name};
        if (!prefix_of(t, s->names[which], &p.bytes) || (s->key && !has_key(&p, s->key))) continue;
        p.found = names_found(s, &p, whole);
        if (whole ? p.found == 0 : s->prefixes && p.found <= s->prefix[0].found) continue;
        if (!whole) s->prefixes = 0;
        TRY(ARRAY_ADD(s->prefix, s->prefixes, "a list of prefixes", p));
    }
    return OK;
}

/* The dict with most tensors, of a file that has no name of the network. */
static Status largest_dict(PrefixSearch *s)
{
    Prefix best = {.text = ""}, run = best;
    int most = 0, length = 0;
    for (int i = 0; i < safetensors_count(s->file); i++) {
        const StTensor *t = safetensors_at(s->file, i);
        bool goes_on = i && t->dict == run.bytes && !memcmp(t->name, run.text, run.bytes);
        length = goes_on ? length + 1 : 1;
        run = (Prefix){.text = t->name, .bytes = t->dict};
        if (length > most) best = run, most = length;
    }
    return ARRAY_ADD(s->prefix, s->prefixes, "a list of prefixes", best);
}

/* ---- which of those that fit */

/* The length of the part that begins at `at`, with its dot. */
static size_t part_bytes(const Prefix *p, size_t at)
{
    const char *dot = at < p->bytes ? memchr(p->text + at, '.', p->bytes - at) : NULL;
    return dot ? (size_t)(dot - p->text) + 1 - at : 0;
}

/* The place of a part in the order; all that are not in it share the last one. */
static int part_rank(const Prefix *p, size_t at)
{
    static const char *const order[] = {"state_dict_ema.", "model_ema.", "state_dict.", "model.", ""};
    enum { ORDER = sizeof order / sizeof *order };
    size_t bytes = part_bytes(p, at);
    for (int i = 0; i < ORDER; i++)
        if (bytes == strlen(order[i]) && !memcmp(p->text + at, order[i], bytes)) return i;
    return ORDER;
}

/* Below 0 if `a` is preferred, 0 if neither. */
static int prefix_order(const Prefix *a, const Prefix *b)
{
    size_t at = 0;
    for (size_t bytes;
         (bytes = part_bytes(a, at)) && bytes == part_bytes(b, at) && !memcmp(a->text + at, b->text + at, bytes);)
        at += bytes;
    return part_rank(a, at) - part_rank(b, at);
}

static void prefix_add(Text *text, const Prefix *p)
{
    if (p->bytes)
        text_add(text, "%s%.*s", text->used ? ", " : "", (int)p->bytes - 1, p->text);
    else
        text_add(text, "%sthe names as they are", text->used ? ", " : "");
}

/* The one that is preferred to all others. */
static Status prefix_choose(const PrefixSearch *s, Prefix *chosen)
{
    char all[512] = "";
    Text text = text_start(all, sizeof all);
    int best = 0;
    for (int i = 0; i < s->prefixes; i++) prefix_add(&text, &s->prefix[i]);
    if (s->prefixes == 0)
        return FAIL(ERR_CHECKPOINT, "'%s' has no weights of this network under '%s'; leave --weights-key out", s->path,
                    s->key);
    for (int i = 1; i < s->prefixes; i++)
        if (prefix_order(&s->prefix[i], &s->prefix[best]) < 0) best = i;
    for (int i = 0; i < s->prefixes; i++)
        if (i != best && prefix_order(&s->prefix[best], &s->prefix[i]) >= 0)
            return FAIL(ERR_CHECKPOINT,
                        "'%s' has weights of this network in %d places, and nothing says which are meant: %s; choose "
                        "one with --weights-key",
                        s->path, s->prefixes, all);
    *chosen = s->prefix[best];
    return OK;
}

/* ---- what is said about it */

static void part_describe(const PrefixSearch *s, const Prefix *chosen, WeightPart *part)
{
    *part = (WeightPart){.rival_count = s->prefixes - 1};
    Text rivals = text_start(part->rivals, sizeof part->rivals), left = text_start(part->left, sizeof part->left);
    memcpy(part->prefix, chosen->text, chosen->bytes);
    for (int i = 0; i < s->prefixes; i++)
        if (s->prefix[i].text != chosen->text) prefix_add(&rivals, &s->prefix[i]);
    for (int i = 0; i < safetensors_count(s->file); i++) {
        const StTensor *t = safetensors_at(s->file, i);
        if (is_inside(t, chosen)) continue;
        if (part->left_count++ < 3) text_add(&left, "%s%s", left.used ? ", " : "", t->name);
    }
}

Status weight_part_take(SafeTensors *file, const char *path, const char *const *names, int count, const char *key,
                        WeightPart *part)
{
    Status st = OK;
    Prefix chosen;
    PrefixSearch s = {.file = file, .path = path, .key = key, .names = names, .count = count};
    if (count) TRY_OUT(prefixes_find(&s, 0, true));
    for (int i = 0; i < count && !s.prefixes; i++) TRY_OUT(prefixes_find(&s, i, false));
    if (!s.prefixes && !key) TRY_OUT(largest_dict(&s));
    TRY_OUT(prefix_choose(&s, &chosen));
    part_describe(&s, &chosen, part);
    safetensors_narrow(file, part->prefix);
out:
    free(s.prefix);
    return st;
}

const char *weight_part_text(const WeightPart *part, const char *path, char *text, size_t bytes)
{
    Text to = text_start(text, bytes);
    if (!*part->prefix && !part->left_count) return text;
    size_t bytes_shown = strlen(part->prefix);
    text_add(&to, "%s: takes the weights %s%.*s", path, bytes_shown ? "under " : "with the names as they are",
             bytes_shown ? (int)bytes_shown - 1 : 0, part->prefix);
    if (part->rival_count)
        text_add(&to, ", which come first in timm's order; --weights-key takes those under %s", part->rivals);
    if (part->left_count)
        text_add(&to, "; leaves %d %s: %s%s", part->left_count, part->left_count == 1 ? "tensor" : "tensors",
                 part->left, part->left_count > 3 ? ", ..." : "");
    return text;
}
