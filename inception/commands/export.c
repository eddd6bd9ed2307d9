/* towers export: writes the weights of a run for other programs. Settings that the options leave open are taken from
 * the weights file: number of classes, variant, whether there is an auxiliary head. */
#include "inception/commands/commands.h"

#include "inception/commands/activation_ranges.h"
#include "inception/commands/result_file.h"
#include "inception/job/calibration.h"
#include "inception/job/facts.h"
#include "inception/job/named_model.h"
#include "inception/job/own_network.h"
#include "inception/models/models.h"
#include "inception/quality/generator.h"
#include "towers/replica/about.h"
#include "towers/store/pretrained.h"

typedef struct Export {
    ProgramConfig config;
    HeadNames heads;
    const char *from, *to;
    bool own_graph;          /* as ONNX, of a network from a file: that file with these weights */
    SafeTensors *file;       /* owned, as the next */
    WeightPart part;         /* of the file, that is exported */
    json_t *facts;           /* about the file */
    double temperature;      /* by which its logits are divided; 0: not fitted */
    ActivationRanges ranges; /* with --int8 */
    /* owned */
    Program evaluation; /* of a classifier */
    Graph *generator;   /* of a model with one: nothing else is exported */
    Layout *layout;
    float *params, *running;
    WeightList list;
    WeightMap map; /* of layout */
} Export;

/* ---- settings from the file */

static bool has_part(const SafeTensors *file, const char *part)
{
    for (int i = 0; i < safetensors_count(file); i++)
        if (!strncmp(safetensors_at(file, i)->name, part, strlen(part))) return true;
    return false;
}

static Status file_ask(const Options *o, Export *x)
{
    ModelOptions *options = &x->config.options;
    const Model *model = x->config.model;
    char holds[MODEL_TEXT], wanted[MODEL_TEXT];
    if (!is_same_file(x->from, model_argument(model)) && !facts_are_of(x->facts, model))
        return FAIL(ERR_CHECKPOINT, "%s holds weights of the model %s, not of %s", x->from,
                    model_text(json_word_or_empty(x->facts, "model"), json_word(x->facts, "network"), holds),
                    model_text(model->name, model->digest, wanted));
    const ModelVariant *variant = model_variant(x->config.model, safetensors_metadata(x->file, "variant"));
    if (!o->variant && !x->config.model->generate) options->variant = variant ? variant->name : "";
    if (!x->config.model->generate) TRY(pretrained_narrow(&x->config, HEAD_READ, x->from, x->file, &x->part));
    if (x->config.model->adapts) x->config.data_channels = options->channels = file_channels(x->file, &x->config);
    if (x->config.model->generate) return OK;
    TRY(head_names(&x->config, &x->heads));
    int classes = x->heads.count ? head_classes(x->file, x->heads.weight[0]) : 0;
    if (o->classes <= 0 && classes) options->classes = classes;
    for (int i = 1; i < x->heads.count; i++) options->aux = options->aux && has_part(x->file, x->heads.part[i]);
    return OK;
}

/* PyTorch counts the batches that updated a layer's running averages. All layers have the same number; take any. */
static int64_t batches_tracked(const SafeTensors *file)
{
    int64_t count = 0;
    for (int i = 0; i < safetensors_count(file); i++) {
        const StTensor *t = safetensors_at(file, i);
        if (ends_with(t->name, ".num_batches_tracked") && t->dtype == ST_I64 && t->bytes == sizeof count)
            memcpy(&count, t->data, sizeof count);
    }
    return count < 0 ? 0 : count;
}

/* ---- reading */

static Status graphs_make(Export *x)
{
    ProgramConfig config = x->config;
    if (config.model->generate) {
        TRY(generator_graph(config.model, &config.options, 1, &x->generator));
        TRY(layout_create(x->generator, &x->layout));
        x->map = weight_map(x->layout);
        return OK;
    }
    config.fuse_siblings = config.pool_behind_conv = false;
    config.compute = DTYPE_F32;
    TRY(program_layout(&config, 1, &x->layout));
    x->map = weight_map(x->layout);
    config.training = false;
    return program_graph(&config, 1, &x->evaluation);
}

static Status weights_read(Export *x)
{
    x->params = calloc(x->layout->param_elements + 1, sizeof *x->params);
    x->running = calloc(x->layout->running_elements + 1, sizeof *x->running);
    if (!x->params || !x->running)
        return FAIL(ERR_MEMORY, "no memory for the weights (%zu MiB)",
                    x->layout->param_elements * sizeof *x->params >> 20);
    if (x->generator)
        TRY(network_read(x->layout, x->config.model->name, x->file, x->from, x->params, x->running));
    else
        TRY(pretrained_read(&x->map, &x->config, x->from, HEAD_READ, x->params, x->running, NULL));
    TRY(weights_pack(&x->map, "", x->params, &x->list));
    return running_pack(&x->map, "", x->running, batches_tracked(x->file), &x->list);
}

static void export_close(Export *x)
{
    classifier_close(&x->ranges.classifier);
    free(x->ranges.range);
    weight_list_clear(&x->list);
    layout_destroy(x->layout);
    program_destroy(&x->evaluation);
    graph_destroy(x->generator);
    safetensors_close(x->file);
    json_decref(x->facts);
    free(x->params);
    free(x->running);
}

/* ---- writing */

/* What the file says about itself goes on, with the names of the classes from wherever they are known. */
static Status about_make(const Export *x, About *about)
{
    Status st = OK;
    static const char *const kept[] = {
        "exif",       "crop",       "eval_crop",       "interpolation", "amp", "amp_dtype", "several_classes",
        "label_base", "background", "data_fingerprint"};
    json_t *names = json_object_get(x->facts, "class_names");
    size_t count = json_array_size(names);
    bool all = (int)count == x->config.options.classes;
    const char **list = json_texts(names);
    if (!list) return FAIL(ERR_MEMORY, "no memory for the names of %zu classes", count);
    about_begin(&x->config, NULL, about);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (json_word(x->facts, kept[i])) about_add(about, kept[i], json_word(x->facts, kept[i]));
    int64_t resize = facts_resize(x->facts, x->config.options.side);
    if (resize > 0) about_number(about, "eval_resize", resize);
    if (x->temperature > 0) about_real(about, "temperature", x->temperature);
    if (all) st = about_classes(about, list, (int)count);
    free(list);
    return st;
}

/* What who runs an ONNX file must know: its reader must not normalize once more. */
static void input_say(const Export *x, bool preprocess, About *about)
{
    const Model *model = x->config.model;
    bool own = x->own_graph && !network_facts(model).normalizes, sigmoid = x->config.loss == LOSS_BCE;
    about_add(about, "input",
              x->generator ? "independent standard normal numbers; the images are NCHW, pixels in [0, 1]"
              : preprocess ? "NHWC, bytes of img_size; the graph divides by 255, subtracts mean and divides by std"
              : own        ? "pixels in [0, 1], from which mean was subtracted, divided by std"
                           : "NCHW, pixels in [0, 1]; the graph subtracts mean and divides by std");
    if (!x->generator && !x->own_graph)
        about_add(about, "output",
                  preprocess ? "probabilities: the graph divides by the temperature and applies the softmax or sigmoid"
                  : sigmoid
                      ? "logits, whose sigmoid are the probabilities"
                      : "logits: divided by the temperature, if there is one, their softmax are the probabilities");
}

static Status weights_write(const Export *x, bool onnx, bool preprocess)
{
    Status st = OK;
    const Model *model = x->config.model;
    About about = {0};
    bool sigmoid = x->config.loss == LOSS_BCE;
    OnnxBytes bytes = {sigmoid, x->temperature > 0 ? (float)x->temperature : 1};
    OnnxPixels pixels = {model->mean, model->std};
    TRY_OUT(about_make(x, &about));
    if (onnx) input_say(x, preprocess, &about);
    if (x->own_graph) {
        TRY_OUT(network_write(model, &x->list, x->config.options.classes, about.pair + 1, about.count - 1, x->to));
    } else if (onnx) {
        const Graph *graph = x->generator ? x->generator : x->evaluation.graph;
        if (x->ranges.range) graph = x->ranges.classifier.replica->eval[0].graph;
        TRY_OUT(onnx_write(x->to, model->name, graph, &x->list, about.pair + 1, about.count - 1,
                           x->generator ? &pixels : NULL, preprocess ? &bytes : NULL, x->ranges.range));
    } else {
        TRY_OUT(safetensors_replace(x->to, x->list.tensor, x->list.count, about.pair, about.count));
    }
out:
    about_close(&about);
    return st;
}

/* Choose output file and format: as given, else by the file's extension. */
static Status target_choose(const Options *o, const Model *model, char *target, size_t bytes, bool *onnx)
{
    const char *name = o->argument_count > 1 ? o->arguments[1] : NULL;
    if (o->format >= FORMAT_FOLDER) return FAIL(ERR_ARG, "towers export --format: expected safetensors or onnx");
    bool by_name = name && o->format == FORMAT_AUTO;
    if (name && (!*name || strlen(name) >= bytes))
        return FAIL(ERR_ARG, "export: the file name is %s", *name ? "too long" : "empty");
    if (by_name && !ends_with(name, ".safetensors") && !ends_with(name, ".onnx"))
        return FAIL(ERR_ARG,
                    "export: the extension of %s names no format that is written here; name the file .safetensors or "
                    ".onnx, or give --format",
                    name);
    *onnx = o->format == FORMAT_ONNX || (by_name && ends_with(name, ".onnx"));
    if (name)
        snprintf(target, bytes, "%s", name);
    else if (model->file) /* "net.onnx" is the network itself, perhaps in this folder */
        snprintf(target, bytes, "%.*s%s", (int)(strlen(model->name) - strlen(".onnx")), model->name,
                 *onnx ? "-trained.onnx" : ".safetensors");
    else
        snprintf(target, bytes, "%s.%s", model->name, *onnx ? "onnx" : "safetensors");
    return OK;
}

/* Weights that a run has recorded stay what it recorded. */
static Status recorded_keep(const char *target)
{
    char settings[PATH_BYTES];
    const char *slash = strrchr(target, '/'), *name = slash ? slash + 1 : target;
    int folder = (int)(name - target);
    if (strcmp(name, "best.safetensors") != 0 && strcmp(name, "last.safetensors") != 0) return OK;
    if (snprintf(settings, sizeof settings, "%.*sargs.yaml", folder, target) >= PATH_BYTES) return OK;
    return access(settings, F_OK) != 0
               ? OK
               : FAIL(ERR_ARG, "export: %s is the name of weights that a run records; name another file", target);
}

Status export_run(const Options *o, JobFiles *files, FILE *to)
{
    Status st = OK;
    char from[4096], target[4096], part[4096 + 1024];
    bool onnx = false;
    Export x = {.config = files->job.program, .from = from, .to = target};
    if (!o->weights) return FAIL(ERR_ARG, "export needs weights: use --weights RUN or --weights FILE");
    if (x.config.model->file) TRY(own_network_described(o, x.config.model));
    TRY(target_choose(o, x.config.model, target, sizeof target, &onnx));
    if ((o->preprocess || o->int8) && (!onnx || x.config.model->generate))
        return FAIL(ERR_ARG, "towers export --%s: expected a classifier as ONNX, found %s; %s",
                    o->int8 ? "int8" : "preprocess", onnx ? "a generator" : "safetensors",
                    onnx ? "leave it out" : "name the file .onnx");
    TRY(job_weights(o, o->weights, from, sizeof from));
    if (x.config.model->file && is_same_file(target, x.config.model->file))
        return FAIL(ERR_ARG, "export: %s is the file of the network; name another one to write to", target);
    if (is_same_file(from, target))
        return FAIL(ERR_ARG, "export: %s and %s are the same file; name another one to write to", target, from);
    TRY(recorded_keep(target));
    TRY(result_file_check("export:", target, onnx ? RESULT_ONNX : RESULT_SAFETENSORS, NULL));
    x.own_graph = x.config.model->file && onnx && !o->preprocess && !o->int8;
    TRY_OUT(weights_open(from, &x.file));
    TRY_OUT(facts_read(o, from, &x.facts));
    TRY_OUT(file_ask(o, &x));
    if (!o->quiet && *weight_part_text(&x.part, from, part, sizeof part)) text_printf(stderr, "%s\n", part);
    if (!x.config.model->generate && x.config.loss != LOSS_BCE) TRY_OUT(calibration_read(o, from, &x.temperature));
    TRY_OUT(graphs_make(&x));
    TRY_OUT(weights_read(&x));
    if (o->int8) TRY_OUT(activation_ranges_measure(o, files, &x.config, from, &x.ranges));
    TRY_OUT(weights_write(&x, onnx, o->preprocess));
    if (!o->quiet && o->int8)
        text_printf(to, "%s: ONNX of %s in int8, %d classes, from %s, ranges from %" PRId64 " images of %s\n", target,
                    x.config.model->name, x.config.options.classes, from, x.ranges.images,
                    source_info(files->train)->name);
    else if (!o->quiet && x.generator)
        text_printf(to, "%s: %s of the generator of %s, from %s\n", target, onnx ? "ONNX" : "safetensors",
                    x.config.model->name, from);
    else if (!o->quiet)
        text_printf(to, "%s: %s of %s, %d classes, from %s\n", target, onnx ? "ONNX" : "safetensors",
                    x.config.model->name, x.config.options.classes, from);
out:
    export_close(&x);
    return st;
}
