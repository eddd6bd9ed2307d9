/* --class-weights: the weight of each class in the training loss; see job.h.
 *
 * auto: w[k] = N / (K n[k]), for N training images of K classes with n[k] each, so that all classes have the same sum of
 * weights. With --loss bce the weight is that of the images that have the class, in the decision whether an image has it:
 * w[k] = (N - n[k]) / n[k], so that both answers have the same sum of weights (1 / N for a class that all images have).
 * POWER: w[k]^POWER. FILE: lines CLASS,WEIGHT for every class, by its name, or its number if no names are numbers; # begins a comment. A class without
 * training images has weight 0 in the first two, which with --loss bce no image uses. */
#include "inception/job/job.h"
#include "inception/options/values.h"
#include "towers/files/utf8.h"

enum { FILE_LIMIT = 64 << 20 /* bytes */ };

static Status weights_of_counts(const Source *source, LossKind loss, double power, float *weights)
{
    const SourceInfo *info = source_info(source);
    int64_t *counts = calloc((size_t)info->classes + 1, sizeof *counts);
    int present = 0;
    if (!counts) return FAIL(ERR_MEMORY, "no memory for the counts of %d classes", info->classes);
    source_classes_count(source, counts);
    for (int k = 0; k < info->classes; k++) present += counts[k] > 0;
    for (int k = 0; k < info->classes; k++) {
        double all = (double)info->count, own = (double)counts[k], others = fmax(all - own, 1);
        if (own > 0) weights[k] = (float)pow(loss == LOSS_BCE ? others / own : all / ((double)present * own), power);
    }
    free(counts);
    return OK;
}

static Status line_read(const SourceInfo *info, const char *path, int number, char *line, float *weights)
{
    char *comma = strrchr(line, ',');
    double weight = 0;
    bool read = comma && text_to_real(comma + 1 + strspn(comma + 1, " \t"), &weight) == VALUE_OK;
    if (comma) *comma = 0;
    if (!read || !(weight > 0 && weight < 1e6))
        return FAIL(ERR_ARG, "'%s', line %d: expected CLASS,WEIGHT with a weight above 0 and below 1e6", path, number);
    int class = class_of_word(&(ClassList){.names = info->class_names, .count = info->classes}, line);
    if (class < 0)
        return FAIL(ERR_ARG, "'%s', line %d: there is no class '%s' (towers data info lists the classes)", path, number,
                    line);
    if (weights[class] > 0) return FAIL(ERR_ARG, "'%s', line %d: class '%s' has a weight already", path, number, line);
    weights[class] = (float)weight;
    return OK;
}

static Status weights_of_file(const SourceInfo *info, const char *path, float *weights)
{
    Status st = OK;
    char *text = NULL, *next;
    size_t bytes;
    int number = 1;
    TRY(file_load(path, OF_USER, ERR_ARG, FILE_LIMIT, &text, &bytes));
    for (char *line = text + utf8_mark(text); line; line = next, number++) {
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        line[strcspn(line, "\r")] = 0;
        if (*line && *line != '#') TRY_OUT(line_read(info, path, number, line, weights));
    }
    for (int k = 0; k < info->classes; k++) {
        const char *name = info->class_names[k];
        if (!(weights[k] > 0))
            TRY_OUT(FAIL(ERR_ARG, "'%s' has no weight for class %d%s%s%s; expected a line for each of the %d classes",
                         path, k, *name ? " (" : "", name, *name ? ")" : "", info->classes));
    }
out:
    free(text);
    return st;
}

Status job_class_weights(const Options *o, JobFiles *files)
{
    const char *given = o->class_weights;
    if (!given) return OK;
    double power = 1;
    bool counted = !strcmp(given, "auto") || text_to_real(given, &power) == VALUE_OK;
    if (counted && !(power >= 0 && power <= 10))
        return FAIL(ERR_ARG, "--class-weights %s: expected a power from 0 to 10", given);
    if (!counted && access(given, F_OK) != 0)
        return FAIL(
            ERR_ARG,
            "--class-weights '%s': expected auto, a power such as 0.5, or a file with lines CLASS,WEIGHT: there is "
            "no such file",
            given);
    files->class_weight = calloc((size_t)files->job.program.options.classes + 1, sizeof(float));
    if (!files->class_weight) return FAIL(ERR_MEMORY, "no memory for the weights of the classes");
    files->job.data.class_weight = files->class_weight;
    return counted ? weights_of_counts(files->train, files->job.program.loss, power, files->class_weight)
                   : weights_of_file(source_info(files->train), given, files->class_weight);
}
