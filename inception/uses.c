/* Which optimizer and which schedule read an option; see uses.h. */
#include "inception/uses.h"

#include <string.h>

typedef struct Use {
    OptionId id, chooser;
    unsigned by;       /* bits of the chooser's values that read it */
    const char *names; /* the same, for people */
} Use;

#define BIT(value) (1u << (value))
#define RMSPROPS (BIT(OPT_RMSPROP) | BIT(OPT_RMSPROP_TF))
#define ADAMS (BIT(OPT_ADAM) | BIT(OPT_ADAMW))
#define SGDS (BIT(OPT_SGD) | BIT(OPT_MOMENTUM) | BIT(OPT_NESTEROV))
#define STAIRS (BIT(SCHEDULE_STEP) | BIT(SCHEDULE_EXPONENTIAL))
#define CURVES (BIT(SCHEDULE_COSINE) | BIT(SCHEDULE_POLYNOMIAL) | BIT(SCHEDULE_ONE_CYCLE))

static const Use uses[] = {
    {OPTION_ID_momentum, OPTION_ID_opt, SGDS | RMSPROPS, "sgd, momentum, nesterov, rmsprop and rmsprop-tf"},
    {OPTION_ID_beta1, OPTION_ID_opt, ADAMS, "adam and adamw"},
    {OPTION_ID_beta2, OPTION_ID_opt, ADAMS, "adam and adamw"},
    {OPTION_ID_opt_eps, OPTION_ID_opt, ADAMS | RMSPROPS, "adam, adamw, rmsprop and rmsprop-tf"},
    {OPTION_ID_opt_decay, OPTION_ID_opt, RMSPROPS, "rmsprop and rmsprop-tf"},
    {OPTION_ID_lr_schedule, OPTION_ID_sched, BIT(SCHEDULE_PIECEWISE), "piecewise"},
    {OPTION_ID_min_lr, OPTION_ID_sched, CURVES | STAIRS, "step, exponential, cosine, polynomial and onecycle"},
    {OPTION_ID_decay_rate, OPTION_ID_sched, STAIRS, "step and exponential"},
    {OPTION_ID_decay_epochs, OPTION_ID_sched, STAIRS, "step and exponential"},
    {OPTION_ID_power, OPTION_ID_sched, BIT(SCHEDULE_POLYNOMIAL), "polynomial"},
    {OPTION_ID_warmup_epochs, OPTION_ID_sched, ~BIT(SCHEDULE_ONE_CYCLE),
     "every schedule but onecycle, which has its own"},
};

static unsigned chosen(const Options *o, OptionId chooser)
{
    return BIT(chooser == OPTION_ID_opt ? (int)o->opt : (int)o->sched);
}

Status uses_check(const Options *o)
{
    char value[OPTION_FORMAT_BYTES], by[OPTION_FORMAT_BYTES];
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        const Use *use = &uses[i];
        const char *flag = option_info(use->id)->flag, *chooser = option_info(use->chooser)->flag;
        if (o->origin[use->id] != ORIGIN_COMMAND_LINE || !option_belongs(use->chooser, o->verb)) continue;
        if (use->by & chosen(o, use->chooser) || !strcmp(option_format(o, use->id, value, sizeof value), "0")) continue;
        return FAIL(ERR_ARG, "--%s has no use with --%s %s: it is of %s", flag, chooser,
                    option_format(o, use->chooser, by, sizeof by), use->names);
    }
    return OK;
}
