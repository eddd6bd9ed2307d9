/* Settling options; see settle.h. */
#include "inception/options/settle.h"
#include "inception/options/options_internal.h"

static void settle(Options *options, OptionId id, OptionType type, const void *value)
{
    const OptionInfo *info = option_info(id);
    if (info->type != type) abort(); /* a mistake in this program: another field would be written */
    memcpy((char *)options + info->offset, value, info->bytes);
}

void option_settle_int(Options *options, OptionId id, int64_t value)
{
    settle(options, id, OPTION_IS_INT, &value);
}

void option_settle_real(Options *options, OptionId id, double value)
{
    settle(options, id, OPTION_IS_REAL, &value);
}

void option_settle_flag(Options *options, OptionId id, bool value)
{
    settle(options, id, OPTION_IS_FLAG, &value);
}

void option_settle_choice(Options *options, OptionId id, int value)
{
    settle(options, id, OPTION_IS_CHOICE, &value);
}

Status option_settle_text(Options *options, OptionId id, const char *value)
{
    const char *kept;
    TRY(keep_text(options, value, &kept));
    settle(options, id, OPTION_IS_TEXT, &kept);
    return OK;
}

void option_settle_default(Options *options, OptionId id)
{
    settle(options, id, option_info(id)->type, (const char *)&option_defaults + option_info(id)->offset);
}

OptionOrigin option_withdraw(Options *options, OptionId id)
{
    OptionOrigin origin = options->origin[id];
    option_settle_default(options, id);
    options->origin[id] = ORIGIN_DEFAULT;
    return origin;
}

void option_give(Options *options, OptionId id, OptionOrigin origin)
{
    options->origin[id] = origin;
}

Status option_settle_argument(Options *options, int i, const char *value)
{
    const char *kept;
    TRY(keep_text(options, value, &kept));
    options->arguments[i] = (char *)kept;
    return OK;
}

void options_name_model(Options *options, const char *model)
{
    options->arguments[0] = (char *)model;
    if (!options->argument_count) options->argument_count = 1;
}

Verb options_serve(Options *options, Verb verb)
{
    Verb before = options->verb;
    options->verb = verb;
    return before;
}

Status options_copy(const Options *from, Options *made)
{
    Status st = OK;
    *made = *from;
    made->texts = NULL;
    made->arguments = calloc((size_t)from->argument_count + 2, sizeof *made->arguments);
    if (!made->arguments) return FAIL(ERR_MEMORY, "no memory for the options");
    for (int i = 0; i < from->argument_count; i++) made->arguments[i] = from->arguments[i];
    for (OptionId id = 0; id < OPTION_ID_COUNT; id++) {
        const char *text = NULL;
        if (option_info(id)->type == OPTION_IS_TEXT)
            memcpy(&text, (const char *)from + option_info(id)->offset, sizeof text);
        if (text) TRY_OUT(option_settle_text(made, id, text));
        if (from->where[id]) TRY_OUT(keep_text(made, from->where[id], &made->where[id]));
    }
out:
    if (st != OK) options_close(made);
    return st;
}
