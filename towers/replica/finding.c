/* Text of a finding; see finding.h. */
#include "towers/replica/finding.h"
#include "kernels/base/text.h"

static const char *const place_names[FOUND_PLACES] = {
    [FOUND_NOTHING] = "nothing",
    [FOUND_WEIGHT] = "weights",
    [FOUND_AVERAGE] = "average of the weights",
    [FOUND_STATISTIC] = "batch-norm statistics",
    [FOUND_OPTIMIZER_STATE] = "optimizer slot",
    [FOUND_FORWARD] = "forward",
    [FOUND_LOSS] = "loss",
    [FOUND_BACKWARD] = "backward",
    [FOUND_GRADIENT] = "gradient",
    [FOUND_SUM] = "sum of the gradients",
};

const char *finding_place_name(FindingPlace place)
{
    return (unsigned)place < FOUND_PLACES ? place_names[place] : "unknown place";
}

void finding_text(const Finding *found, char *buffer, size_t bytes)
{
    Shape s = found->shape;
    int64_t pixel = s.c > 0 ? found->index / s.c : 0, row = s.w > 0 ? pixel / s.w : 0;
    Text text = text_start(buffer, bytes);
    if (found->place == FOUND_NOTHING) return;
    text_add(&text, "%s", finding_place_name(found->place));
    if (found->op >= 0) text_add(&text, ", op %d, layer %s (%s)", found->op, found->layer, op_name(found->kind));
    text_add(&text,
             ", tensor %s (%s %s): element %" PRId64 " (n %" PRId64 ", c %" PRId64 ", h %" PRId64 ", w "
             "%" PRId64 ") is %g",
             found->tensor, shape_text(s), dtype_name(found->dtype), found->index, s.h > 0 ? row / s.h : 0,
             s.c > 0 ? found->index % s.c : 0, s.h > 0 ? row % s.h : 0, s.w > 0 ? pixel % s.w : 0,
             (double)found->value);
    if (found->count > 1) text_add(&text, ", and %" PRId64 " more", found->count - 1);
}
