/* Reading and writing calibration.json; see calibration.h. */
#include "inception/job/calibration.h"

#include "towers/files/files.h"
#include "towers/files/json.h"
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

Status calibration_read(const Options *o, const char *weights, double *temperature)
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
    if (!of || !(found >= TEMPERATURE_LEAST && found <= TEMPERATURE_MOST))
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
    TRY(weights_text(weights, own));
    json_t *root = json_pack("{s:f, s:s, s:I, s:[oo], s:[oo], s:[oo]}", "temperature", c->temperature, "weights", own,
                             "images", (json_int_t)c->images, "loss", json_finite(c->loss[0]), json_finite(c->loss[1]),
                             "calibration_error", json_finite(c->error[0]), json_finite(c->error[1]), "reliability",
                             reliability(c->bins[0]), reliability(c->bins[1]));
    return json_replace(calibration_run(o), file_name, root, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
}
