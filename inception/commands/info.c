/* towers info and --dry-run: all models and recipes; tables about a model, or about the run that would start. */
#include "inception/commands/commands.h"

#include "inception/job/facts.h"
#include "inception/job/named_model.h"
#include "inception/job/own_network.h"
#include "inception/job/run_argument.h"
#include "inception/models/models.h"
#include "inception/options/recipe.h"
#include "inception/options/settle.h"
#include "kernels/base/open.h"
#include "towers/files/json.h"
#include "towers/replica/memory_plan.h"
#include "towers/replica/tower_process.h"
#include "towers/store/onnx.h"
#include "towers/store/weights.h"
#include "towers/train/introduction.h"

enum { AGAIN_ROUNDS = 4 };

/* ---- layers */

static int64_t op_params(const Graph *g, const Op *op)
{
    int64_t count = 0;
    for (int k = 0; k < op->in_count; k++) {
        const ValueInfo *info = op->in[k].id ? graph_value(g, op->in[k]) : NULL;
        if (info && (info->role == ROLE_PARAM || info->role == ROLE_PACK)) count += shape_count(info->shape);
    }
    return count;
}

static void layer_row(const Graph *g, const Op *op, int32_t n, int64_t *all_macs, FILE *to)
{
    Shape s = graph_shape(g, op->out[0]);
    OpCall call = {.kind = op->kind, .out[0].shape = s};
    for (int k = 0; k < op->in_count; k++)
        if (op->in[k].id) call.in[k].shape = graph_shape(g, op->in[k]);
    int64_t params = op_params(g, op), macs = op_macs(&call) / n;
    char shape[48];
    snprintf(shape, sizeof shape, "%d x %d x %d", s.c, s.h, s.w);
    *all_macs += macs;
    text_printf(to, "%-44s %-16s %-18s %12" PRId64 " %14" PRId64 "\n", op->name, op_name(op->kind), shape, params,
                macs);
}

/* ---- the list of models */

static Status model_params(const Model *model, const char *variant, int classes, int64_t *params)
{
    bool aux = model->aux_weight > 0;
    ProgramConfig config = {.model = model,
                            .options = {classes, model->side, model->channels, 0, aux, variant},
                            .data_channels = model->channels,
                            .canvas = model->side,
                            .training = true};
    Program program;
    TRY(program_graph(&config, 1, &program));
    *params = role_count(program.graph, ROLE_PARAM, NULL);
    program_destroy(&program);
    return OK;
}

static Status info_models(FILE *to)
{
    int64_t params = 0;
    text_printf(to, "%-22s %5s %8s %12s  %s\n", "model", "input", "classes", "parameters", "paper");
    for (const Model *const *m = all_models; *m; m++) {
        char classes[16] = "-";
        if ((*m)->classes) snprintf(classes, sizeof classes, "%d", (*m)->classes);
        TRY(model_params(*m, "", (*m)->classes, &params));
        text_printf(to, "%-22s %5d %8s %12" PRId64 "  %s\n", (*m)->name, (*m)->side, classes, params, (*m)->paper);
        for (int i = 0; i < MODEL_VARIANTS && (*m)->variants[i].name; i++) {
            const ModelVariant *variant = &(*m)->variants[i];
            TRY(model_params(*m, variant->name, variant->classes, &params));
            text_printf(to, "  --variant %-10s %5d %8d %12" PRId64 "\n", variant->name, (*m)->side, variant->classes,
                        params);
        }
    }
    recipes_print(to);
    return OK;
}

/* ---- what a file says about itself */

enum { NAMES_SHOWN = 12 };

static void facts_print(const json_t *facts, FILE *to)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)facts, key, value)
    {
        size_t count = json_array_size(value); /* of class_names, the only list */
        if (json_is_array(value))
            text_printf(to, "%-18s %zu:", key, count);
        else
            text_printf(to, "%-18s %s\n", key, json_string_value(value));
        for (size_t i = 0; i < count && i < NAMES_SHOWN; i++)
            text_printf(to, "%s %s", i ? "," : "", json_string_value(json_array_get(value, i)));
        if (json_is_array(value)) fputs(count > NAMES_SHOWN ? ", ...\n" : "\n", to);
    }
}

static Status onnx_facts(const char *path, json_t **facts)
{
    OnnxAbout *about;
    TRY(onnx_about_open(path, &about));
    *facts = json_pack("{s:s}", "format", "ONNX");
    for (int i = 0; i < onnx_about_count(about); i++) {
        StPair pair = onnx_about_at(about, i);
        json_t *names = !strcmp(pair.key, "class_names") ? json_loads(pair.value, JSON_REJECT_DUPLICATES, NULL) : NULL;
        json_object_set_new(*facts, pair.key, json_is_array(names) ? names : json_text(pair.value));
        if (!json_is_array(names)) json_decref(names);
    }
    onnx_about_close(about);
    return OK;
}

/* Of FILE.onnx, if there are any. */
static Status metadata_print(const char *path, FILE *to)
{
    json_t *facts;
    TRY(onnx_facts(path, &facts));
    if (json_object_size(facts) > 1) {
        text_printf(to, "\nMetadata of %s\n", path);
        facts_print(facts, to);
    }
    json_decref(facts);
    return OK;
}

static Status weights_facts(const Options *o, const char *path, json_t **facts)
{
    char text[128];
    SafeTensors *file;
    int64_t elements = 0;
    TRY(weights_open(path, &file));
    for (int i = 0; i < safetensors_count(file); i++) {
        const StTensor *t = safetensors_at(file, i);
        elements += (int64_t)(t->bytes / st_dtype_bytes(t->dtype));
    }
    snprintf(text, sizeof text, "%d, with %" PRId64 " numbers", safetensors_count(file), elements);
    safetensors_close(file);
    TRY(facts_read(o, path, facts));
    json_object_set_new(*facts, "tensors", json_string(text));
    return OK;
}

static Status info_file(const Options *o, const char *path, FILE *to)
{
    json_t *facts = NULL;
    TRY(network_is_named(path) ? onnx_facts(path, &facts) : weights_facts(o, path, &facts));
    if (o->json) return json_emit(facts, JSON_COMPACT, to);
    facts_print(facts, to);
    json_decref(facts);
    return OK;
}

/* ---- memory */

static void bytes_row(FILE *to, const char *what, size_t bytes)
{
    text_printf(to, "  %-44s %16zu bytes %10.1f MiB\n", what, bytes, (double)bytes / (1 << 20));
}

/* Resident memory of this process in bytes; 0 if /proc is not available. */
static size_t resident_bytes(void)
{
    return 1024 * (size_t)system_number("/proc/self/status", "VmRSS:", 0);
}

/* ---- --recompute */

static Status again_run(const Program *program, Device *device, double *ms)
{
    int64_t start = clock_ns();
    for (int i = program->forward_end; i < plan_op_count(program->plan); i++)
        if (ends_with(graph_op_at(program->graph, i)->name, ".again")) TRY(plan_run(program->plan, i, i + 1));
    TRY(device->backend->finish(device, STREAM_COMPUTE));
    *ms = (double)(clock_ns() - start) * 1e-6;
    return OK;
}

/* Time of the ops that --recompute runs twice, on zeros: the fastest of several rounds. */
static Status again_time(const Program *program, Device *device, double *best)
{
    Status st = OK;
    void *arena[ARENA_COUNT] = {0};
    for (int a = 0; a < ARENA_COUNT; a++) {
        TRY_OUT(device->backend->alloc(device, plan_bytes(program->plan, (Arena)a) + 64, &arena[a]));
        plan_bind(program->plan, (Arena)a, arena[a]);
    }
    for (int round = 0; round < AGAIN_ROUNDS; round++) {
        double ms = 0;
        TRY_OUT(again_run(program, device, &ms));
        if (round == 0 || ms < *best) *best = ms;
    }
out:
    for (int a = 0; a < ARENA_COUNT; a++)
        if (arena[a]) device->backend->release(device, arena[a]);
    return st;
}

/* Costs and savings of --recompute, relative to the same network without it. */
static Status recompute_row(const ProgramConfig *config, int32_t n, const Layout *layout, Device *device,
                            const Program *with, FILE *to)
{
    PlanReport plain, again;
    Program without;
    ProgramConfig kept = *config;
    double ms = 0, mib = 1 << 20;
    kept.recompute = false;
    TRY(program_create(&kept, n, layout, device, &without));
    plan_report(without.plan, &plain);
    plan_report(with->plan, &again);
    program_destroy(&without);
    TRY(again_time(with, device, &ms));
    double have = (double)again.arena_bytes[ARENA_SCRATCH] / mib, had = (double)plain.arena_bytes[ARENA_SCRATCH] / mib;
    fprintf(to, "  recompute: %.1f MiB of activations instead of %.1f, saves %.1f MiB\n", have, had, had - have);
    text_printf(to, "             %d ops run twice, costs %.1f ms per step (measured here, %d thread%s)\n",
                with->recomputed, ms, device->config.threads, device->config.threads == 1 ? "" : "s");
    return OK;
}

/* What one phase's programs need of the shared arenas, and what they do. */
static void phase_rows(const Model *model, const Program *program, FILE *to)
{
    PlanReport report;
    plan_report(program->plan, &report);
    if (model->phases)
        text_printf(to, "  phase %s: %.1f MiB of activations and their gradients, %.1f MiB of workspace\n",
                    program_phase(model, program->phase)->name,
                    (double)(report.arena_bytes[ARENA_SCRATCH] - report.workspace_bytes) / (1 << 20),
                    (double)report.workspace_bytes / (1 << 20));
    fprintf(to,
            "  activations: %" PRId64 " elements live at most, %" PRId64
            " in total; %d tensors share storage, %d concat inputs are copied\n",
            report.peak_elements, report.all_elements, report.shared_values, report.copied_concats);
    if (program->pools.inputs + program->pools.gradients)
        fprintf(to, "  max pools: %d normalize their input, %d batch norms gather the gradient of theirs\n",
                program->pools.inputs, program->pools.gradients);
}

static void kernels_print(Device *device, const Plan *plan, FILE *to)
{
    text_printf(to, "\nKernels on %s\n%-44s %-16s %-20s %s\n", device->backend->name, "layer", "op", "output",
                "kernel");
    for (int i = 0; i < plan_op_count(plan); i++) {
        const OpCall *call = plan_call(plan, i);
        KernelChoice choice = kernel_chosen(device, call);
        text_printf(to, "%-44s %-16s %-20s %s\n", call->name, op_name(call->kind), shape_text(call->out[0].shape),
                    choice.name);
        if (choice.passed[0]) text_printf(to, "    passed over: %s\n", choice.passed);
    }
    fputs("-: the op has one kernel, or the device does not name it\n", to);
}

/* Uses the plans of all phases on the real device, so that library workspaces are included. The phases of a model take
 * turns in one memory: each class is as large as the phase that needs most of it. */
static Status memory_table(const TrainJob *job, int32_t n, bool kernels, FILE *to)
{
    Status st = OK;
    Program program[PHASES_MAX] = {{0}};
    Layout *layout = NULL;
    Device device = {0};
    DeviceConfig config = job_device(job, 0);
    ProgramConfig training = job->program;
    MemoryPlan memory;
    int phases = program_phases(training.model);
    size_t before = resident_bytes();
    training.training = true;
    TRY(job->backend->open(&config, &device));
    TRY_OUT(program_layout(&training, n, &layout));
    for (training.phase = 0; training.phase < phases; training.phase++)
        TRY_OUT(program_create(&training, n, layout, &device, &program[training.phase]));
    text_printf(to, "\nMemory of one tower, training, batch %d, %s on %s\n", n, dtype_name(training.compute),
                job->backend->name);
    size_t after = resident_bytes();
    ReplicaConfig replica = {.backend = job->backend,
                             .device = config,
                             .train_n = (const int32_t[]){n, 0},
                             .program = job->program,
                             .local = 1,
                             .optimizer = job->optimizer,
                             .ema = job->gate.ema_decay > 0,
                             .accumulate = job->accumulate > 1,
                             .sum = job_comm(job, (Placement){.ranks = job->processes, .local_towers = 1})};
    memory_plan_start(&memory, &replica, layout);
    for (int p = 0; p < phases; p++) memory_plan_add(&memory, program[p].plan);
    /* `prepared`: memory of this process taken by preparing the kernels (mostly their machine code). */
    size_t prepared = after > before ? after - before : 0;
    for (int k = 0; k < MEMORY_CLASSES; k++) {
        bool always =
            k != MEMORY_HALF && k != MEMORY_AVERAGE && k != MEMORY_SUM && k != MEMORY_NCCL && k != MEMORY_UPLOADS;
        if (always || memory.bytes[k]) bytes_row(to, memory_class_name((MemoryClass)k), memory.bytes[k]);
    }
    bytes_row(to, "prepared kernels (measured on this machine)", prepared);
    bytes_row(to, "total for one tower", memory_plan_total(&memory) + prepared);
    for (int p = 0; p < phases; p++) {
        training.phase = p;
        phase_rows(training.model, &program[p], to);
        if (training.recompute) TRY_OUT(recompute_row(&training, n, layout, &device, &program[p], to));
    }
    for (int p = 0; kernels && p < phases; p++) kernels_print(&device, program[p].plan, to);
out:
    for (int p = 0; p < phases; p++) program_destroy(&program[p]);
    layout_destroy(layout);
    job->backend->close(&device);
    return st;
}

/* What is trained, module by module: --lr with its factors, and --weight-decay. */
static void rates_table(const TrainJob *job, const Program *program, FILE *to)
{
    NameFactor module[RATES_MAX];
    const Graph *g = program->graph;
    int count = modules_list(program, module);
    text_printf(to, "\n%-24s %12s %12s %34s %14s %12s\n", "module", "parameters", "trained", "learning rate",
                "weight decay", "of");
    for (int m = 0; m < count; m++) {
        int64_t all = 0, trained = 0, decayed = 0, late = 0;
        double least = INFINITY, most = -INFINITY;
        for (int32_t id = 1; id <= graph_value_count(g); id++) {
            const ValueInfo *info = graph_value(g, (Value){id});
            if (info->role != ROLE_PARAM || !names_match(module[m].pattern, info->name)) continue;
            int64_t elements = shape_count(info->shape);
            bool frozen = names_match(job->program.freeze, info->name);
            all += elements;
            if (frozen && !job->unfreeze_epoch) continue;
            double rate = job->schedule.lr * names_factor(job->rates, job->rate_count, info->name);
            least = fmin(least, rate);
            most = fmax(most, rate);
            trained += elements;
            if (frozen) late += elements;
            if (info->decay || job->decay_all) decayed += elements;
        }
        char rate[64];
        Text text = text_start(rate, sizeof rate);
        text_add(&text, !trained ? "frozen" : least < most ? "%.4g to %.4g" : "%.4g", least, most);
        if (late)
            text_add(&text, late < trained ? ", part from epoch %" PRId64 : " from epoch %" PRId64,
                     job->unfreeze_epoch);
        text_printf(to, "%-24.*s %12" PRId64 " %12" PRId64 " %34s %14.4g %12" PRId64 "\n",
                    (int)strlen(module[m].pattern) - 2, module[m].pattern, all, trained, rate,
                    decayed ? job->weight_decay : 0.0, decayed);
    }
}

static void network_print(const Model *model, FILE *to)
{
    NetFacts facts = network_facts(model);
    text_printf(to, "%-14s %s: %d classes, %s; its structure has the digest %.12s\n", "file", model->file,
                model->classes, network_has_values(model) ? "with trained values" : "without trained values",
                model->digest);
    text_printf(to, "%-14s %d x %d x %d, %s\n", "input", model->channels, model->side, model->side,
                network_knows_input(model) ? "normalized as the file says"
                                           : "normalized by --mean and --std, which the file does not say");
    if (facts.outputs > 1)
        text_printf(to, "%-14s the first has the logits; %d auxiliary\n", "outputs", facts.outputs - 1);
    if (facts.sigmoid) text_printf(to, "%-14s a Sigmoid for each class, of which the loss is --loss bce\n", "end");
    if (facts.shared)
        text_printf(to, "%-14s %d parameter%s of several layers, trained as one\n", "shared", facts.shared,
                    facts.shared == 1 ? " is that" : "s are those");
    if (facts.scalars.count)
        text_printf(to, "%-14s %d trained, being named like parameters: %s\n", "single numbers", facts.scalars.count,
                    facts.scalars.list);
    if (facts.held.count)
        text_printf(to, "%-14s %d single number%s that your network may have trained: %s\n", "held constant",
                    facts.held.count, facts.held.count == 1 ? "" : "s", facts.held.list);
    if (facts.filled.count)
        text_printf(to,
                    "%-14s %d trained, though the file has them as constants: %s; --freeze NAME keeps one as it is\n",
                    "constants", facts.filled.count, facts.filled.list);
    if (model->drop_path > 0)
        text_printf(to, "%-14s rates of stochastic depth up to %g (--drop-path)\n", "drop path",
                    (double)model->drop_path);
    else if (model->residuals)
        text_printf(to, "%-14s none; %d residual sum%s could have stochastic depth (--drop-path)\n", "drop path",
                    model->residuals, model->residuals == 1 ? "" : "s");
    text_printf(
        to, "%-14s %s\n\n", "norms",
        facts.momenta ? "as the file has them; their averages all keep what the last norm's do (--bn-decay)"
        : facts.restored
            ? "a new one behind each convolution from which an exporter may have folded it (--norms restore)"
        : facts.norms ? "as the file has them"
        : !facts.convolves
            ? "none"
            : "none: if the network had batch norms, its exporter has folded them into the convolutions; --norms "
              "restore puts new ones there");
}

/* Layers with output shape, parameters and multiply-adds; totals; the memory plan by class in bytes, for a batch of `n`;
 * if asked for, the op list and the kernel of each op. */
static Status info_model(const JobFiles *files, int32_t n, bool ops, bool kernels, FILE *to)
{
    const TrainJob *job = &files->job;
    const Model *model = job->program.model;
    ProgramConfig config = job->program;
    Program program;
    int64_t macs = 0;
    config.training = true;
    config.fuse_siblings = config.pool_behind_conv = false; /* show the model as in its paper */
    TRY(program_graph(&config, n, &program));
    const Graph *g = program.graph;
    text_printf(to, "%s\n%s\n\n%-44s %-16s %-18s %12s %14s\n", model->title, model->paper, "layer", "op", "output",
                "parameters", "multiply-adds");
    for (int i = 0; i < program.forward_end; i++) layer_row(g, graph_op_at(g, i), n, &macs, to);
    text_printf(to, "%-44s %-16s %-18s %12" PRId64 " %14" PRId64 "\n", "total, forward pass of one image", "", "",
                role_count(g, ROLE_PARAM, NULL), macs);
    for (int p = 0; p < model->phase_count; p++)
        text_printf(to, "  %s: %" PRId64 " parameters, %" PRId64 " running averages\n", model->phases[p].name,
                    role_count(g, ROLE_PARAM, model->phases[p].trains),
                    role_count(g, ROLE_RUNNING, model->phases[p].trains));
    if (job->rate_count || job->program.freeze) rates_table(job, &program, to);
    if (ops) {
        fprintf(to, "\nOp list with gradients\n");
        graph_print(g, to);
    }
    program_destroy(&program);
    return memory_table(job, n, kernels, to);
}

Status info_run(const JobFiles *files, FILE *to)
{
    const TrainJob *job = &files->job;
    const SourceInfo *train = source_info(job->train);
    int64_t per_epoch = job_steps_per_epoch(job), total = job_total_steps(job),
            global = global_batch_of(&job->local_batches);
    int64_t last = train->count - (job_batches_per_epoch(job) - 1) * global;
    text_printf(to, "model          %s, ", job->program.model->name);
    if (job->program.model->classes) fprintf(to, "%d classes, ", job->program.options.classes);
    fprintf(to, "%dx%d\n", job->program.options.side, job->program.options.side);
    text_printf(to, "data           %s: %" PRId64 " training, %" PRId64 " evaluation samples%s\n", train->name,
                train->count, job->test ? source_info(job->test)->count : 0,
                train->multi_label ? ", any number of classes for an image" : "");
    guess_print(job, to);
    if (job->recipe) text_printf(to, "recipe         %s\n", job->recipe);
    text_printf(to, "towers         %d in %d process%s, %d thread%s each, on %s\n", job->local_batches.towers,
                job->processes, job->processes == 1 ? "" : "es", job->device.threads,
                job->device.threads == 1 ? "" : "s", job->backend->name);
    fprintf(to, "batch          %" PRId64, global);
    if (job->local_batches.towers > 1) fputs(" in total:", to);
    for (int t = 0; job->local_batches.towers > 1 && t < job->local_batches.towers; t++)
        fprintf(to, " %d", job->local_batches.batch[t]);
    text_printf(to,
                "\nsteps          %" PRId64 " per epoch, %" PRId64 " in total; the last batch of an epoch has %" PRId64
                " sample%s\n",
                per_epoch, total, last, last == 1 ? "" : "s");
    text_printf(to, "run directory  %s\n", files->run_dir[0] ? files->run_dir : "(created when training starts)");
    int32_t n = 0;
    for (int t = 0; t < job->local_batches.towers; t++)
        n = job->local_batches.batch[t] > n ? job->local_batches.batch[t] : n;
    return memory_table(job, n, false, to);
}

/* An export of this program may compute what no network of a classifier does: pixels from bytes, images from noise. */
static bool is_only_an_export(const char *path)
{
    json_t *facts = NULL;
    const Model *model;
    Status st = model_named(path, &model);
    StatusText words;
    status_keep(&words);
    bool ours = st != OK && onnx_facts(path, &facts) == OK && json_object_get(facts, "towers_version");
    json_decref(facts);
    if (!ours && st != OK) (void)!status_restore(st, &words);
    return ours;
}

/* Whether a file is asked what it says about itself, and not a network what it is. */
static bool is_file(const Options *o)
{
    struct stat file;
    const Model *model;
    const char *given = o->arguments[0];
    if (network_is_named(given)) return o->json || is_only_an_export(given);
    return model_find(given, &model) != OK && stat(given, &file) == 0 && S_ISREG(file.st_mode);
}

Status model_open(Options *options, JobFiles *files)
{
    bool file = options->argument_count && options->verb == VERB_INFO && is_file(options);
    if (options->verb == VERB_INFO && options->json && !file)
        return FAIL(ERR_ARG, "--json is for a file of weights: towers info FILE --json");
    if (options->verb == VERB_INFO && (options->argument_count == 0 || file)) return OK;
    TRY(run_argument_apply(options));
    bool run = options->verb == VERB_INFO && options->weights;
    json_t *root =
        run ? json_of_run(options->weights, "env.json") : NULL; /* its data made them; args.yaml has neither */
    int64_t classes = json_whole(root, "classes"), channels = json_whole(root, "channels");
    json_decref(root);
    if (options->classes <= 0 && classes > 0) option_settle_int(options, OPTION_ID_classes, classes);
    TRY(job_model(options, files));
    if (files->job.program.model->adapts && (channels == 1 || channels == 3))
        files->job.program.data_channels = files->job.program.options.channels = (int32_t)channels;
    return OK;
}

Status info_command(const Options *options, JobFiles *files, FILE *to)
{
    if (options->argument_count == 0) return info_models(to);
    if (!files->job.program.model) return info_file(options, options->arguments[0], to);
    if (files->job.program.model->file) network_print(files->job.program.model, to);
    TRY(info_model(files, (int32_t)options->batch_size, options->ops, options->kernels, to));
    const Model *model = files->job.program.model;
    return model->file && network_has_values(model) ? metadata_print(model->file, to) : OK;
}
