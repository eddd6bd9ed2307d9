/* The list as text, one op per line:
 *     %4 = conv(%3, stem.conv.weight) 3x3/2 -> 64x32x149x149 bf16 (stem.conv)
 * %4 is the first output of op 4, %4.1 its second; values that no op writes go by name, absent operands are "-".
 * Values that outlive the step are marked in brackets: [loss], [grad of w], [feeds bn.running_mean]. */
#include "towers/graph/list.h"

static void print_window(const Window *w, FILE *to)
{
    fprintf(to, " %dx%d", w->kh, w->kw);
    if (w->stride_h != w->stride_w)
        fprintf(to, "/%dx%d", w->stride_h, w->stride_w);
    else if (w->stride_h != 1)
        fprintf(to, "/%d", w->stride_h);
    char padding[WINDOW_TEXT_BYTES];
    if (w->more_h || w->more_w || w->pad_h != w->pad_w)
        fprintf(to, "+%s", padding_text(w, padding));
    else if (w->pad_h)
        fprintf(to, "+%d", w->pad_h);
    if (w->dilate_h || w->dilate_w) fprintf(to, " dilation %dx%d", w->dilate_h + 1, w->dilate_w + 1);
    if (w->ceil) fputs(" ceil", to);
}

static void print_pool(const OpAttr *a, FILE *to)
{
    if (a->pool.adaptive)
        fputs(" adaptive", to);
    else
        print_window(&a->pool.window, to);
    if (a->pool.include_pad) fputs(" include_pad", to);
}

static void print_attr(const Op *op, FILE *to)
{
    const OpAttr *a = &op->attr;
    bool relu = false;
    switch (op->kind) {
    case OP_CONV:
    case OP_CONV_DX:
    case OP_CONV_DW:
        print_window(&a->conv.window, to);
        relu = a->conv.relu;
        break;
    case OP_DENSE: relu = a->dense.relu; break;
    case OP_ADD: relu = a->add.relu; break;
    case OP_MAX_POOL:
    case OP_MAX_POOL_DX: print_window(&a->pool.window, to); break;
    case OP_MAX_POOL_NORM:
    case OP_MAX_POOL_NORM_DX:
        print_window(&a->pool.window, to);
        fprintf(to, " eps %g", (double)a->pool.epsilon);
        break;
    case OP_AVG_POOL:
    case OP_AVG_POOL_DX: print_pool(a, to); break;
    case OP_BATCHNORM:
    case OP_BATCHNORM_DX:
    case OP_BATCHNORM_APPLY:
    case OP_NORM_FOLD:
    case OP_LAYERNORM:
    case OP_LAYERNORM_DX:
        fprintf(to, " eps %g", (double)a->norm.epsilon);
        relu = a->norm.relu;
        break;
    case OP_LEAKY_RELU:
    case OP_LEAKY_RELU_DX: fprintf(to, " alpha %g", (double)a->leaky.alpha); break;
    case OP_DROPOUT:
    case OP_STOCHASTIC_DEPTH:
        fprintf(to, " keep %g stream %" PRIu32, (double)a->dropout.keep, a->dropout.stream);
        break;
    case OP_SLICE: fprintf(to, " from %d", a->slice.first); break;
    case OP_SHUFFLE: fprintf(to, " groups %d", a->shuffle.groups); break;
    case OP_PAD:
        fprintf(to, " top %d bottom %d left %d right %d", a->pad.top, a->pad.bottom, a->pad.left, a->pad.right);
        break;
    case OP_AFFINE: fprintf(to, " scale %g shift %g", (double)a->affine.scale, (double)a->affine.shift); break;
    case OP_POWER: fprintf(to, " exponent %g", (double)a->power.exponent); break;
    case OP_RANDOM:
        fprintf(to, " %s stream %" PRIu32, a->random.normal ? "normal" : "uniform", a->random.stream);
        break;
    case OP_SOFTMAX_LOSS:
    case OP_SOFTMAX_LOSS_DX: fprintf(to, " smoothing %g", (double)a->loss.smoothing); break;
    case OP_SIGMOID_LOSS: fputs(a->loss.multi_label ? " multi-label" : "", to); break;
    default: break;
    }
    if (relu) fputs(" relu", to);
}

static void print_roles(const Graph *g, const Op *op, FILE *to)
{
    for (int o = 0; o < op_outputs(op->kind); o++) {
        const ValueInfo *info = graph_value(g, op->out[o]);
        const char *of = graph_value(g, info->of)->name;
        if (info->role == ROLE_RESULT) fprintf(to, " [%s]", info->name);
        if (info->role == ROLE_GRAD) fprintf(to, " [grad of %s]", of);
        if (info->role == ROLE_BATCH_STATISTIC) fprintf(to, " [feeds %s]", of);
    }
}

void graph_print(const Graph *g, FILE *to)
{
    for (int index = 0; index < g->op_count; index++) {
        const Op *op = &g->ops[index];
        const ValueInfo *y = graph_value(g, op->out[0]);
        fprintf(to, "%%%d = %s(", index, op_name(op->kind));
        for (int i = 0; i < op->in_count; i++) {
            if (i) fputs(", ", to);
            const ValueInfo *info = graph_value(g, op->in[i]);
            if (!op->in[i].id)
                fputs("-", to);
            else if (info->op < 0)
                fputs(info->name, to);
            else if (info->out)
                fprintf(to, "%%%d.%d", info->op, info->out);
            else
                fprintf(to, "%%%d", info->op);
        }
        fputs(")", to);
        print_attr(op, to);
        fprintf(to, " -> %s %s (%s)", shape_text(y->shape), dtype_name(y->dtype), op->name);
        print_roles(g, op, to);
        fputs("\n", to);
    }
}
