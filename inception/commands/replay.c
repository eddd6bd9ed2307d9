/* towers replay: runs a refused step of one tower again, op by op, from its capsule. Device, threads and number format
 * may differ from those of the run, to narrow down the cause. */
#include "inception/commands/commands.h"

#include "inception/job/named_model.h"
#include "inception/options/conditions.h"
#include "kernels/base/cores.h"
#include "towers/files/json.h"
#include "towers/guard/capsule.h"
#include "towers/replica/hooks.h"

typedef struct ReplayTable {
    FILE *to;
    bool quiet, color;
    json_t *rows; /* with --json; NULL */
    int64_t lines;
} ReplayTable;

/* ---- the table */

static json_t *row_json(const TraceRow *row)
{
    return json_pack("{s:i, s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:I}", "op", row->op, "pass",
                     finding_place_name(row->place), "kind", op_name(row->call->kind), "layer", row->layer, "tensor",
                     row->tensor, "shape", shape_text(row->shape), "dtype", dtype_name(row->dtype), "min",
                     json_finite(row->scan.min), "max", json_finite(row->scan.max), "mean", json_finite(row->scan.mean),
                     "not_finite", (json_int_t)row->scan.bad);
}

static void number_print(double value, FILE *to)
{
    if (isfinite(value))
        fprintf(to, " %11.4g", value);
    else
        text_printf(to, " %11s", "-");
}

static void row_print(void *context, const TraceRow *row)
{
    ReplayTable *table = context;
    if (table->rows) json_array_append_new(table->rows, row_json(row));
    if (table->rows || table->quiet) return;
    if (table->lines++ == 0)
        text_printf(table->to, "  op  pass      kind              %-32s %-16s %-4s %11s %11s %11s  not finite\n",
                    "tensor", "n x c x h x w", "", "min", "max", "mean");
    bool bad = row->scan.bad > 0;
    if (bad && table->color) fputs("\033[31m", table->to);
    text_printf(table->to, "%4d  %-8s  %-16s  %-32s %-16s %-4s", row->op, finding_place_name(row->place),
                op_name(row->call->kind), row->tensor, shape_text(row->shape), dtype_name(row->dtype));
    number_print(row->scan.min, table->to);
    number_print(row->scan.max, table->to);
    number_print(row->scan.mean, table->to);
    fprintf(table->to, "  %" PRId64 "\n", row->scan.bad);
    if (bad && table->color) fputs("\033[0m", table->to);
}

/* ---- the device */

static Status device_choose(const Options *o, const Capsule *capsule, const Backend **backend, DeviceConfig *device)
{
    char why[512];
    bool given = option_is_set(o, "device");
    TRY(backend_find(given ? option_info(OPTION_ID_device)->choices[o->device] : capsule->backend, backend, why,
                     sizeof why));
    bool cpu = (*backend)->on_host;
    if (cpu && option_origin(o, "gpus") == ORIGIN_COMMAND_LINE)
        return FAIL(ERR_DEVICE, "--gpus has no effect because the replay would use the CPU");
    *device = capsule->device;
    device->ordinal = !cpu && o->gpus.count ? (int)o->gpus.value[0] : 0;
    device->threads = o->threads > 0 ? (int)o->threads : cores_allowed();
    return OK;
}

/* --amp, --no-amp and --amp-dtype override the run's number format. */
static Status precision_choose(const Options *o, const Backend *backend, Capsule *capsule, DeviceConfig *device)
{
    static const Dtype dtypes[] = {[AMP_BF16] = DTYPE_BF16, [AMP_FP16] = DTYPE_F16, [AMP_TF32] = DTYPE_F32};
    if (option_is_set(o, "amp")) {
        device->tf32 = o->amp && o->amp_dtype == AMP_TF32;
        capsule->program.compute = o->amp ? dtypes[o->amp_dtype] : DTYPE_F32;
    }
    if (capsule->program.compute == DTYPE_F32 || !backend->computes) return OK;
    return backend->computes(capsule->program.compute);
}

/* ---- output */

/* The device could not take the kernels of the run: another device, another version of a library. */
static bool kernels_differ(const Capsule *capsule, Replica *replica)
{
    const Backend *backend = replica->device.backend;
    char *own;
    int chosen;
    if (!capsule->choices) return false;
    if (!backend->choices_text || backend->choices_text(&replica->device, &own, &chosen) != OK) return true;
    size_t title = strcspn(own, "\n") + 1; /* the device and its libraries */
    bool differ = chosen > 0 || strncmp(own, capsule->choices, title) != 0;
    free(own);
    return differ;
}

static void head_print(const Capsule *capsule, Replica *replica, bool injected, FILE *to)
{
    char device[256] = "", text[512];
    replica->device.backend->describe(&replica->device, device, sizeof device);
    finding_text(&capsule->found, text, sizeof text);
    text_printf(to, "%s: step %" PRId64 ", tower %d of %d, %d samples, %s\n%s in %s on %s\n", capsule->path,
                capsule->step, capsule->tower, capsule->towers, capsule->batch.n, capsule->model,
                capsule->program.model->title, dtype_name(capsule->program.compute), device);
    if (kernels_differ(capsule, replica))
        fputs("This device cannot run all kernels of the run (plans.txt): values may differ in their last bits.\n", to);
    if (capsule->weights_after >= capsule->step)
        fprintf(to, "The weights are those after step %" PRId64 ", which was already running on the device.\n",
                capsule->weights_after);
    if (*capsule->fault) {
        text_printf(to, "The cause was an injected fault, not the data: %s\n", capsule->fault);
        fputs(injected ? "It is injected again.\n"
                       : "It is not injected again because this build has no fault points (-DTOWERS_FAULTS=ON).\n",
              to);
    }
}

static bool same_finding(const Finding *a, const Finding *b)
{
    return a->place == b->place && a->op == b->op && a->index == b->index && !strcmp(a->tensor, b->tensor);
}

static Status verdict(const Capsule *capsule, const Finding *found)
{
    char text[512], then[256] = "";
    if (found->place == FOUND_NOTHING) return OK;
    finding_text(found, text, sizeof text);
    if (!same_finding(&capsule->found, found))
        snprintf(then, sizeof then, "; in the run, the first one was in %s, %s, element %" PRId64,
                 finding_place_name(capsule->found.place), capsule->found.tensor, capsule->found.index);
    return FAIL(ERR_NUMERIC, "some values of this step are not finite, first in %s%s", text,
                *then ? then : " (as in the run)");
}

static Status json_write(const Capsule *capsule, const Finding *found, bool injected, json_t *rows, FILE *to)
{
    char text[512];
    finding_text(found, text, sizeof text);
    json_t *root = json_pack("{s:o, s:I, s:I, s:i, s:s, s:s, s:b, s:O, s:b, s:b, s:s, s:i, s:s, s:s, s:I, s:s}",
                             "capsule", json_text(capsule->path), "step", (json_int_t)capsule->step,
                             "weights_after_step", (json_int_t)capsule->weights_after, "tower", capsule->tower, "model",
                             capsule->model, "fault", capsule->fault, "fault_repeated", injected, "ops", rows, "finite",
                             found->place == FOUND_NOTHING, "as_in_the_run", same_finding(&capsule->found, found),
                             "place", finding_place_name(found->place), "op", found->op, "layer", found->layer,
                             "tensor", found->tensor, "index", (json_int_t)found->index, "text", text);
    return json_emit(root, JSON_INDENT(1), to);
}

/* ---- the command */

static Status replay(const Options *o, Capsule *capsule, ReplayTable *table)
{
    Status st = OK;
    Replica *replica = NULL;
    const Backend *backend;
    DeviceConfig device;
    Finding found;
    TRY(model_kept(capsule->model, capsule->path, &capsule->program.model));
    TRY(device_choose(o, capsule, &backend, &device));
    TRY(precision_choose(o, backend, capsule, &device));
    bool injected = hooks_load_text(capsule->fault) == OK && *capsule->fault;
    TRY(capsule_replica(capsule, backend, &device, &replica));
    if (!table->rows && !table->quiet) head_print(capsule, replica, injected, table->to);
    TRY_OUT(capsule_run(capsule, replica, row_print, table, &found));
    if (table->rows) TRY_OUT(json_write(capsule, &found, injected, table->rows, table->to));
    st = verdict(capsule, &found);
    if (st == OK && !table->rows)
        text_printf(table->to, "All values of this step are finite here%s.\n",
                    *capsule->fault && !injected ? ", without the injected fault" : "");
out:
    replica_destroy(replica);
    return st;
}

static Status capsule_look(const char *path)
{
    char manifest[4096];
    TRY(path_join(manifest, path, "MANIFEST"));
    if (access(manifest, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR))
        return OK; /* capsule_open reports other errors */
    return FAIL(ERR_CHECKPOINT,
                "%s is not a capsule (it has no MANIFEST); a capsule is a directory nan-step-N-tower-K in a run "
                "directory",
                path);
}

Status replay_run(const Options *o, JobFiles *files, FILE *to)
{
    (void)files;
    const char *path = o->argument_count ? o->arguments[0] : NULL;
    Capsule *capsule;
    TRY(conditions_check(o));
    if (!path) return FAIL(ERR_ARG, "no capsule given; usage: towers replay RUN/nan-step-N-tower-K");
    TRY(capsule_look(path));
    TRY(capsule_open(path, &capsule));
    ReplayTable table = {.to = to,
                         .quiet = o->quiet,
                         .color = o->color && isatty(fileno(to)) && !getenv("NO_COLOR"),
                         .rows = o->json ? json_array() : NULL};
    Status st = replay(o, capsule, &table);
    json_decref(table.rows);
    capsule_close(capsule);
    return st;
}
