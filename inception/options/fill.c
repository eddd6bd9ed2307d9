/* Filling a job; see fill.h. */
#include "inception/options/fill.h"

static int64_t whole_of(const OptionInfo *info, const void *value)
{
    return info->type == OPTION_IS_CHOICE ? *(const int *)value : *(const int64_t *)value;
}

static bool fits(OptionType type, FillType fill)
{
    switch (fill) {
    case FILL_NONE: return true;
    case FILL_BOOL: return type == OPTION_IS_FLAG;
    case FILL_INT:
    case FILL_INT64: return type == OPTION_IS_INT || type == OPTION_IS_CHOICE;
    case FILL_FLOAT:
    case FILL_DOUBLE: return type == OPTION_IS_REAL;
    case FILL_TEXT: return type == OPTION_IS_TEXT;
    }
    return false;
}

static void field_fill(const OptionInfo *info, const void *value, void *field)
{
    if (!fits(info->type, info->fill.type)) abort(); /* a mistake in options.def, which any command shows */
    switch (info->fill.type) {
    case FILL_NONE: break;
    case FILL_BOOL: *(bool *)field = *(const bool *)value; break;
    case FILL_INT: *(int *)field = (int)whole_of(info, value); break;
    case FILL_INT64: *(int64_t *)field = whole_of(info, value); break;
    case FILL_FLOAT: *(float *)field = (float)*(const double *)value; break;
    case FILL_DOUBLE: *(double *)field = *(const double *)value; break;
    case FILL_TEXT: memcpy(field, value, sizeof(const char *)); break;
    }
}

void options_fill(const Options *options, TrainJob *job)
{
    for (OptionId id = 0; id < OPTION_ID_COUNT; id++) {
        const OptionInfo *info = option_info(id);
        field_fill(info, (const char *)options + info->offset, (char *)job + info->fill.offset);
    }
}
