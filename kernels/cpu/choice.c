/* Candidates for a call; see choice.h. */
#include "kernels/cpu/choice.h"

#include "kernels/cpu/onednn_probe.h"

/* Makes the task of a candidate; NULL if oneDNN has none, or one that computes wrongly. */
static Status candidate_create(OnednnChoice *choice, Device *device, const OnednnSpec *spec, OnednnParts **task)
{
    bool right = true;
    Onednn *onednn = cpu_onednn(device);
    Status st = parts_create(onednn, spec, cpu_threads(device), task);
    if (st == ERR_UNSUPPORTED) return OK;
    TRY(st);
    if (onednn_is_suspect(spec)) st = onednn_probe(onednn, spec, &right);
    if (st == OK && right) return OK;
    choice->wrong |= st == OK;
    parts_destroy(*task);
    *task = NULL;
    return st;
}

Status choice_offer(OnednnChoice *choice, Device *device, const OnednnSpec *spec, const int8_t operand[ONEDNN_ROLES])
{
    OnednnParts *task = NULL;
    OnednnSpec wanted = *spec;
    if (choice->task) return OK;
    wanted.one_thread = choice->one_thread;
    TRY(candidate_create(choice, device, &wanted, &task));
    if (!task) return OK;
    if (!parts_are_reference(task)) {
        choice->task = task;
        memcpy(choice->operand, operand, sizeof choice->operand);
    } else if (!choice->reference) {
        choice->reference = task;
        memcpy(choice->reference_operand, operand, sizeof choice->reference_operand);
    } else {
        parts_destroy(task);
    }
    return OK;
}

static Status refuse(const OnednnChoice *choice, const OpCall *call)
{
    char have[160] = "no implementation";
    if (choice->wrong) snprintf(have, sizeof have, "no correct implementation");
    if (choice->reference)
        snprintf(have, sizeof have,
                 "only a reference implementation (%s), about a hundred times slower than an optimized one",
                 parts_impl(choice->reference));
    return FAIL(ERR_UNSUPPORTED,
                "'%s' (%s): on this processor, oneDNN has %s for in[0] %s %s, in[1] %s %s, out %s %s; use f32 "
                "activations or another shape, or allow reference code",
                call->name, op_name(call->kind), have, dtype_name(call->in[0].dtype), shape_text(call->in[0].shape),
                dtype_name(call->in[1].dtype), shape_text(call->in[1].shape), dtype_name(call->out[0].dtype),
                shape_text(call->out[0].shape));
}

Status choice_settle(OnednnChoice *choice, Device *device, const OpCall *call)
{
    if (!choice->task && choice->reference && device->config.allow_reference) {
        choice->task = choice->reference;
        choice->reference = NULL;
        memcpy(choice->operand, choice->reference_operand, sizeof choice->operand);
    }
    return choice->task ? OK : refuse(choice, call);
}

void choice_free(OnednnChoice *choice)
{
    parts_destroy(choice->task);
    parts_destroy(choice->reference);
    choice->task = choice->reference = NULL;
}

Status choice_run(const OnednnChoice *choice, const OpCall *call, void *out)
{
    void *data[ONEDNN_ROLES];
    if (call->renewed) parts_renew(choice->task);
    for (int role = 0; role < ONEDNN_ROLES; role++) {
        int from = choice->operand[role];
        data[role] = from == FROM_OUT ? out : from == FROM_NOTHING ? NULL : call->in[from].data;
    }
    return parts_run(choice->task, data, call->workspace);
}

/* ---- products */

static OnednnView matrix(int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride, Dtype dtype)
{
    OnednnView view = {.rank = 2, .dims = {rows, cols}, .strides = {row_stride, col_stride}, .dtype = dtype};
    return view;
}

/* Blocked weights make a product a few percent faster, but to make them costs several rows' worth of it: for the head
 * of a network (16 rows of 3200, or 64 of 2048) up to twice the product, unless they are kept. */
static OnednnFit weights_fit(const OnednnProduct *p)
{
    enum { MANY_ROWS = 2048 };
    return p->rows < MANY_ROWS && !p->keeps_w ? ONEDNN_AS_HELD : ONEDNN_ANY;
}

Status choice_offer_product(OnednnChoice *choice, Device *device, const OnednnProduct *p)
{
    static const int8_t operands[][ONEDNN_ROLES] = {[PRODUCT_Y] = {0, 1, FROM_OUT, 2},
                                                    [PRODUCT_DX] = {0, 1, FROM_OUT, FROM_NOTHING},
                                                    [PRODUCT_DW] = {1, 0, FROM_OUT, FROM_NOTHING}};
    OnednnSpec spec = {.kind = ONEDNN_MATMUL, .relu = p->relu, .keeps_w = p->keeps_w, .sum = p->sum};
    if (p->kind == PRODUCT_Y) {
        spec.held[ONEDNN_X] = matrix(p->rows, p->ins, p->x_pitch, 1, p->x);
        spec.held[ONEDNN_W] = matrix(p->ins, p->outs, 1, p->ins, DTYPE_F32);
        spec.held[ONEDNN_Y] = matrix(p->rows, p->outs, p->y_pitch, 1, p->y);
        if (p->bias) spec.held[ONEDNN_BIAS] = matrix(1, p->outs, p->outs, 1, DTYPE_F32);
        spec.fit[ONEDNN_W] = weights_fit(p);
    }
    if (p->kind == PRODUCT_DX) {
        spec.held[ONEDNN_X] = matrix(p->rows, p->outs, p->y_pitch, 1, p->y);
        spec.held[ONEDNN_W] = matrix(p->outs, p->ins, p->ins, 1, DTYPE_F32);
        spec.held[ONEDNN_Y] = matrix(p->rows, p->ins, p->x_pitch, 1, p->x);
        spec.fit[ONEDNN_W] = weights_fit(p);
    }
    if (p->kind == PRODUCT_DW) {
        spec.held[ONEDNN_X] = matrix(p->outs, p->rows, 1, p->y_pitch, p->y);
        spec.held[ONEDNN_W] = matrix(p->rows, p->ins, p->x_pitch, 1, p->x);
        spec.held[ONEDNN_Y] = matrix(p->outs, p->ins, p->ins, 1, DTYPE_F32);
    }
    /* Both factors in one dtype: 16 bits only if neither (but for the weights) is held in f32. */
    Dtype factor = spec.held[ONEDNN_X].dtype, other = spec.held[ONEDNN_W].dtype;
    if (p->kind == PRODUCT_DW && other != factor) factor = DTYPE_F32;
    for (int pass = 0; pass < 2; pass++, factor = DTYPE_F32) {
        spec.compute[ONEDNN_X] = spec.compute[ONEDNN_W] = factor;
        spec.compute[ONEDNN_Y] = factor == DTYPE_F32 ? DTYPE_F32 : spec.held[ONEDNN_Y].dtype;
        spec.compute[ONEDNN_BIAS] = DTYPE_F32;
        TRY(choice_offer(choice, device, &spec, operands[p->kind]));
        if (choice->wrong && !choice->task && !p->sum) {
            /* Offer the product on copies without gaps, for a oneDNN that computes wrongly on the slices. */
            OnednnSpec packed = spec;
            for (int role = 0; role < ONEDNN_BIAS; role++)
                if (packed.fit[role] == ONEDNN_AS_HELD) packed.fit[role] = ONEDNN_PACKED;
            TRY(choice_offer(choice, device, &packed, operands[p->kind]));
        }
        if (factor == DTYPE_F32) break;
    }
    return OK;
}
