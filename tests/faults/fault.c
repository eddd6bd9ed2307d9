/* Fault points: hooks that make a tower fail at a given step (towers/replica/hooks.h), in builds with -DTOWERS_FAULTS=ON.
 *
 * TOWERS_FAULT="kind:tower=T,step=S[,activity=A][,layer=NAME][,index=N][,ms=N]
 * [,where=loss|grad|both|weights|statistics|slot]", several separated by ';'. Kinds: nan, inf, huge (set the tower's loss and
 * gradients to such a value, or one value of its process's weights, statistics or slot 0 after the update; with a layer, its output in
 * the activity forward or the first gradient that it computes in the activity backward: the element `index`, or all),
 * hang, exit, kill, delay (ms per step from S on), crawl (only show progress for ms), bitflip (one bit of a weight,
 * after the update). Steps count from 1. "layer=conv2" means the first op in the list whose name is conv2 or starts
 * with "conv2."; with activity=backward, the first such op of the backward pass. */
#include "kernels/base/progress.h"
#include "towers/replica/hooks.h"

#include <float.h>
#include <signal.h>
#include <unistd.h>

typedef enum FaultKind {
    FAULT_NONE = 0,
    FAULT_NAN,
    FAULT_INF,
    FAULT_HUGE,
    FAULT_HANG,
    FAULT_EXIT,
    FAULT_KILL,
    FAULT_DELAY,
    FAULT_BITFLIP,
    FAULT_CRAWL
} FaultKind;

typedef struct Fault {
    FaultKind kind;
    int tower;
    int64_t step;
    int activity; /* in which the fault occurs (nan and inf: with a layer); default ACTIVITY_FORWARD */
    int ms;
    int64_t index;                                         /* of the element that is poisoned in a layer; -1: all */
    bool loss, grad, weights, statistics, optimizer_state; /* targets of nan and inf */
    bool spent;                                            /* a bit flips only once */
    char layer[128];                                       /* "" or the op whose output is poisoned */
} Fault;

enum { FAULTS_MAX = 16 };

static const RunHooks fault_hooks;
static Fault faults[FAULTS_MAX];
static int faults_used;
static char faults_given[1024];

static const char *const kind_names[] = {
    [FAULT_NONE] = "none",       [FAULT_NAN] = "nan",     [FAULT_INF] = "inf",   [FAULT_HUGE] = "huge",
    [FAULT_HANG] = "hang",       [FAULT_EXIT] = "exit",   [FAULT_KILL] = "kill", [FAULT_DELAY] = "delay",
    [FAULT_BITFLIP] = "bitflip", [FAULT_CRAWL] = "crawl",
};

static Status where_parse(const char *text, Fault *fault)
{
    bool both = !strcmp(text, "both");
    fault->loss = both || !strcmp(text, "loss");
    fault->grad = both || !strcmp(text, "grad");
    fault->weights = !strcmp(text, "weights");
    fault->statistics = !strcmp(text, "statistics");
    fault->optimizer_state = !strcmp(text, "slot");
    if (fault->loss || fault->grad || fault->weights || fault->statistics || fault->optimizer_state) return OK;
    return FAIL(ERR_ARG, "TOWERS_FAULT: unknown value '%s' of where; use one of loss grad both weights statistics slot",
                text);
}

static Status field_parse(char *field, Fault *fault)
{
    char *value = strchr(field, '=');
    if (!value) return FAIL(ERR_ARG, "TOWERS_FAULT: '%s' is not key=value", field);
    *value++ = 0;
    if (!strcmp(field, "activity") || !strcmp(field, "phase")) { /* the name in capsules of 0.1.0-dev */
        for (fault->activity = 0; fault->activity < ACTIVITY_COUNT; fault->activity++)
            if (!strcmp(value, activity_name((Activity)fault->activity))) return OK;
        return FAIL(ERR_ARG, "TOWERS_FAULT: unknown activity '%s'", value);
    }
    if (!strcmp(field, "layer")) {
        snprintf(fault->layer, sizeof fault->layer, "%s", value);
        return OK;
    }
    if (!strcmp(field, "where")) return where_parse(value, fault);
    char *end;
    long long number = strtoll(value, &end, 10);
    if (end == value || *end) return FAIL(ERR_ARG, "TOWERS_FAULT: '%s=%s' needs a number", field, value);
    if (!strcmp(field, "tower"))
        fault->tower = (int)number;
    else if (!strcmp(field, "step"))
        fault->step = number;
    else if (!strcmp(field, "ms"))
        fault->ms = (int)number;
    else if (!strcmp(field, "index"))
        fault->index = number;
    else
        return FAIL(ERR_ARG, "TOWERS_FAULT: unknown key '%s'; use one of tower step activity layer index where ms",
                    field);
    return OK;
}

static Status fault_parse(char *text, Fault *fault)
{
    *fault = (Fault){
        .kind = FAULT_NAN, .activity = ACTIVITY_FORWARD, .ms = 20, .step = 1, .index = -1, .loss = true, .grad = true};
    char *fields = strchr(text, ':'), *rest = NULL;
    if (fields) *fields++ = 0;
    while (fault->kind <= FAULT_CRAWL && strcmp(text, kind_names[fault->kind])) fault->kind++;
    if (fault->kind > FAULT_CRAWL)
        return FAIL(ERR_ARG,
                    "TOWERS_FAULT: unknown kind '%s'; use one of nan inf huge hang exit kill delay bitflip crawl",
                    text);
    for (char *field = fields ? strtok_r(fields, ",", &rest) : NULL; field; field = strtok_r(NULL, ",", &rest))
        TRY(field_parse(field, fault));
    return OK;
}

static Status load_text(const char *text)
{
    char copy[sizeof faults_given], *rest = NULL;
    faults_used = 0;
    faults_given[0] = 0;
    run_hooks = NULL;
    if (snprintf(copy, sizeof copy, "%s", text) >= (int)sizeof copy) return FAIL(ERR_ARG, "TOWERS_FAULT is too long");
    for (char *one = strtok_r(copy, ";", &rest); one; one = strtok_r(NULL, ";", &rest)) {
        if (faults_used == FAULTS_MAX) return FAIL(ERR_ARG, "TOWERS_FAULT: more than %d faults", FAULTS_MAX);
        TRY(fault_parse(one, &faults[faults_used]));
        faults_used++;
    }
    snprintf(faults_given, sizeof faults_given, "%s", text);
    run_hooks = faults_used ? &fault_hooks : NULL;
    return OK;
}

/* The fault of this kind for (tower, step) that is not spent, or NULL. */
static Fault *fault_of(FaultKind kind, int tower, int64_t step)
{
    for (int i = 0; i < faults_used; i++)
        if (faults[i].kind == kind && faults[i].tower == tower && faults[i].step == step && !faults[i].spent)
            return &faults[i];
    return NULL;
}

static const Fault *poison_of(int tower, int64_t step)
{
    const Fault *fault = NULL;
    for (FaultKind kind = FAULT_NAN; !fault && kind <= FAULT_HUGE; kind++) fault = fault_of(kind, tower, step);
    return fault;
}

static const char *text_at(int tower, int64_t step)
{
    return poison_of(tower, step) ? faults_given : "";
}

/* ---- towers that hang, exit or are late */

static void crawl(int ms)
{
    const struct timespec piece = {0, 50 * 1000000L};
    for (int done = 0; done < ms; done += 50) {
        progress_made("crawling");
        nanosleep(&piece, NULL);
    }
}

static void strike(const Fault *fault)
{
    struct timespec pause_for = {fault->ms / 1000, (fault->ms % 1000) * 1000000L};
    switch (fault->kind) {
    case FAULT_HANG:
        for (;;) pause();
    case FAULT_EXIT: _exit(42);
    case FAULT_KILL: kill(getpid(), SIGKILL); break;
    case FAULT_DELAY: nanosleep(&pause_for, NULL); break;
    case FAULT_CRAWL: crawl(fault->ms); break;
    default: break;
    }
}

static void strike_activity(int tower, int64_t step, Activity activity)
{
    for (int i = 0; i < faults_used; i++) {
        const Fault *fault = &faults[i];
        bool now = fault->kind == FAULT_DELAY ? step >= fault->step : step == fault->step;
        if (now && fault->tower == tower && fault->activity == (int)activity) strike(fault);
    }
}

/* ---- values that are not finite */

static bool is_poison(const Fault *fault)
{
    return fault->kind >= FAULT_NAN && fault->kind <= FAULT_HUGE;
}

static float value_of(const Fault *fault)
{
    return fault->kind == FAULT_NAN ? NAN : fault->kind == FAULT_INF ? INFINITY : FLT_MAX;
}

static bool op_is_of(const Program *program, int op, const char *layer)
{
    const char *name = plan_call(program->plan, op)->name;
    size_t length = strlen(layer);
    return !strncmp(name, layer, length) && (name[length] == 0 || name[length] == '.');
}

/* The op that the fault applies to; -1 if the program has none. */
static int poisoned_op(const Program *program, const Fault *fault)
{
    bool backward = fault->activity == ACTIVITY_BACKWARD;
    int first = backward ? program->forward_end : 0,
        end = backward ? plan_op_count(program->plan) : program->forward_end;
    for (int op = first; op < end; op++)
        if (op_is_of(program, op, fault->layer)) return op;
    return -1;
}

static Status programs_check(const Program *programs, int count)
{
    for (int i = 0; i < faults_used; i++) {
        const Fault *fault = &faults[i];
        bool found = !count || !is_poison(fault) || !*fault->layer;
        for (int k = 0; k < count && !found; k++) found = poisoned_op(&programs[k], fault) >= 0;
        if (found) continue;
        return FAIL(ERR_ARG, "TOWERS_FAULT: no layer '%s' in the %s pass (see: towers info MODEL --ops)", fault->layer,
                    activity_name((Activity)fault->activity));
    }
    return OK;
}

/* Set one element of a tensor in host memory; the buffer includes all pixels of all channels. */
static void element_set(char *host, const Tensor *t, int64_t index, float value)
{
    int64_t at = index / t->shape.c * t->pitch + index % t->shape.c;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint16_t half = t->dtype == DTYPE_BF16 ? (uint16_t)(bits >> 16) : isnan(value) ? 0x7E00 : 0x7C00;
    if (t->dtype == DTYPE_F32)
        memcpy(host + at * 4, &bits, 4);
    else
        memcpy(host + at * 2, &half, 2);
}

static Status tensor_poison(Device *device, const Tensor *t, const Fault *fault)
{
    Status st = OK;
    int64_t count = shape_count(t->shape);
    size_t bytes = (size_t)((shape_pixels(t->shape) - 1) * t->pitch + t->shape.c) * dtype_bytes(t->dtype);
    if (fault->index >= count)
        return FAIL(ERR_ARG,
                    "TOWERS_FAULT: index %" PRId64 " is out of range: the output of layer '%s' has %" PRId64
                    " elements",
                    fault->index, fault->layer, count);
    char *host = malloc(bytes);
    if (!host)
        return FAIL(ERR_MEMORY, "no memory for the fault injected into layer '%s' (%zu bytes)", fault->layer, bytes);
    TRY_OUT(device->backend->download(device, host, t->data, bytes));
    TRY_OUT(device->backend->finish(device, STREAM_COMPUTE));
    for (int64_t i = 0; i < count; i++)
        if (fault->index < 0 || fault->index == i) element_set(host, t, i, value_of(fault));
    TRY_OUT(device->backend->upload(device, t->data, host, bytes));
    TRY_OUT(device->backend->finish(device, STREAM_COMPUTE));
out:
    free(host);
    return st;
}

static bool changes_launches(int tower, int64_t step)
{
    return poison_of(tower, step) != NULL;
}

/* Run ops, changing the output of the fault's op before the next op reads it. */
static Status poison_ops(Device *device, Program *program, int tower, int64_t step, int first, int end)
{
    const Fault *fault = poison_of(tower, step);
    int op = fault && *fault->layer ? poisoned_op(program, fault) : -1;
    if (op < first || op >= end) return plan_run(program->plan, first, end);
    TRY(plan_run(program->plan, first, op + 1));
    TRY(tensor_poison(device, &plan_call(program->plan, op)->out[0], fault));
    return plan_run(program->plan, op + 1, end);
}

static Status poison_loss(Device *device, int tower, int64_t step, float *loss)
{
    const Fault *fault = poison_of(tower, step);
    if (!fault || *fault->layer || !fault->loss) return OK;
    return device->backend->fill(device, loss, value_of(fault), 1);
}

static Status poison_gradients(Device *device, int tower, int64_t step, float *gradients)
{
    const Fault *fault = poison_of(tower, step);
    if (!fault || *fault->layer || !fault->grad) return OK;
    return device->backend->fill(device, gradients, value_of(fault), 1);
}

/* ---- state damaged after the update */

static Status poison_state(Replica *replica, int local, int tower, int64_t step)
{
    const Fault *fault = poison_of(tower, step);
    float *arena = !fault                   ? NULL
                   : fault->weights         ? replica->arena[ARENA_PARAM]
                   : fault->statistics      ? replica->running[local]
                   : fault->optimizer_state ? replica->optimizer_state[0]
                                            : NULL;
    if (!arena) return OK;
    return replica->device.backend->fill(&replica->device, arena + (fault->index < 0 ? 0 : fault->index),
                                         value_of(fault), 1);
}

/* A bit flip by chance does not occur again when a rollback repeats its step. */
static Status spoil_state(Replica *replica, int local, int tower, int64_t step, bool left_out)
{
    Device *device = &replica->device;
    uint32_t *weight = replica->arena[ARENA_PARAM], bits;
    if (!left_out) TRY(poison_state(replica, local, tower, step));
    Fault *flip = fault_of(FAULT_BITFLIP, tower, step);
    if (!flip) return OK;
    flip->spent = true;
    TRY(device->backend->download(device, &bits, weight, sizeof bits));
    TRY(device->backend->finish(device, STREAM_COMPUTE));
    bits ^= 1u << 20;
    TRY(device->backend->upload(device, weight, &bits, sizeof bits));
    return device->backend->finish(device, STREAM_COMPUTE);
}

/* Flip a bit of the values that a tower sends, or of those that it receives. */
static void spoil_self_test(int tower, Activity activity, float *values)
{
    const Fault *fault = fault_of(FAULT_BITFLIP, tower, 0);
    if (!fault || (fault->activity == ACTIVITY_REDUCE) != (activity == ACTIVITY_REDUCE)) return;
    ((uint32_t *)values)[7] ^= 1u << 20;
}

static const RunHooks fault_hooks = {
    .activity = strike_activity,
    .opened = programs_check,
    .changes = changes_launches,
    .ops = poison_ops,
    .loss = poison_loss,
    .gradients = poison_gradients,
    .updated = spoil_state,
    .self_test = spoil_self_test,
};

const HookSource fault_source = {.load = load_text, .text_at = text_at};
