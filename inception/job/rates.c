/* Factors of the learning rate: --lr-mult gives them by names of parameters, --layer-decay by the distance from the
 * classifier, as timm's param_groups_layer_decay with a group for each top-level module: with G modules in the order of
 * the forward pass, module g has the factor decay^(G - 1 - g), and the classifier 1. */
#include "inception/job/job.h"
#include "inception/options/values.h"

int modules_list(const Program *program, NameFactor rates[RATES_MAX])
{
    int count = 0;
    for (int i = 0; i < program->forward_end; i++) {
        const Op *op = graph_op_at(program->graph, i);
        for (int k = 0; k < op->in_count; k++) {
            const ValueInfo *info = op->in[k].id ? graph_value(program->graph, op->in[k]) : NULL;
            if (!info || info->role != ROLE_PARAM || count == RATES_MAX) continue;
            int known = 0, name = (int)strcspn(info->name, ".");
            snprintf(rates[count].pattern, sizeof rates->pattern, "%.*s.*", name, info->name);
            while (known < count && strcmp(rates[known].pattern, rates[count].pattern) != 0) known++;
            count += known == count;
        }
    }
    return count;
}

int64_t role_count(const Graph *g, Role role, const char *names)
{
    NameFilter filter = {.only = names};
    int64_t count = 0;
    for (int32_t id = 1; id <= graph_value_count(g); id++) {
        const ValueInfo *info = graph_value(g, (Value){id});
        if (info->role == role && names_pass(&filter, info->name)) count += shape_count(info->shape);
    }
    return count;
}

/* Append the rows of "fc*=10,Mixed_5*=0.1". */
static Status rules_read(const char *rules, const Model *model, const Program *program, NameFactor rates[RATES_MAX],
                         int *count)
{
    for (const char *at = rules; at && *at;) {
        char number[32];
        int all = (int)strcspn(at, ","), name = (int)strcspn(at, ",=");
        if (*count == RATES_MAX) return FAIL(ERR_ARG, "--lr-mult has more than %d patterns", RATES_MAX);
        NameFactor *rate = &rates[(*count)++];
        snprintf(number, sizeof number, "%.*s", all > name ? all - name - 1 : 0, at + name + 1);
        if (name == 0 || (size_t)name >= sizeof rate->pattern || text_to_real(number, &rate->factor) != VALUE_OK ||
            !(rate->factor >= 0 && rate->factor <= 1e6))
            return FAIL(ERR_ARG, "--lr-mult: '%.*s' is not PATTERN=FACTOR with a factor of 0 to 1e6, e.g. fc*=10", all,
                        at);
        snprintf(rate->pattern, sizeof rate->pattern, "%.*s", name, at);
        if (!role_count(program->graph, ROLE_PARAM, rate->pattern))
            return FAIL(ERR_ARG, "--lr-mult: '%s' matches no parameter of %s ('towers info %s' lists its layers)",
                        rate->pattern, model->name, model->name);
        at += all + (at[all] == ',');
    }
    return OK;
}

Status job_rates(const Options *o, JobFiles *files)
{
    Program program;
    int count = 0;
    TrainJob *job = &files->job;
    ProgramConfig config = job->program;
    if (!o->lr_mult && o->layer_decay >= 1) return OK;
    config.training = true;
    config.fuse_siblings = config.pool_behind_conv = false;
    if (!(files->rates = calloc(RATES_MAX, sizeof *files->rates))) return FAIL(ERR_MEMORY, "no memory for rates");
    TRY(program_graph(&config, 1, &program));
    if (o->layer_decay < 1) count = modules_list(&program, files->rates);
    for (int g = 0; g < count; g++) files->rates[g].factor = pow(o->layer_decay, count - 1 - g);
    Status st = rules_read(o->lr_mult, config.model, &program, files->rates, &count);
    program_destroy(&program);
    job->rates = files->rates;
    job->rate_count = count;
    return st;
}
