/* Text of a finding; see finding.h. */
#include "towers/replica/finding.h"
#include "kernels/text.h"

static const char *const place_names[FOUND_PLACES] = {
    [FOUND_NOTHING] = "nothing",
    [FOUND_WEIGHT] = "weights",
    [FOUND_AVERAGE] = "average of the weights",
    [FOUND_STATISTIC] = "batch-norm statistics",
    [FOUND_SLOT] = "optimizer slot",
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
             ", tensor %s (%s %s): element %lld (n %lld, c %lld, h %lld, w "
             "%lld) is %g",
             found->tensor, shape_text(s), dtype_name(found->dtype), (long long)found->index,
             (long long)(s.h > 0 ? row / s.h : 0), (long long)(s.c > 0 ? found->index % s.c : 0),
             (long long)(s.h > 0 ? row % s.h : 0), (long long)(s.w > 0 ? pixel % s.w : 0), (double)found->value);
    if (found->count > 1) text_add(&text, ", and %lld more", (long long)found->count - 1);
}
