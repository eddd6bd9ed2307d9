/* Reading and writing temperatures; see calibration.h. */
#include "inception/job/calibration.h"

#include <fcntl.h>

#include "inception/job/facts.h"
#include "inception/options/values.h"
#include "towers/files/files.h"
#include "towers/files/json.h"
#include "towers/replica/about.h"
#include "towers/replica/temperature.h"

static const char file_name[] = "calibration.json";

const char *calibration_run(const Options *o)
{
    struct stat info;
    return o->weights && stat(o->weights, &info) == 0 && S_ISDIR(info.st_mode) ? o->weights : NULL;
}

/* "SIZE-HASH" */
static Status weights_text(const char *weights, char text[64])
{
    FileSum sum;
    TRY(file_sum(weights, &sum));
    snprintf(text, 64, "%" PRIu64 "-%016" PRIx64 "%016" PRIx64, sum.bytes, sum.high, sum.low);
    return OK;
}

static bool is_possible(double temperature)
{
    return temperature >= TEMPERATURE_LEAST && temperature <= TEMPERATURE_MOST;
}

/* That of calibration.json, where earlier versions had it. */
static Status run_temperature(const Options *o, const char *weights, double *temperature)
{
    char path[PATH_BYTES], own[64];
    const char *run = calibration_run(o);
    *temperature = 0;
    if (!run) return OK;
    TRY(path_join(path, run, file_name));
    if (access(path, F_OK) != 0) return OK;
    TRY(weights_text(weights, own));
    json_t *root = json_of_run(run, file_name);
    double found = json_number_value(json_object_get(root, "temperature"));
    const char *of = json_word(root, "weights");
    bool same = of && !strcmp(of, own);
    json_decref(root);
    if (!of || !is_possible(found))
        return FAIL(ERR_FORMAT,
                    "'%s': expected weights and a temperature from %g to %g; remove the file, or fit it again: towers "
                    "eval RUN --calibrate",
                    path, TEMPERATURE_LEAST, TEMPERATURE_MOST);
    if (!o->quiet && same) text_printf(stderr, "temperature    %.4f (%s)\n", found, path);
    if (!o->quiet && !same)
        text_printf(stderr, "'%s' is of other weights and is not used; towers eval RUN --calibrate fits it again\n",
                    path);
    if (same) *temperature = found;
    return OK;
}

Status calibration_read(const Options *o, const char *weights, double *temperature)
{
    json_t *facts;
    double found = 0;
    TRY(facts_read(o, weights, &facts));
    const char *text = json_word(facts, "temperature");
    bool has = text != NULL, plain = text && text_to_real(text, &found) == VALUE_OK && is_possible(found);
    json_decref(facts);
    if (!has) return run_temperature(o, weights, temperature);
    if (!plain)
        return FAIL(ERR_FORMAT, "'%s': its metadata temperature is no number from %g to %g", weights, TEMPERATURE_LEAST,
                    TEMPERATURE_MOST);
    if (!o->quiet) text_printf(stderr, "temperature    %.4f (%s)\n", found, weights);
    *temperature = found;
    return OK;
}

/* The same tensors with another temperature in the metadata, or with none (0). */
static Status weights_mark(const char *path, double temperature)
{
    enum { MOST = 256 };
    Status st = OK;
    SafeTensors *file = NULL;
    struct stat before;
    About about = {0};
    StPair pairs[MOST + 1];
    const StPair *old;
    StTensor *tensors = NULL;
    if (stat(path, &before) != 0) return FAIL(ERR_IO, "'%s': %s", path, strerror(errno));
    TRY(safetensors_open(path, &file));
    int count = safetensors_count(file), had = safetensors_pairs(file, &old), has = 0;
    if (had > MOST) TRY_OUT(FAIL(ERR_CHECKPOINT, "'%s' has %d metadata; expected at most %d", path, had, MOST));
    for (int i = 0; i < had; i++)
        if (strcmp(old[i].key, "temperature") != 0) pairs[has++] = old[i];
    if (temperature > 0) about_real(&about, "temperature", temperature);
    if (temperature > 0) pairs[has++] = about.pair[0];
    tensors = calloc((size_t)count + 1, sizeof *tensors);
    if (!tensors) TRY_OUT(FAIL(ERR_MEMORY, "no memory for the list of %d tensors", count));
    for (int i = 0; i < count; i++) tensors[i] = *safetensors_at(file, i);
    TRY_OUT(safetensors_replace(path, tensors, count, pairs, has));
    if (utimensat(AT_FDCWD, path, (struct timespec[]){before.st_atim, before.st_mtim}, 0) != 0)
        st = FAIL(ERR_IO, "cannot set the time of '%s': %s", path, strerror(errno));
out:
    free(tensors);
    about_close(&about);
    safetensors_close(file);
    return st;
}

Status calibration_remove(const Options *o, const char *weights)
{
    char path[PATH_BYTES];
    TRY(weights_mark(weights, 0));
    TRY(path_join(path, calibration_run(o), file_name));
    return unlink(path) == 0 || errno == ENOENT ? OK : FAIL(ERR_IO, "cannot remove '%s': %s", path, strerror(errno));
}

static json_t *reliability(const ReliabilityBin *bins)
{
    json_t *images = json_array(), *right = json_array(), *sure = json_array();
    for (int b = 0; b < RELIABILITY_BINS; b++) {
        double answers = (double)bins[b].answers;
        json_array_append_new(images, json_integer((json_int_t)bins[b].answers));
        json_array_append_new(right, json_finite((double)bins[b].right / answers));
        json_array_append_new(sure, json_finite(bins[b].sure / answers));
    }
    return json_pack("{s:o, s:o, s:o}", "images", images, "accuracy", right, "probability", sure);
}

Status calibration_write(const Options *o, const char *weights, const Calibration *c)
{
    char own[64];
    TRY(weights_mark(weights, c->temperature));
    TRY(weights_text(weights, own));
    json_t *root = json_pack("{s:f, s:s, s:I, s:[oo], s:[oo], s:[oo]}", "temperature", c->temperature, "weights", own,
                             "images", (json_int_t)c->images, "loss", json_finite(c->loss[0]), json_finite(c->loss[1]),
                             "calibration_error", json_finite(c->error[0]), json_finite(c->error[1]), "reliability",
                             reliability(c->bins[0]), reliability(c->bins[1]));
    return json_replace(calibration_run(o), file_name, root, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
}
