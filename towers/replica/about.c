/* The metadata of a file of weights; see about.h. */
#include "towers/replica/about.h"
#include "towers/files/utf8.h"

#include <jansson.h>

enum { NAMES_BYTES = 4 << 20 };

static const char *const filters[] = {
    [RESIZE_BILINEAR] = "bilinear",     [RESIZE_BICUBIC] = "bicubic",       [RESIZE_TF_BILINEAR] = "tf-bilinear",
    [RESIZE_TF_NEAREST] = "tf-nearest", [RESIZE_TF_BICUBIC] = "tf-bicubic", [RESIZE_TF_AREA] = "tf-area",
};

void about_add(About *about, const char *key, const char *value)
{
    if (about->count < ABOUT_PAIRS) about->pair[about->count++] = (StPair){key, value};
}

__attribute__((format(printf, 3, 4))) static void text_put(About *about, const char *key, const char *format, ...)
{
    char *to = about->text + about->used;
    size_t room = sizeof about->text - about->used;
    va_list args;
    va_start(args, format);
    int length = vsnprintf(to, room, format, args);
    va_end(args);
    if (length < 0 || (size_t)length >= room) return;
    about->used += (size_t)length + 1;
    about_add(about, key, to);
}

void about_number(About *about, const char *key, int64_t value)
{
    text_put(about, key, "%" PRId64, value);
}

/* The fewest digits that read back as this number; of a float, if they are read as one. */
static const char *digits_text(double value, bool single, char text[32])
{
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, 32, "%.*g", digits, value);
        if (single ? strtof(text, NULL) == (float)value : strtod(text, NULL) == value) break;
    }
    return text;
}

void about_real(About *about, const char *key, double value)
{
    char text[32];
    text_put(about, key, "%s", digits_text(value, false, text));
}

static void channels_put(About *about, const char *key, const float *value, int32_t channels)
{
    char text[3][32];
    for (int i = 0; i < channels; i++) digits_text((double)value[i], true, text[i]);
    if (channels == 3)
        text_put(about, key, "%s,%s,%s", text[0], text[1], text[2]);
    else
        text_put(about, key, "%s", text[0]);
}

static void transform_put(About *about, const Transform *eval)
{
    static const char *const crops[] = {[CROP_WHOLE] = "whole", [CROP_CENTER] = "center", [CROP_FRACTION] = "fraction"};
    about_add(about, "crop", crops[eval->crop]);
    if (eval->crop == CROP_CENTER) about_number(about, "eval_resize", eval->resize);
    if (eval->crop == CROP_FRACTION) about_real(about, "eval_crop", eval->fraction);
    about_add(about, "interpolation", filters[eval->filter]);
    about_add(about, "exif", eval->exif ? "true" : "false");
}

void about_begin(const ProgramConfig *program, const Transform *eval, About *about)
{
    const ModelOptions *options = &program->options;
    *about = (About){0};
    about_add(about, "format", "pt");
    about_add(about, "model", program->model->name);
    if (program->model->digest) about_add(about, "network", program->model->digest);
    about_add(about, "variant", options->variant ? options->variant : "");
    if (program->model->classes) text_put(about, "classes", "%d", options->classes);
    if (program->model->width) text_put(about, "width", "%d", options->width);
    text_put(about, "channels", "%d", options->channels);
    text_put(about, "img_size", "%d", options->side);
    channels_put(about, "mean", model_mean(program->model, options), options->channels);
    channels_put(about, "std", model_std(program->model, options), options->channels);
    if (eval) transform_put(about, eval);
    if (program->model->generate) about_add(about, "maps", "channels first");
    if (program->loss == LOSS_BCE) about_add(about, "loss", "bce");
    if (program->multi_label) about_add(about, "several_classes", "true");
    about_add(about, "towers_version", TOWERS_VERSION);
}

Status about_classes(About *about, const char *const *names, int count)
{
    bool named = count > 0;
    for (int i = 0; i < count; i++) named = named && names[i] && *names[i] && utf8_valid(names[i]);
    if (!named) return OK;
    json_t *list = json_array();
    for (int i = 0; i < count; i++) json_array_append_new(list, json_string(names[i]));
    bool whole = (int)json_array_size(list) == count;
    about->names = whole ? json_dumps(list, JSON_COMPACT) : NULL;
    json_decref(list);
    if (!about->names) return FAIL(ERR_MEMORY, "no memory for the names of %d classes", count);
    if (strlen(about->names) <= NAMES_BYTES) about_add(about, "class_names", about->names);
    return OK;
}

Status about_job(const TrainJob *job, About *about)
{
    Transform eval = job_transform(job, false);
    about_begin(&job->program, &eval, about);
    const char *narrow = job->device.tf32                     ? "tf32"
                         : job->program.compute == DTYPE_BF16 ? "bf16"
                         : job->program.compute == DTYPE_F16  ? "fp16"
                                                              : NULL;
    if (narrow) about_add(about, "amp", "true");
    if (narrow) about_add(about, "amp_dtype", narrow);
    const SourceInfo *data = job->train ? source_info(job->train) : NULL;
    if (!data) return OK;
    text_put(about, "data_fingerprint", "%016" PRIx64 "%016" PRIx64, data->fingerprint[0], data->fingerprint[1]);
    if (job->program.model->classes) about_number(about, "label_base", data->first_label);
    if (data->background) about_add(about, "background", "true");
    bool all = job->program.model->classes && data->classes == job->program.options.classes;
    return all ? about_classes(about, data->class_names, data->classes) : OK;
}

void about_close(About *about)
{
    free(about->names);
    about->names = NULL;
}
