/* towers data: dispatch, and the subcommands bench, show and index; see data.h. */
#include "inception/commands/data.h"
#include "inception/commands/commands.h"
#include "inception/commands/result_file.h"
#include "inception/job/job.h"
#include "inception/job/progress_line.h"
#include "inception/job/remote_data.h"
#include "inception/job/transforms.h"
#include "inception/options/conditions.h"
#include "inception/options/recipe.h"
#include "kernels/base/clock.h"
#include "kernels/base/open.h"
#include "towers/data/loading/sheet.h"
#include "towers/data/shards/sidecar.h"
#include "towers/data/shards/sidecar_files.h"
#include "towers/record/png.h"
#include "towers/remote/address.h"

enum { BENCH_SECONDS = 5, BENCH_BATCH = 32, SHEET_SIDE = 5, SIDE_USUAL = 299 };

/* Take the size and the training transform from options, as if for a job. */
static void transform_of(const Options *o, const Source *source, Transform *train)
{
    TrainJob job = {.program.options.side = o->img_size > 0 ? (int32_t)o->img_size : SIDE_USUAL};
    job_transforms(o, &job, source_info(source)->h == 0);
    *train = job_transform(&job, true);
}

static Status loader_of(const Options *o, const Source *source, int32_t batch, int workers, Loader **made)
{
    LoaderConfig config = {.source = source,
                           .local_batches = {.towers = 1, .batch = &batch},
                           .local = 1,
                           .seed = (uint64_t)o->seed,
                           .shuffle = true,
                           .window = (int)o->shuffle_window,
                           .sampler = o->sampler,
                           .mix = {o->mixup, o->cutmix},
                           .bad = BAD_SKIP,
                           .max_steps = INT64_MAX,
                           .workers = workers,
                           .depth = 4};
    TRY(job_order_check(o, source_info(source)));
    transform_of(o, source, &config.transform);
    return loader_create(&config, made);
}

/* ---- bench */

/* Bytes that this process has had read from storage, which the page cache spares it; 0 if unknown. */
static int64_t storage_bytes(void)
{
    return system_number("/proc/self/io", "read_bytes:", 0);
}

static void clocks_print(const LoaderClocks *from, const LoaderClocks *till, double seconds, int64_t images,
                         int64_t stored, FILE *to)
{
    double n = till->samples > from->samples ? (double)(till->samples - from->samples) : 1;
    const struct {
        const char *name;
        int64_t ns;
    } stages[] = {{"read", till->read - from->read},
                  {"decode", till->decode - from->decode},
                  {"resize", till->resize - from->resize},
                  {"augment", till->augment - from->augment}};
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++)
        text_printf(to, "  %-8s %8.1f us per image and thread\n", stages[i].name, (double)stages[i].ns / n / 1e3);
    fprintf(to, "  storage  %8.1f KiB read per image, the rest came from the page cache\n", (double)stored / n / 1024);
    fprintf(to, "  all      %8.0f images/s\n", (double)images / seconds);
}

static Status bench_run_for(const Options *o, const Source *source, int workers, FILE *to)
{
    Status st = OK;
    Loader *loader = NULL;
    const Batch *batch;
    LoaderClocks from, till;
    int64_t count = source_info(source)->count;
    int32_t n = (int32_t)(count < BENCH_BATCH ? count : BENCH_BATCH);
    TRY_OUT(loader_of(o, source, n, workers, &loader));
    for (int i = 0; i < 5; i++) TRY_OUT(loader_next(loader, &batch)); /* fill the page cache */
    loader_clocks(loader, &from);
    int64_t images = 0, stored = storage_bytes(), start = clock_ns(), now = start;
    for (; now - start < BENCH_SECONDS * INT64_C(1000000000); now = clock_ns()) {
        TRY_OUT(loader_next(loader, &batch));
        images += batch->n;
    }
    loader_clocks(loader, &till);
    stored = storage_bytes() - stored;
    text_printf(to, "%d thread%s\n", workers, workers == 1 ? "" : "s");
    clocks_print(&from, &till, 1e-9 * (double)(now - start), images, stored, to);
out:
    loader_destroy(loader);
    return st;
}

static Status data_bench(const Options *o, FILE *to)
{
    Source *source = NULL;
    int cores = data_threads(o);
    TRY(data_open(o, o->arguments[1], SPLIT_TRAIN, NULL, &source));
    Transform t;
    transform_of(o, source, &t);
    Status st = transform_check(&t);
    text_printf(to, "%s: %" PRId64 " images, to %d x %d%s\n", source_info(source)->name, source_info(source)->count,
                t.side, t.side, o->augment ? ", augmented" : "");
    for (int workers = 1; st == OK && workers <= cores;
         workers = workers < cores && 2 * workers > cores ? cores : 2 * workers)
        st = bench_run_for(o, source, workers, to);
    source_close(source);
    return st;
}

/* ---- show */

/* Every image at its full size. */
static Status sheet_make(const Options *o, const Source *source, const Batch *batch, int32_t side, FILE *to)
{
    static const float mean[3] = {0.5f, 0.5f, 0.5f};
    Status st = OK;
    Sheet sheet;
    TRY_OUT(sheet_open(&sheet, batch->n, SHEET_SIDE, side, side, batch->c));
    for (int32_t i = 0; i < batch->n; i++) {
        char where[512], label[256];
        TRY_OUT(sheet_put(&sheet, i, batch, i, mean));
        source_where(source, batch->ids[i], where, sizeof where);
        batch_label(batch, i, source, label, sizeof label);
        text_printf(to, "row %d, column %d: %s  %s\n", i / SHEET_SIDE + 1, i % SHEET_SIDE + 1, label, where);
    }
    TRY_OUT(png_replace(o->sheet, sheet.pixels.at, sheet.pixels.w, sheet.pixels.h, sheet.pixels.c));
out:
    sheet_close(&sheet);
    return st;
}

static Status data_show(const Options *o, FILE *to)
{
    Status st = OK;
    Source *source = NULL;
    Loader *loader = NULL;
    const Batch *batch;
    Transform t;
    TRY(png_name_check("-o", o->sheet));
    TRY(result_file_check("-o", o->sheet, RESULT_PNG, NULL));
    TRY_OUT(data_open(o, o->arguments[1], SPLIT_TRAIN, NULL, &source));
    const SourceInfo *info = source_info(source);
    if (!info->shard_first && info->h == 0) /* images in files of their own */
        TRY_OUT(result_file_check("-o", o->sheet, RESULT_PNG, o->arguments[1]));
    int64_t count = source_info(source)->count;
    transform_of(o, source, &t);
    TRY_OUT(
        loader_of(o, source, (int32_t)(count < SHEET_SIDE * SHEET_SIDE ? count : SHEET_SIDE * SHEET_SIDE), 0, &loader));
    TRY_OUT(loader_next(loader, &batch));
    TRY_OUT(sheet_make(o, source, batch, t.side, to));
    text_printf(to, "written to %s\n", o->sheet);
    if (!o->recipe && job_set_is_small(source_info(source)))
        fputs("by default a classifier is trained on these with --recipe photos; to see that, give it here, too\n", to);
out:
    loader_destroy(loader);
    source_close(source);
    return st;
}

/* ---- index */

static void index_progress(void *context, int64_t done, int64_t all)
{
    (void)context;
    progress_count_show("", "shards", done, all);
}

static Status data_index(const Options *o, FILE *to)
{
    const char *path = o->arguments[1];
    SidecarsMade made;
    if (is_address(path)) return address_index(o, path, to);
    TRY(sidecars_write(path, o->quiet ? NULL : index_progress, &made));
    text_printf(to,
                "%d shards with %" PRId64 " samples; their index is in " SIDECAR_NAME " beside them (%d file%s, %.1f "
                "KiB)\n",
                made.shards, made.samples, made.folders, made.folders == 1 ? "" : "s", (double)made.bytes / 1024);
    return OK;
}

/* ---- */

Status data_run(const Options *o, JobFiles *files, FILE *to)
{
    (void)files;
    static const struct {
        const char *name;
        int arguments;
        Status (*run)(const Options *, FILE *);
    } commands[] = {{"info", 2, data_info}, {"check", 2, data_check}, {"bench", 2, data_bench},
                    {"show", 2, data_show}, {"index", 2, data_index}, {"convert", 3, data_convert}};
    const char *name = o->argument_count ? o->arguments[0] : "";
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(name, commands[i].name) != 0) continue;
        if (o->argument_count != commands[i].arguments)
            return FAIL(ERR_ARG, "usage: towers data %s PATH%s", name,
                        commands[i].arguments == 3 ? " DESTINATION" : "");
        TRY(conditions_check(o));
        return commands[i].run(o, to);
    }
    return FAIL(ERR_ARG, "towers data%s%s%s: expected info, check, bench, show, index or convert, and a PATH",
                *name ? " '" : "", name, *name ? "'" : "");
}

Status data_settle(Options *options, JobFiles *files)
{
    (void)files;
    TRY(recipe_apply(options));
    if (options->argument_count && !strcmp(options->arguments[0], "index"))
        return OK; /* of an address nothing need come */
    return options->argument_count > 1 ? arguments_bring(options, 1) : OK;
}
