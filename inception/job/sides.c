/* --img-size-schedule "128:0,160:10,192:20"; see job.h. */
#include "inception/job/job.h"

enum { SIDE_MAX = 4096 /* of --img-size */ };

/* The number at *at, and what must follow it: `ending`, or the end of the text if `last`. False for anything else. */
static bool number_read(const char **at, char ending, bool last, int64_t *number)
{
    enum { DIGITS_MAX = 9 };
    size_t digits = strspn(*at, "0123456789");
    *number = strtoll(*at, NULL, 10);
    *at += digits;
    if (digits == 0 || digits > DIGITS_MAX) return false;
    if (last && !**at) return true;
    return *(*at)++ == ending;
}

Status job_sides(const Options *o, TrainJob *job)
{
    const char *text = o->img_size_schedule, *at = text;
    if (!text) return OK;
    for (job->side_count = 0; *at || at == text || at[-1] == ','; job->side_count++) {
        int place = (int)(at - text) + 1;
        int64_t side, epoch;
        const SideStage *before = job->side_count ? &job->sides[job->side_count - 1] : NULL;
        if (job->side_count == SIDE_STAGES)
            return FAIL(ERR_ARG, "--img-size-schedule '%s': more than %d sides", text, SIDE_STAGES);
        if (!number_read(&at, ':', false, &side) || !number_read(&at, ',', true, &epoch) || side < 1 || side > SIDE_MAX)
            return FAIL(ERR_ARG, "--img-size-schedule '%s': character %d: expected SIDE:EPOCH, e.g. 128:0,160:10", text,
                        place);
        if (before ? epoch <= before->epoch || side <= before->side : epoch != 0)
            return FAIL(ERR_ARG,
                        "--img-size-schedule '%s': character %d: the first side must begin after 0 epochs, and each "
                        "other one must be larger and begin later than the one before",
                        text, place);
        job->sides[job->side_count] = (SideStage){epoch, (int32_t)side};
    }
    int32_t last = job->sides[job->side_count - 1].side;
    if (o->img_size > 0 && o->img_size != last && o->origin[OPTION_ID_img_size] > ORIGIN_CONFIG)
        return FAIL(ERR_ARG,
                    "--img-size-schedule '%s' ends with %d, but --img-size is %" PRId64 "; leave one of them out", text,
                    last, o->img_size);
    return OK;
}

static bool same_parameters(const Layout *a, const Layout *b)
{
    if (a->param_count != b->param_count) return false;
    for (int i = 0; i < a->param_count; i++)
        if (memcmp(&a->params[i].shape, &b->params[i].shape, sizeof(Shape)) != 0) return false;
    return true;
}

Status job_sides_check(const TrainJob *job)
{
    Status st = OK;
    ProgramConfig config = job->program;
    Layout *whole = NULL, *small = NULL;
    if (!job->side_count) return OK;
    config.train_side = job->sides[0].side; /* the others lie between this one and the last */
    int32_t least = config.options.aux ? config.model->aux_min_side : config.model->min_side;
    if (config.train_side < least)
        return FAIL(ERR_ARG, "--img-size-schedule: %d is too small for %s, which needs at least %d%s",
                    config.train_side, config.model->name, least, config.options.aux ? ", or --no-aux" : "");
    TRY_OUT(program_layout(&config, 1, &small));
    TRY_OUT(program_layout(&job->program, 1, &whole));
    if (!same_parameters(small, whole))
        TRY_OUT(FAIL(ERR_UNSUPPORTED,
                     "--img-size-schedule: the parameters of %s depend on the size of its images; it needs a network "
                     "that ends in a global average pool",
                     config.model->name));
out:
    layout_destroy(small);
    layout_destroy(whole);
    return st;
}
