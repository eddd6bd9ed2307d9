/* The report of runs of every kind: a complete page that loads nothing and in which no name can inject markup. */
#include <ctype.h>

#include "inception/report/report.h"
#include "tests/support/german.h"
#include "tests/support/noise.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"
#include "towers/record/metrics.h"
#include "towers/record/run_read.h"

static char *page_of_run(void)
{
    if (report_write(scratch) != OK) fail_msg("%s", status_message());
    return scratch_text("report.html");
}

static void lacks(const char *page, const char *text)
{
    if (strstr(page, text)) fail_msg("the page holds '%s'", text);
}

static void holds(const char *page, const char *text)
{
    if (!strstr(page, text)) fail_msg("the page lacks '%s'", text);
}

/* `bad`: a step of the first tower that is not finite; -1: none. */
static void run_write(int towers, int64_t steps, int64_t bad)
{
    Metrics *metrics;
    NoiseRun what = {.towers = towers, .steps = steps, .tower_noise = 0.2, .speed_factor = 1};
    Run *run = noise_run(&what, 5);
    TowerLoss loss[256];
    int64_t arrival[256], data[256];
    assert_int_equal(metrics_open(scratch, -1, 1, 0, false, &metrics), OK);
    for (int64_t i = 0; i < steps; i++) {
        const RunStep *s = &run->step[i];
        for (int t = 0; t < towers; t++) {
            bool poisoned = t == 0 && i == bad;
            loss[t] = (TowerLoss){poisoned ? NAN : s->tower_loss[t] * (double)s->tower_count[t], s->tower_count[t],
                                  !poisoned, .grad_norm = poisoned ? INFINITY : 0.5};
            arrival[t] = 1000 * t + i;
            data[t] = 10 * t;
        }
        StepRecord record = {.step = s->step,
                             .lr = s->lr,
                             .images = s->images,
                             .images_per_sec = s->images_per_sec,
                             .tower = loss,
                             .towers = towers,
                             .mean_loss = i == bad ? NAN : s->mean_loss,
                             .grad_norm = 0.3,
                             .arrival_us = arrival,
                             .data_us = data,
                             .skipped = i == bad};
        metrics_step(metrics, &record);
    }
    metrics_close(metrics);
    run_destroy(run);
}

/* Every element is closed by its own end, in order. */
static void check_nesting(const char *page)
{
    static const char *const empty[] = {"meta", "!doctype"};
    const char *open[64];
    size_t length[64];
    int depth = 0;
    for (const char *at = page; (at = strchr(at, '<')); at++) {
        const char *name = at + 1 + (at[1] == '/'), *end = strchr(at, '>');
        size_t n = strcspn(name, " />\n");
        assert_non_null(end);
        bool alone = end[-1] == '/';
        if (n == strlen("script") && !strncmp(name, "script", n)) { /* no markup in it */
            at = strstr(at, "</script>") + 1;
            continue;
        }
        for (int i = 0; i < 2; i++) alone |= n == strlen(empty[i]) && !strncmp(name, empty[i], n);
        if (at[1] == '/') {
            assert_true(depth > 0);
            depth--;
            if (length[depth] != n || strncmp(open[depth], name, n) != 0)
                fail_msg("<%.*s> is closed by </%.*s>", (int)length[depth], open[depth], (int)n, name);
        } else if (!alone) {
            assert_true(depth < 64);
            open[depth] = name;
            length[depth++] = n;
        }
    }
    assert_int_equal(depth, 0);
}

static void check_page(const char *page)
{
    assert_non_null(strstr(page, "default-src 'none'"));
    assert_non_null(strstr(page, "prefers-color-scheme:dark"));
    assert_non_null(strstr(page, "script-src 'sha256-"));
    static const char *const never[] = {"https://", "<img", "<link", "@import", " onload", "innerHTML"};
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        if (strstr(page, never[i])) fail_msg("the page holds '%s'", never[i]);
    const char *script = strstr(page, "<script"); /* its own is the only one */
    assert_non_null(script);
    assert_null(strstr(script + 1, "<script"));
    assert_non_null(strstr(script, "</script></body></html>"));
    for (const char *at = page; (at = strstr(at, "url(")); at++) /* pictures are inside of the page */
        assert_int_equal(strncmp(at, "url(data:image/jpeg;base64,/9j/", 31), 0);
    for (const char *at = page; (at = strstr(at, " d=\"")); at++) { /* numbers only in paths */
        for (const char *p = at + 4; *p != '"'; p++)
            if (!isdigit(*p) && !strchr("MLHVZhv .-", *p)) fail_msg("'%c' in a path", *p);
    }
    check_nesting(page);
}

/* How far a curve goes up and down: the sum of |y - the y before| of the path whose legend follows `from` as `name`. */
static double path_travel(const char *from, const char *end)
{
    double travel = 0, x, y, before = NAN;
    for (const char *at = from; at < end && *at != '"'; at++) {
        int used = 0;
        if (*at == 'M' || *at == 'L') at++;
        while (*at == ' ') at++;
        if (sscanf(at, "%lf %lf%n", &x, &y, &used) != 2 && sscanf(at, "%lf,%lf%n", &x, &y, &used) != 2) break;
        if (isfinite(before)) travel += fabs(y - before);
        before = y;
        at += used - 1;
    }
    return travel;
}

/* The mean of four towers moves less than the last of them, in every figure that shows both. */
static void check_curves(const char *page)
{
    const char *figure = strstr(page, "Step by step"), *end = strstr(figure, "<g class=\"axes\"");
    double travel[8];
    int paths = 0;
    for (const char *at = figure; (at = strstr(at, " d=\"")) && at < end; at++) {
        double found = path_travel(at + 4, end);
        if (found > 0 && paths < 8) travel[paths++] = found;
    }
    assert_true(paths >= 2);
    if (!(travel[paths - 1] < 0.8 * travel[0]))
        fail_msg("mean_loss moves %g, the last tower %g", travel[paths - 1], travel[0]);
}

TEST_WITH(whole_run, scratch_make, scratch_drop)
{
    run_write(4, 600, 100);
    scratch_put("confusion.csv", "9,1\n2,8\n");
    scratch_put("layers.jsonl", "{\"step\":100,\"layers\":{\"a.weight\":[0.5,0.1],\"a.bias\":[1,0]}}\n"
                                "{\"step\":200,\"layers\":{\"a.weight\":[0.5,0.01],\"a.bias\":[1,null]}}\n");
    scratch_put("memory.json", "{\"weights\": 1048576}");
    scratch_put("results.csv",
                "epoch,step,train_loss,train_top1,test_loss,test_top1,test_top5,lr,images_per_sec,seconds\n"
                "1,300,1,0.5,nan,nan,nan,0.1,100,7\n2,600,1,0.6,0.5,0.8125,0.99,0.1,100,7\n");
    scratch_put("env.json",
                "{\"model\": \"a<b\", \"data\": \"d\", \"class_names\": [\"x<script>\", \"y\\\"&\"], \"command\": "
                "\"towers train '<script>alert(1)</script>'\", \"cores\": 2, \"started\": \"<i>6-07-23T<b>05:06\"}");
    scratch_put("args.yaml", "# towers train\nlr: 0.5   # from command line \"--lr\"\nname: \"<script>\"  # from "
                             "default\n# x: not set\nquiet: false\n");
    char *page = page_of_run();
    check_page(page);
    static const char *const there[] = {"a&lt;b on d",
                                        "81.25 %",
                                        "Variance ratio",
                                        "Bias",
                                        "Confusion",
                                        "<b>What to try next:</b>",
                                        "x&lt;script&gt;",
                                        "started &lt;i&gt;6-07-23, &lt;b&gt;05",
                                        "Layers",
                                        "1.0 MiB",
                                        "test loss",
                                        "recall",
                                        "80.0 %",
                                        "Loss per epoch",
                                        "from 0.02 (pale) to 0.2 (full)",
                                        "0.5</td>",
                                        "class=\"mark\"",
                                        "step 101, tower 0",
                                        "Arrival",
                                        "Waiting for data",
                                        "Step by step",
                                        "<th>cores"};
    for (size_t i = 0; i < sizeof there / sizeof *there; i++)
        if (!strstr(page, there[i])) fail_msg("the page lacks '%s'", there[i]);
    assert_true(strlen(page) < 500000);
    static const char *const order[] = {"class=\"answer\"",     "class=\"cards\"", "<h2>Curves", "<h3>Loss per epoch",
                                        "<h2>Classes",          "<h3>Confusion",   "<h2>Towers", "<h3>Variance ratio",
                                        "<h2>Speed and memory", "<h2>Layers",      "<h2>The run"};
    for (size_t i = 1; i < sizeof order / sizeof *order; i++) { /* what was learned comes first */
        holds(page, order[i]);
        assert_true(strstr(page, order[i - 1]) < strstr(page, order[i]));
    }
    check_curves(page);
    free(page);
}

TEST_WITH(runs_of_every_size, scratch_make, scratch_drop)
{
    static const struct {
        int towers;
        int64_t steps, bad;
    } rows[] = {{1, 1, -1}, {1, 2, 0}, {2, 1, 0}, {2, 3, -1}, {2, 30, 29}, {1, 200, -1}, {100, 60, -1}, {2, 9, -1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        run_write(rows[i].towers, rows[i].steps, rows[i].bad);
        char *page = page_of_run();
        check_page(page);
        free(page);
    }
}

/* Decimal points, whatever the language. */
TEST_WITH(other_locale, scratch_make, scratch_drop)
{
    run_write(2, 50, -1);
    char *plain = page_of_run(), *page;
    bool german = german_begin();
    page = page_of_run();
    if (german) german_end();
    assert_string_equal(plain, page);
    free(plain);
    free(page);
    if (!german) skip("localedef cannot make the German locale (package locales)");
}

static Run *run_of(int64_t limit)
{
    Run *run;
    if (run_read(scratch, limit, &run) != OK) fail_msg("%s", status_message());
    return run;
}

/* Of a large file every row of a few, of each phase, besides the last ones and the one that was refused, unchanged. */
TEST_WITH(thinned, scratch_make, scratch_drop)
{
    enum { STEPS = 3000, CYCLE = 6, BAD = 1501, ENDING = 150, REFUSED = 901, REFUSALS = 5 };
    run_write(2, STEPS, BAD - 1);
    char *rest = scratch_text("metrics.jsonl"), *text = rest, *made = NULL, *line;
    size_t bytes = 0, longest = strlen(text) / 8;
    FILE *to = open_memstream(&made, &bytes);
    assert_non_null(to);
    for (int i = 0; i < STEPS && (line = strsep(&rest, "\n")); i++) {
        char *taken = strstr(line, "\"skipped\":false");
        if (i >= REFUSED - 1 && i < REFUSED - 1 + REFUSALS)
            memcpy(taken, "\"skipped\":true ", strlen("\"skipped\":false"));
        const char *comma = strchr(line, ',');
        fprintf(to, "%.*s,\"phase\":\"%s\"%s\n", (int)(comma - line), line,
                i % CYCLE == CYCLE - 1 ? "generator" : "critic", comma);
    }
    assert_int_equal(fclose(to), 0);
    scratch_put("metrics.jsonl", made);
    Run *all = run_of(0), *few = run_of((int64_t)longest);
    int64_t generator = 0, ending = 0, bad = 0, refused = 0;
    assert_int_equal(all->steps, STEPS);
    assert_int_equal(few->rows, STEPS);
    assert_in_range(few->steps, STEPS / 10 + ENDING, STEPS / 8 + 300);
    for (int64_t i = 0; i < few->steps; i++) {
        const RunStep *kept = &few->step[i], *same = &all->step[kept->step - 1];
        assert_string_equal(kept->phase, same->phase);
        assert_memory_equal(&kept->mean_loss, &same->mean_loss, sizeof kept->mean_loss);
        assert_memory_equal(kept->tower_loss, same->tower_loss, 2 * sizeof *kept->tower_loss);
        generator += !strcmp(kept->phase, "generator") && kept->step < STEPS / 2;
        ending += kept->step > STEPS - ENDING;
        bad += kept->step == BAD && kept->skipped;
        refused += kept->skipped && kept->step >= REFUSED && kept->step < REFUSED + REFUSALS;
    }
    assert_in_range(generator, STEPS / 2 / CYCLE / 10, STEPS / 2 / CYCLE / 8);
    assert_int_equal(ending, ENDING);
    assert_int_equal(bad, 1);
    assert_int_equal(refused, REFUSALS); /* whose numbers are finite: more of them than evenly spaced rows would be */
    run_destroy(few);
    run_destroy(all);
    free(made);
    free(text);
}

TEST_WITH(no_run, scratch_make, scratch_drop)
{
    assert_int_equal(report_write("/nonexistent"), ERR_ARG);
    assert_int_equal(report_write(scratch), ERR_FORMAT);
    scratch_put("metrics.jsonl", "");
    assert_int_equal(report_write(scratch), ERR_FORMAT);
}

/* Waiting and its cause, damaged samples once each, the two sheets of pictures. */
TEST_WITH(data_of_a_run, scratch_make, scratch_drop)
{
    char *page, bad[64 * 1024] = "";
    run_write(2, 50, -1);
    scratch_put("data.json", "{\"first_step\": 1, \"last_step\": 50, \"images\": 1000, \"read_ns\": 5000000, "
                             "\"decode_ns\": 90000000, \"resize_ns\": 1, \"augment_ns\": 1, \"cause\": \"decode\", "
                             "\"warnings\": 0, \"rotated\": 7, \"exif\": false, \"bad_samples\": 3}\n");
    scratch_put("bad-samples.csv", "3,0,17,\"'a, \"\"b\"\".jpg': <cut> at offset 99\"\n"
                                   "evaluation,0,17,\"'c.jpg': cut off\"\n"
                                   "23,1,17,\"'a, \"\"b\"\".jpg': <cut> at offset 99\"\n4,0,5,\"never whole");
    scratch_put("mistakes.csv",
                "sample,file,label,predicted,probability,loss\n"
                "4,\"x/\"\"4\"\".jpg\",\"cat\",\"<dog>\",0.987654,4.4\n9,\"y.jpg\",\"cow\",\"cat\",0.5,1\n");
    scratch_put("mistakes.jpg", "\xff\xd8\xff\xe0picture");
    scratch_put("first-batch.csv", "sample,file,label\n1,\"z.jpg\",\"sheep\"\n");
    scratch_put("first-batch.jpg", "\xff\xd8\xff\xe0pictur");
    page = page_of_run();
    check_page(page);
    static const char *const there[] = {"of the steps' time; the loader spent most of its time on: decode",
                                        "<th>decode</th><td>90.0 &micro;s",
                                        "7 images (EXIF orientation), used as stored; --exif",
                                        "&lt;cut&gt; at offset 99</td><td class=\"n\">2</td>",
                                        "<th>training 17</th><td>'a, &quot;b&quot;.jpg': ",
                                        "<th>evaluation 17</th><td>'c.jpg': cut off</td><td class=\"n\">1</td>",
                                        "title=\"x/&quot;4&quot;.jpg\"",
                                        "&lt;dog&gt; 98.8 %, is cat",
                                        "base64,/9j/4HBpY3R1cmU=)",
                                        "base64,/9j/4HBpY3R1cg==)",
                                        "First training batch",
                                        ">sheep<small>z.jpg</small></div>"};
    for (size_t i = 0; i < sizeof there / sizeof *there; i++) holds(page, there[i]);
    lacks(page, "never whole");
    free(page);

    for (int i = 0; i < 500; i++) sprintf(bad + strlen(bad), "1,0,%d,\"'%d.jpg': cut off\"\n", i, i);
    scratch_put("bad-samples.csv", bad);
    scratch_put("mistakes.jpg", "no picture");
    scratch_put("first-batch.csv", "\n,,,\n\"\n\"\"\"\n\xff\xfe,\"\xc3\n");
    page = page_of_run();
    check_page(page);
    holds(page, "'39.jpg'");
    lacks(page, "'40.jpg'");
    holds(page, "bad-samples.csv lists all");
    lacks(page, "Most confident mistakes");
    free(page);
}

/* Adds keys behind the first one of some rows of metrics.jsonl. */
static void rows_add(const int *rows, const char *const *keys, int count)
{
    char *rest = scratch_text("metrics.jsonl"), *text = rest, *made = NULL, *line;
    size_t bytes = 0;
    FILE *to = open_memstream(&made, &bytes);
    assert_non_null(to);
    for (int row = 1, k = 0; (line = strsep(&rest, "\n")) && *line; row++) {
        const char *comma = strchr(line, ',');
        bool more = k < count && rows[k] == row;
        fprintf(to, "%.*s%s%s%s\n", (int)(comma - line), line, more ? "," : "", more ? keys[k++] : "", comma);
    }
    assert_int_equal(fclose(to), 0);
    scratch_put("metrics.jsonl", made);
    free(made);
    free(text);
}

/* What GPUs reported in three rows: a line for each of those that did, and no plot of what none has reported. */
TEST_WITH(telemetry, scratch_make, scratch_drop)
{
    static const int rows[] = {10, 30, 50};
    static const char *const readings[] = {"\"gpu_watts\":[300,null],\"gpu_celsius\":[60,70]",
                                           "\"gpu_watts\":[301,null],\"gpu_celsius\":[70,70]",
                                           "\"gpu_watts\":[305,null],\"gpu_celsius\":[80,null]"};
    run_write(2, 50, -1);
    char *page = page_of_run();
    lacks(page, "GPU");
    free(page);
    rows_add(rows, readings, 3);
    page = page_of_run();
    check_page(page);
    holds(page, "<h3>GPU power");
    /* steps 1 to 50 from 0 to 1000, 60 to 80 degrees from 182 to 0 */
    const char *plot = strstr(page, "<h3>GPU temperature");
    assert_non_null(plot);
    holds(plot, "l0\" stroke-width=\"1.3\" d=\"M183.7 182.0L591.8 91.0L1000.0 0.0\"");
    holds(plot, "l1\" stroke-width=\"1.3\" d=\"M183.7 91.0L591.8 91.0\"");
    lacks(page, "<h3>GPU clock");
    free(page);
    rows_add((int[]){20}, (const char *const[]){"\"gpu_watts\":[300]"}, 1);
    assert_int_equal(report_write(scratch), ERR_FORMAT);
    holds(status_message(), "'gpu_watts' needs 2 elements");
}

/* With many classes env.json takes megabytes. */
TEST_WITH(long_environment, scratch_make, scratch_drop)
{
    char *text = NULL;
    run_write(2, 50, -1);
    assert_true(asprintf(&text, "{\"model\": \"m\",%*s\"data\": \"d\"}", 2 << 20, "") > 0);
    scratch_put("env.json", text);
    free(text);
    char *page = page_of_run();
    holds(page, "m on d");
    free(page);
}

/* Other files than the record may be damaged: the page is made without them. */
TEST_WITH(odd_neighbors, scratch_make, scratch_drop)
{
    run_write(2, 50, -1);
    scratch_put("env.json", "{nonsense");
    scratch_put("memory.json", "[]");
    scratch_put("args.yaml", "::::\nlr\n\n: # from\nquiet: #");
    scratch_put("data.json", "{\"images\": \"many\"}");
    scratch_put("bad-samples.csv", "\n,\n,,\n\"");
    scratch_put("mistakes.csv", "");
    scratch_put("mistakes.jpg", "\xff\xd8\xff");
    scratch_put("confusion.csv", "97,25\n26,88\n");
    char *page = page_of_run();
    check_page(page);
    holds(strstr(page, "<h3>Confusion"), ">1</text>"); /* Classes without names have numbers. */
    free(page);
}
