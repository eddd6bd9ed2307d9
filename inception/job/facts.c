/* Facts about a file of weights; see facts.h. */
#include "inception/job/facts.h"

#include "inception/job/job.h"
#include "inception/job/transforms.h"
#include "inception/models/published.h"
#include "inception/options/values.h"
#include "towers/files/files.h"
#include "towers/store/onnx.h"
#include "towers/store/weights.h"

/* ---- reading */

/* The keys that are options, too, which have dashes for underscores. */
static const char *const settings[] = {"img_size", "mean",  "std",  "interpolation", "eval_resize", "eval_crop", "exif",
                                       "variant",  "width", "loss", "background",    "amp",         "amp_dtype"};
static const char *const others[] = {"model",          "classes",         "channels",   "crop",
                                     "maps",           "several_classes", "label_base", "data_fingerprint",
                                     "towers_version", "temperature",     "network"};

bool facts_have(const char *option, size_t length)
{
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        size_t k = 0;
        while (k < length && settings[i][k] == (option[k] == '-' ? '_' : option[k])) k++;
        if (k == length && !settings[i][k]) return true;
    }
    return false;
}

void facts_put(json_t *facts, const char *key, const char *text)
{
    if (text && setting_is_plain(text)) json_object_set_new(facts, key, json_string(text));
}

/* A list of texts, else nothing. */
static void names_put(json_t *facts, const json_t *names)
{
    size_t i;
    json_t *name;
    if (!json_array_size(names)) return;
    json_array_foreach((json_t *)names, i, name) if (!json_string_value(name)) return;
    json_object_set(facts, "class_names", (json_t *)names);
}

/* The metadata of FILE.onnx, without the variant and the width of what it was exported from: its own nodes have them. */
static Status onnx_take(const char *path, json_t *facts)
{
    OnnxAbout *about;
    TRY(onnx_about_open(path, &about));
    for (int k = 0; k < onnx_about_count(about); k++) {
        StPair pair = onnx_about_at(about, k);
        bool known = false;
        for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) known |= !strcmp(settings[i], pair.key);
        for (size_t i = 0; i < sizeof others / sizeof *others; i++) known |= !strcmp(others[i], pair.key);
        if (known && strcmp(pair.key, "variant") != 0 && strcmp(pair.key, "width") != 0)
            facts_put(facts, pair.key, pair.value);
        if (strcmp(pair.key, "class_names") != 0) continue;
        json_t *names = json_loads(pair.value, JSON_REJECT_DUPLICATES, NULL);
        names_put(facts, names);
        json_decref(names);
    }
    onnx_about_close(about);
    return OK;
}

static Status metadata_take(const char *path, json_t *facts)
{
    if (network_is_named(path)) return onnx_take(path, facts);
    SafeTensors *file;
    TRY(weights_open(path, &file));
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        facts_put(facts, settings[i], safetensors_metadata(file, settings[i]));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        facts_put(facts, others[i], safetensors_metadata(file, others[i]));
    const char *list = safetensors_metadata(file, "class_names");
    json_t *names = list ? json_loads(list, JSON_REJECT_DUPLICATES, NULL) : NULL;
    names_put(facts, names);
    json_decref(names);
    safetensors_close(file);
    return OK;
}

static Status table_take(const Options *o, const char *path, json_t *facts)
{
    Published *table;
    const char *last = strrchr(path, '/'), *key;
    json_t *value;
    TRY(published_open(o->weights_table, &table));
    const PublishedRow *row = published_file(table, last ? last + 1 : path);
    if (row) {
        facts_put(facts, "model", row->model);
        json_object_foreach((json_t *)row->settings, key, value) facts_put(facts, key, json_string_value(value));
        names_put(facts, row->names);
    }
    published_close(table);
    return OK;
}

/* Files of earlier versions of this program have no names or do not say with which label these begin; runs of still earlier
 * ones say it in the format of their data. */
static void environment_take(const char *path, json_t *facts)
{
    char folder[PATH_BYTES];
    const char *last = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", last > path ? (int)(last - path) : 1, last ? path : ".");
    json_t *root = json_of_run(folder, "env.json");
    const char *format = json_word(root, "data_format"), *base = json_word(root, "label_base");
    const json_t *names = json_object_get(root, "class_names"),
                 *classes = json_object_get(json_object_get(root, "training_data"), "class_images");
    bool whole =
        !classes || json_array_size(names) == json_array_size(classes); /* they end before a class without a name */
    if (whole && !json_object_get(facts, "class_names")) names_put(facts, names);
    if (!base && format) base = strstr(format, "labels from 1") ? "1" : "0";
    if (!json_word(facts, "label_base")) facts_put(facts, "label_base", base);
    json_decref(root);
}

static Status whole_check(const json_t *facts, const char *path, const char *key)
{
    const char *text = json_word(facts, key);
    int64_t number;
    if (!text || (text_to_int(text, &number) == VALUE_OK && number >= 1 && number <= INT32_MAX)) return OK;
    return FAIL(ERR_FORMAT, "'%s': its metadata %s is '%.32s': expected a whole number from 1 on", path, key, text);
}

/* What is no option, whose values are checked where they are applied: another word than this program writes would be taken for one of
 * these. In files of other programs the keys may mean anything. */
static Status facts_check(const json_t *facts, const char *path)
{
    static const struct {
        const char *key, *word[4];
    } rows[] = {
        {"label_base", {"0", "1"}}, {"several_classes", {"true", "false"}}, {"crop", {"whole", "center", "fraction"}}};
    if (!json_word(facts, "towers_version")) return OK;
    TRY(whole_check(facts, path, "classes"));
    TRY(whole_check(facts, path, "channels"));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *text = json_word(facts, rows[i].key);
        char list[64];
        Text words = text_start(list, sizeof list);
        bool known = !text;
        for (int k = 0; rows[i].word[k]; k++) {
            known |= text && !strcmp(text, rows[i].word[k]);
            text_add(&words, "%s%s", k ? " or " : "", rows[i].word[k]);
        }
        if (!known)
            return FAIL(ERR_FORMAT, "'%s': its metadata %s is '%.32s': expected %s", path, rows[i].key, text, list);
    }
    return OK;
}

Status facts_read(const Options *o, const char *path, json_t **facts)
{
    json_t *made = json_object();
    if (!made) return FAIL(ERR_MEMORY, "no memory for the description of '%s'", path);
    Status st = access(path, F_OK) == 0 ? metadata_take(path, made) : OK;
    if (st == OK && !json_word(made, "mean")) st = table_take(o, path, made);
    if (st == OK && !(json_object_get(made, "class_names") && json_word(made, "label_base")))
        environment_take(path, made);
    if (st == OK) st = facts_check(made, path);
    if (st == OK)
        *facts = made;
    else
        json_decref(made);
    return st;
}

bool facts_are_of(const json_t *facts, const Model *model)
{
    const char *of = json_word(facts, "model"), *digest = json_word(facts, "network");
    if (model->digest && digest) return !strcmp(digest, model->digest);
    return !of || !strcmp(of, model->name);
}

/* ---- as settings */

static int64_t number_of(const json_t *facts, const char *key)
{
    const char *text = json_word(facts, key);
    return text ? strtoll(text, NULL, 10) : 0;
}

int64_t resize_in_proportion(int64_t resize, int64_t own, int64_t side)
{
    if (own <= 0 || own == side || resize <= 0) return resize;
    if (resize == job_usual_resize(own)) return job_usual_resize(side); /* as a run, to the pixel */
    return llrint((double)resize * (double)side / (double)own);
}

int64_t facts_resize(const json_t *facts, int64_t side)
{
    return resize_in_proportion(number_of(facts, "eval_resize"), number_of(facts, "img_size"), side);
}

Status facts_apply(const json_t *facts, const char *path, Options *o)
{
    char yaml[1024];
    Text text = text_start(yaml, sizeof yaml);
    bool cropped = option_origin(o, "eval-resize") > ORIGIN_RECIPE || option_origin(o, "eval-crop") > ORIGIN_RECIPE ||
                   option_origin(o, "crop-pct") > ORIGIN_RECIPE; /* one of the three is enough */
    bool sized = option_origin(o, "img-size") > ORIGIN_RECIPE;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        const char *value = json_word(facts, settings[i]);
        if (!value || !*value || (cropped && !strncmp(settings[i], "eval_", 5))) continue;
        for (const char *p = settings[i]; *p; p++) text_add(&text, "%c", *p == '_' ? '-' : *p);
        if (sized && !strcmp(settings[i], "eval_resize"))
            text_add(&text, ": %" PRId64 "\n", facts_resize(facts, o->img_size));
        else
            text_add(&text, ": %s\n", value);
    }
    const char *multi_label = json_word(facts, "several_classes");
    if (multi_label && !strcmp(multi_label, "true") && !json_word(facts, "loss"))
        text_add(&text, "loss: bce\n"); /* earlier files */
    return options_apply_yaml(o, yaml, ORIGIN_RECIPE, path);
}

Status channels_parse(const char *what, const char *text, double least, float value[3])
{
    int count = 0;
    bool more = false; /* a comma was last */
    const char *at = text;
    for (; count < 3; count++) {
        char one[64] = "";
        double number;
        at += strspn(at, " "); /* as in "0.5, 0.5, 0.5" */
        size_t bytes = strcspn(at, ",");
        if (bytes < sizeof one) memcpy(one, at, bytes);
        if (text_to_real(one, &number) != VALUE_OK || !(number >= least && number <= 10)) break;
        value[count] = (float)number;
        at += bytes;
        more = *at == ',';
        if (!more) {
            count++;
            break;
        }
        at++;
    }
    if (*at || more || (count != 1 && count != 3))
        return FAIL(ERR_ARG, "%s '%s': expected one number or three with commas, each from %g to 10, as in %s", what,
                    text, least, "0.485,0.456,0.406");
    for (int i = count; i < 3; i++) value[i] = value[0];
    return OK;
}

Status facts_normalize(const json_t *facts, const char *path, const Model *model, Options *o)
{
    const char *mean = json_word(facts, "mean"), *std = json_word(facts, "std");
    float numbers[2][3];
    char yaml[256];
    if (!mean || !std) return OK;
    TRY(channels_parse("the metadata mean", mean, -10, numbers[0]));
    TRY(channels_parse("the metadata std", std, 1e-6, numbers[1]));
    size_t bytes = (size_t)model->channels * sizeof(float);
    if (!memcmp(numbers[0], model->mean, bytes) && !memcmp(numbers[1], model->std, bytes)) return OK;
    snprintf(yaml, sizeof yaml, "mean: %s\nstd: %s\n", mean, std);
    return options_apply_yaml(o, yaml, ORIGIN_RUN, path);
}
