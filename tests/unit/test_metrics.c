/* The growing files of a run: strict JSON in every locale, no step twice after a resume, and training that continues
 * when the disk is full. */
#include <dirent.h>
#include <jansson.h>
#include <signal.h>
#include <sys/resource.h>

#include "tests/support/german.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"
#include "towers/files/files.h"
#include "towers/record/metrics.h"
#include "towers/record/prometheus.h"

static void step_write(Metrics *metrics, int64_t step)
{
    static const TowerLoss towers[] = {
        {1.5, 2, true, .grad_norm = 0.1}, {NAN, 2, false, .grad_norm = INFINITY}, {0, 0, true, .grad_norm = 1e-300}};
    StepRecord record = {.step = step,
                         .lr = 0.1,
                         .images = 4,
                         .images_seen = 4,
                         .tower = towers,
                         .towers = 3,
                         .mean_loss = NAN,
                         .base_loss = -INFINITY,
                         .total_loss = 1e300,
                         .grad_norm = 0.1 + 0.2,
                         .skipped = true};
    metrics_step(metrics, &record);
}

static void epoch_write(Metrics *metrics, int64_t epoch, int64_t step)
{
    EpochRecord record;
    epoch_clear(&record);
    record.epoch = epoch;
    record.step = step;
    record.train_loss = 0.5;
    record.train_top1 = 0;
    record.seconds = INFINITY;
    metrics_epoch(metrics, &record);
}

/* The row of results.csv that epoch_write writes; other numbers were not measured. */
static void row_add(Text *text, int64_t epoch, int64_t step)
{
    text_add(text, "%d,%d", (int)epoch, (int)step);
    for (int i = 0; i < EPOCH_COLUMNS; i++) {
        const char *name = epoch_column[i].name;
        text_add(text, ",%s",
                 !strcmp(name, "train_loss")   ? "0.5"
                 : !strcmp(name, "train_top1") ? "0"
                 : !strcmp(name, "seconds")    ? "inf"
                                               : "");
    }
    text_add(text, "\n");
}

static Metrics *metrics_start(int64_t resume_step)
{
    Metrics *metrics = NULL;
    assert_int_equal(metrics_open(scratch, resume_step, 1, 1, false, &metrics), OK);
    return metrics;
}

static void write_run(int64_t resume_step, int64_t from, int64_t to)
{
    Metrics *metrics = metrics_start(resume_step);
    for (int64_t step = from; step <= to; step++) {
        step_write(metrics, step);
        if (step % 2 == 0) epoch_write(metrics, step / 2, step);
    }
    metrics_close(metrics);
}

TEST_WITH(a_step_is_strict_json, scratch_make, scratch_drop)
{
    static const char
        end[] = ",\"skipped\":true}\n",
        wanted[] =
            "{\"step\":1,\"epoch\":0,\"lr\":0.1,\"images\":4,\"images_per_sec\":0,\"wall_seconds\":0,\"images_seen\":4,"
            "\"mean_loss\":"
            "null,\"base_loss\":null,"
            "\"total_loss\":1e+300,\"last_tower_loss\":null,\"tower_loss\":[0.75,null],\"tower_count\":[2,2,0],"
            "\"finite\":[true,false,true],\"grad_norm\":0.30000000000000004,\"tower_grad_norm\":[0.1,null,1e-300],"
            "\"arrival_us\":[],\"data_us\":[],\"copy_us\":[],\"forward_us\":[],\"backward_us\":[],"
            "\"top1\":0,";
    write_run(-1, 1, 1);
    char *text = scratch_text("metrics.jsonl");
    assert_memory_equal(text, wanted, sizeof wanted - 1);
    assert_string_equal(text + strlen(text) - strlen(end), end);
    json_t *row = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(row);
    assert_true(json_real_value(json_object_get(row, "grad_norm")) == 0.1 + 0.2);
    json_decref(row);
    free(text);
}

typedef struct Column {
    const char *key, *tag, *text;
} Column;

static const Column columns[] = {
#define DERIVED(type, key, value, when, read, tag, text) {#key, tag, text},
#define TOWER_DERIVED(type, key, value, known, read, tag, text) {#key, tag, text},
#define HEAD_DERIVED(key, value, when, tag, text) {#key, tag, text},
#define SCALAR(tag, value, when) {NULL, tag, NULL},
#include "towers/record/metrics.def"
};
enum { COLUMNS = sizeof columns / sizeof columns[0] };

/* docs/records.md has the table of metrics.def, and names each tag. */
TEST_WITH(the_page_lists_the_columns, scratch_make, scratch_drop)
{
    char *page = NULL, *table = NULL;
    size_t bytes = 0;
    assert_int_equal(file_read(TOWERS_SOURCE_DIR "/docs/records.md", 1 << 20, &page, &bytes), OK);
    FILE *to = open_memstream(&table, &bytes);
    fputs("| key | meaning | TensorBoard |\n|---|---|---|\n", to);
    for (int i = 0; i < COLUMNS; i++) {
        const Column *c = &columns[i];
        if (!c->key) {
            if (!strstr(page, c->tag)) fail_msg("docs/records.md does not name the tag '%s'", c->tag);
            continue;
        }
        fprintf(to, "| `%s` | %s | %s%s%s |\n", c->key, c->text, c->tag[0] ? "`" : "", c->tag, c->tag[0] ? "`" : "");
    }
    fclose(to);
    if (!strstr(page, table)) fail_msg("the table of metrics.jsonl in docs/records.md is to be:\n%s", table);
    free(table);
    free(page);
}

/* The page names every column of results.csv. */
TEST(the_page_names_the_epoch)
{
    char *page, *row, name[64];
    size_t count;
    assert_int_equal(file_load(TOWERS_SOURCE_DIR "/docs/records.md", OF_USER, ERR_IO, 1 << 20, &page, &count), OK);
    row = strstr(page, "| `results.csv` |");
    assert_non_null(row);
    *strchr(row, '\n') = 0;
    for (int i = 0; i < EPOCH_COLUMNS; i++) {
        snprintf(name, sizeof name, "`%s`", epoch_column[i].name);
        if (!strstr(row, name)) fail_msg("docs/records.md does not name the column %s", name);
        snprintf(name, sizeof name, "`%s`", epoch_column[i].multi_label);
        if (!strstr(row, name)) fail_msg("docs/records.md does not name the column %s", name);
    }
    free(page);
}

/* With a loss scale a step says so, and whether it was left out for an overflow or for something worse. */
TEST_WITH(an_overflow_is_not_a_failure, scratch_make, scratch_drop)
{
    static const TowerLoss tower = {1.5, 2, true};
    StepRecord record = {
        .step = 1, .tower = &tower, .towers = 1, .skipped = true, .loss_scale = 32768, .overflow = true};
    Metrics *metrics = metrics_start(-1);
    metrics_step(metrics, &record);
    metrics_close(metrics);
    char *text = scratch_text("metrics.jsonl");
    assert_non_null(strstr(text, ",\"loss_scale\":32768,\"overflow\":true,\"skipped\":true}\n"));
    free(text);
}

/* fault: F56 */
TEST_WITH(commas_of_a_locale_stay_out, scratch_make, scratch_drop)
{
    if (!german_begin()) skip("localedef cannot make the German locale (package locales)");
    write_run(-1, 1, 2);
    german_end();
    char *steps = scratch_text("metrics.jsonl"), *epochs = scratch_text("results.csv");
    assert_non_null(strstr(steps, "\"lr\":0.1,"));
    assert_non_null(strstr(epochs, "\n1,2,0.5,0,,,,,,inf,,"));
    free(steps);
    free(epochs);
}

/* The steps in metrics.jsonl as a string of digits. */
static void steps_are(const char *wanted)
{
    char *text = scratch_text("metrics.jsonl"), got[64] = "";
    size_t count = 0;
    for (char *at = strstr(text, "{\"step\":"); at; at = strstr(at + 1, "{\"step\":")) got[count++] = at[8];
    free(text);
    assert_string_equal(got, wanted);
}

TEST_WITH(a_resumed_run_has_each_step_once, scratch_make, scratch_drop)
{
    char *text;
    write_run(-1, 1, 6);
    write_run(3, 4, 5);
    steps_are("12345");
    char wanted[1024];
    epoch_header(false, wanted);
    assert_memory_equal(wanted, "epoch,step,train_loss,train_top1,test_loss,test_top1,test_top5,lr,images_per_sec,",
                        81);
    Text rows = text_behind(wanted, sizeof wanted);
    text_add(&rows, "\n");
    row_add(&rows, 1, 2);
    row_add(&rows, 2, 4);
    text = scratch_text("results.csv");
    assert_string_equal(text, wanted);
    free(text);
    write_run(0, 1, 1);
    steps_are("1");
}

/* Its header gets the columns that rows have now. */
TEST_WITH(a_run_of_an_older_version_goes_on, scratch_make, scratch_drop)
{
    scratch_put("results.csv", "epoch,step,train_loss,train_top1,test_loss,test_top1,test_top5,lr,images_per_sec,"
                               "seconds\n1,2,0.5,0,nan,nan,0,0,0,3\n2,4,0.5,0,nan,nan,0,0,0,4\n");
    write_run(3, 4, 5);
    char *text = scratch_text("results.csv"), wanted[1024];
    epoch_header(false, wanted);
    Text rows = text_behind(wanted, sizeof wanted);
    text_add(&rows, "\n1,2,0.5,0,nan,nan,0,0,0,3\n");
    row_add(&rows, 2, 4);
    assert_string_equal(text, wanted);
    free(text);
}

/* A column more or less than those of some version, or another name, is no header. */
TEST(headers_of_all_versions_are_known)
{
    char now[EPOCH_TEXT], other[EPOCH_TEXT + 8];
    for (int multi_label = 0; multi_label < 2; multi_label++) {
        epoch_header(multi_label, now);
        assert_true(epoch_header_known(now, multi_label));
        assert_false(epoch_header_known(now, !multi_label));
        snprintf(other, sizeof other, "%s,more", now);
        assert_false(epoch_header_known(other, multi_label));
        *strrchr(now, ',') = 0;
        assert_true(epoch_header_known(now, multi_label));
        now[strlen(now) - 1] = 0;
        assert_false(epoch_header_known(now, multi_label));
    }
    assert_false(epoch_header_known("epoch,step", false));
}

/* --metrics-interval 4, of which the second step was refused. */
TEST_WITH(rows_between_are_left_out, scratch_make, scratch_drop)
{
    Metrics *metrics;
    assert_int_equal(metrics_open(scratch, -1, 4, 1, false, &metrics), OK);
    for (int64_t step = 1; step <= 9; step++) {
        static const TowerLoss tower = {1, 2, true, .grad_norm = 1};
        StepRecord record = {.step = step, .tower = &tower, .towers = 1, .skipped = step == 2};
        metrics_step(metrics, &record);
    }
    metrics_close(metrics);
    steps_are("248");
}

TEST_WITH(layers_are_cut_with_the_steps, scratch_make, scratch_drop)
{
    static const LayerRecord layers[] = {{"a.weight", 0.5, NAN}, {"a.bias", 1, 0}};
    for (int turn = 0; turn < 2; turn++) { /* the second run goes on after step 10 */
        Metrics *metrics = metrics_start(turn ? 10 : -1);
        for (int step = turn ? 20 : 10; step <= 30; step += 10) metrics_layers(metrics, step, layers, 2);
        metrics_close(metrics);
    }
    char *text = scratch_text("layers.jsonl");
    assert_string_equal(text, "{\"step\":10,\"layers\":{\"a.weight\":[0.5,null],\"a.bias\":[1,0]}}\n"
                              "{\"step\":20,\"layers\":{\"a.weight\":[0.5,null],\"a.bias\":[1,0]}}\n"
                              "{\"step\":30,\"layers\":{\"a.weight\":[0.5,null],\"a.bias\":[1,0]}}\n");
    free(text);
}

/* fault: F54 */
TEST_WITH(half_a_last_line_is_cut, scratch_make, scratch_drop)
{
    write_run(-1, 1, 2);
    char *steps = scratch_text("metrics.jsonl"), *epochs = scratch_text("results.csv");
    steps[strlen(steps) - 20] = 0;
    epochs[strlen(epochs) - 3] = 0;
    scratch_put("metrics.jsonl", steps);
    scratch_put("results.csv", epochs);
    scratch_put("log.txt", "a whole line\nhalf a li");
    free(steps);
    free(epochs);
    write_run(9, 3, 4);
    steps_are("134");
    epochs = scratch_text("results.csv");
    assert_null(strstr(epochs, "\n1,2"));
    assert_non_null(strstr(epochs, "\n2,4"));
    free(epochs);
    char *log = scratch_text("log.txt");
    assert_memory_equal(log, "a whole line\n2", 14); /* and the time of the next */
    assert_non_null(strstr(log, "Z Epoch 2, Loss: 0.50000, Accuracy: 0.000  ("));
    assert_null(strstr(log, "half a li"));
    free(log);
}

TEST_WITH(an_old_run_is_set_aside, scratch_make, scratch_drop)
{
    write_run(-1, 1, 3);
    write_run(-1, 1, 2);
    steps_are("12");
    char *old = scratch_text("metrics.jsonl.1");
    assert_non_null(strstr(old, "{\"step\":3,"));
    free(old);
}

TEST_WITH(a_log_line_is_one_line, scratch_make, scratch_drop)
{
    Metrics *metrics = metrics_start(-1);
    metrics_log(metrics, "read '%s'", "a\n2026-01-01T00:00:00.000Z forged\x1b[31m");
    assert_int_equal(metrics_sync(metrics), OK);
    char *text = scratch_text("log.txt");
    assert_int_equal(strlen(text), strcspn(text, "\n") + 1);
    assert_int_equal(text[10], 'T');
    assert_int_equal(text[23], 'Z');
    assert_string_equal(text + 25, "read 'a\\x0a2026-01-01T00:00:00.000Z forged\\x1b[31m'\n");
    free(text);
    metrics_close(metrics);
}

static void files_limit(rlim_t bytes)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes == RLIM_INFINITY ? limit.rlim_max : bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* A gauge that is absent is left out; one that is not finite has Prometheus' words. */
TEST_WITH(gauges, scratch_make, scratch_drop)
{
    char path[PATH_BYTES], folder[PATH_BYTES];
    const TowerLoss towers[] = {
        {1.5, 2, true, .grad_norm = -INFINITY}, {0, 0, true}, {NAN, 2, false, .grad_norm = INFINITY}};
    const double heads[] = {0.5, -INFINITY, 0.25};
    StepRecord record = {.step = 7,
                         .mean_loss = NAN,
                         .base_loss = INFINITY,
                         .total_loss = -INFINITY,
                         .top1 = ABSENT,
                         .tower = towers,
                         .towers = 3,
                         .head_loss = heads,
                         .heads = 3};
    snprintf(path, sizeof path, "%s/a.prom", scratch);
    assert_int_equal(prometheus_check(path), OK);
    EpochRecord tested = {.epoch = 3, .test_loss = 0.5, .test_top1 = 0.25, .multi_label = true};
    RunNumbers run = {9, 12.5, NULL};
    char *step;
    assert_int_equal(prometheus_step("runs/a", &record, &step), OK);
    assert_int_equal(prometheus_write(path, "runs/a", step, &run), OK);
    char *text = scratch_text("a.prom");
    assert_null(strstr(text, "towers_test_"));
    free(text);
    run.tested = &tested;
    assert_int_equal(prometheus_write(path, "runs/a", step, &run), OK);
    text = scratch_text("a.prom");
    static const char *const lines[] = {"towers_mean_loss{run=\"runs/a\"} NaN\n",
                                        "towers_base_loss{run=\"runs/a\"} +Inf\n",
                                        "towers_total_loss{run=\"runs/a\"} -Inf\n",
                                        "towers_tower_loss{run=\"runs/a\",tower=\"0\"} 0.75\n",
                                        "towers_tower_loss{run=\"runs/a\",tower=\"2\"} NaN\n",
                                        "towers_tower_grad_norm{run=\"runs/a\",tower=\"0\"} -Inf\n",
                                        "towers_aux_loss{run=\"runs/a\",head=\"0\"} -Inf\n",
                                        "towers_aux_loss{run=\"runs/a\",head=\"1\"} 0.25\n",
                                        "towers_steps{run=\"runs/a\"} 9\n",
                                        "towers_step_time_seconds{run=\"runs/a\"} 12.5\n",
                                        "towers_evaluated_epoch{run=\"runs/a\"} 3\n",
                                        "towers_test_loss{run=\"runs/a\"} 0.5\n",
                                        "towers_test_map{run=\"runs/a\"} 0.25\n"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (!strstr(text, lines[i])) fail_msg("no line '%s' in:\n%s", lines[i], text);
    assert_null(strstr(text, "towers_tower_loss{run=\"runs/a\",tower=\"1\"}"));
    assert_null(strstr(text, "towers_top1{"));
    free(text);
    snprintf(path, sizeof path, "%s/.prom", scratch); /* a name that is an ending alone */
    assert_int_equal(prometheus_check(path), ERR_ARG);
    assert_int_equal(prometheus_check(".prom"), ERR_ARG);
    /* A folder in its place: the file cannot be replaced, and no temporary file stays. */
    snprintf(path, sizeof path, "%s/b.prom", scratch);
    snprintf(folder, sizeof folder, "%s/b.prom/in", scratch);
    assert_true(mkdir(path, 0755) == 0 && mkdir(folder, 0755) == 0);
    assert_int_equal(prometheus_write(path, "runs/a", step, &run), ERR_IO);
    free(step);
    DIR *listing = opendir(scratch);
    for (struct dirent *entry; (entry = readdir(listing));)
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") && strcmp(entry->d_name, "a.prom") &&
            strcmp(entry->d_name, "b.prom"))
            fail_msg("'%s' stays", entry->d_name);
    closedir(listing);
}

/* fault: F48 */
TEST_WITH(a_full_disk_does_not_stop_training, scratch_make, scratch_drop)
{
    Metrics *metrics = metrics_start(-1);
    signal(SIGXFSZ, SIG_IGN);
    step_write(metrics, 1);
    (void)!metrics_sync(metrics);
    assert_null(metrics_warning(metrics));
    files_limit(600); /* in the middle of the second line */
    for (int64_t step = 2; step <= 3; step++) {
        step_write(metrics, step);
        (void)!metrics_sync(metrics);
    }
    assert_non_null(strstr(metrics_warning(metrics), "metrics.jsonl"));
    assert_null(metrics_warning(metrics)); /* once */
    files_limit(RLIM_INFINITY);
    step_write(metrics, 4);
    metrics_flush(metrics);
    metrics_close(metrics);
    signal(SIGXFSZ, SIG_DFL);
    steps_are("14"); /* what was lost is lost whole */
    char *log = scratch_text("log.txt");
    assert_non_null(strstr(log, "writes before this line failed"));
    free(log);
}

TEST(a_place_that_is_none_is_reported)
{
    Metrics *metrics = NULL;
    assert_int_equal(metrics_open("/nonexistent/run", -1, 1, 1, false, &metrics), ERR_IO);
    assert_null(metrics);
}
