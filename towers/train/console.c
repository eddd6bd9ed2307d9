/* The progress bar, plain lines and epoch lines of a run; see console.h. */
#include "towers/train/console.h"
#include "kernels/base/absent.h"
#include "kernels/base/outlet.h"
#include "kernels/base/text.h"

#include <sys/ioctl.h>
#include <unistd.h>

enum { DRAW_MS = 100, CELLS = 22, FEW_CELLS = 10, NARROW = 90, FIELD = 160, RECENT = 50, EXPECTED_STEPS = 4 };
static const double EXPECTED_AFTER = 3, EXPECTED_LEAST = 60; /* seconds of steps; to come */

/* The size reported by the terminal, or COLUMNS and LINES if there is none. */
static int terminal_size(bool rows)
{
    struct winsize size;
    const char *variable = getenv(rows ? "LINES" : "COLUMNS");
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0)
        return rows ? size.ws_row : size.ws_col;
    return variable && atoi(variable) > 0 ? atoi(variable) : rows ? 24 : 80;
}

static bool speaks_utf8(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (int i = 0; i < 3; i++) {
        const char *value = getenv(names[i]);
        if (value && *value) return strcasestr(value, "utf-8") || strcasestr(value, "utf8");
    }
    return false;
}

/* Erase the bar and the towers' lines below it. A bar drawn in a wider window now takes several rows, with the cursor
 * at its end. */
static void bar_clear(Console *c)
{
    int width = terminal_size(false), above = width > 0 && c->bar_columns > width ? (c->bar_columns - 1) / width : 0;
    if (c->bar_shown && above) fprintf(stderr, "\033[%dA", above);
    if (c->bar_shown) fputs("\r\033[J", stderr);
    c->bar_shown = false;
}

/* The time left, from the mean time of a step since the start of this process. */
static void eta_text(const Console *c, int64_t step, int64_t steps, char text[32])
{
    int64_t done = step - c->first_step;
    double seconds = (double)(clock_ns() - c->started_ns) * 1e-9;
    long s = done > 0 ? (long)(seconds / (double)done * (double)(steps - step) + 0.5) : 0;
    if (s >= 3600)
        snprintf(text, 32, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(text, 32, "%ld:%02ld", s / 60, s % 60);
}

/* The newest step of a phase up to `step`; NULL if the ledger has none. */
static const LedgerShown *newest_of(const Console *c, int phase, int64_t step)
{
    int64_t s = step;
    while (s > c->first_step && s > step - LEDGER_STEPS / 2 && job_phase_of(c->job, s - 1) != phase) s--;
    const LedgerShown *shown = &c->ledger->run.shown[s % LEDGER_STEPS];
    return shown->step == s && s > 0 && job_phase_of(c->job, s - 1) == phase ? shown : NULL;
}

/* " [0.5120 0.4983 -]": the loss of each tower; "-" of one without samples. */
static void towers_text(const Console *c, int64_t step, Text *text)
{
    char loss[NUMBER_TEXT];
    for (int t = 0; t < c->ledger->towers; t++)
        text_add(text, "%s%s", t ? " " : " [",
                 number_text(tower_loss_mean(&c->ledger->tower[t].rows[step % LEDGER_STEPS].loss), "%.4f", loss));
    text_add(text, "]");
}

/* "critic -3.2104  generator 0.5120": the last loss of each phase according to --report-loss; "all" lists every tower's. */
static void phases_text(const Console *c, int64_t step, Text *text)
{
    char loss[NUMBER_TEXT];
    for (int phase = 0; phase < program_phases(c->job->program.model); phase++) {
        const LedgerShown *shown = newest_of(c, phase, step);
        if (!shown) continue;
        text_add(text, "%s%s %s", phase ? "  " : "", job_phase(c->job, phase)->name,
                 number_text(shown->loss, "%.4f", loss));
        if (c->job->report == LOSS_REPORT_ALL) towers_text(c, shown->step, text);
    }
}

/* "  wasserstein 9.86  penalty 0.17  slope 1.402" of the last step of each phase. */
static void terms_text(const Console *c, int64_t step, char *buffer, size_t bytes)
{
    Text text = text_start(buffer, bytes);
    for (int phase = 0; phase < program_phases(c->job->program.model); phase++) {
        const LedgerShown *shown = newest_of(c, phase, step);
        if (shown) text_add(&text, "%s", shown->terms);
    }
}

/* "loss 0.5123" according to --report-loss; "all" lists every tower's loss. */
static void loss_text(const Console *c, int64_t step, Number loss, char *buffer, size_t bytes)
{
    static const char *const words[] = {[LOSS_REPORT_LAST] = "last_tower_loss",
                                        [LOSS_REPORT_FIRST] = "first_tower_loss",
                                        [LOSS_REPORT_MEAN] = "mean_loss",
                                        [LOSS_REPORT_WORST] = "worst_tower_loss",
                                        [LOSS_REPORT_ALL] = "mean_loss"};
    LossReport report = c->job->report;
    Text text = text_start(buffer, bytes);
    if (program_phases(c->job->program.model) > 1) {
        phases_text(c, step, &text);
        return;
    }
    char number[NUMBER_TEXT];
    text_add(&text, "%s %s", words[report], number_text(loss, "%.4f", number));
    if (report == LOSS_REPORT_ALL) towers_text(c, step, &text);
}

/* ---- values of a step from the ledger's rows */

static const LedgerRow *row_of(const Console *c, int tower, int64_t step)
{
    return &c->ledger->tower[tower].rows[step % LEDGER_STEPS];
}

/* Training accuracy over the last steps, or share of exact matches; ABSENT if it is unknown. */
static Number recent_accuracy(const Console *c, int64_t step)
{
    int64_t correct = 0, count = 0;
    if (c->job->program.model->phases) return ABSENT;
    for (int64_t s = step; s > step - RECENT && s > c->first_step; s--) {
        for (int t = 0; t < c->ledger->towers; t++) {
            const LedgerRow *row = row_of(c, t, s);
            if (row->step != s) continue;
            correct += row->loss.correct[0];
            count += row->loss.count;
        }
    }
    return count ? (double)correct / (double)count : ABSENT;
}

static void spread_text(const Console *c, int64_t step, char *text, size_t bytes)
{
    double low = INFINITY, high = -INFINITY;
    for (int t = 0; t < c->ledger->towers; t++) {
        Number loss = tower_loss_mean(&row_of(c, t, step)->loss);
        if (loss < low) low = loss;
        if (loss > high) high = loss;
    }
    if (c->ledger->towers > 1 && low <= high) snprintf(text, bytes, "%.3f..%.3f", low, high);
}

/* "data-wait 12 % (decode)": the longest wait of a tower for its batch, as a share of the step, and the stage that took
 * most of the loader threads' time in the last steps. */
static void waiting_text(const Console *c, const LedgerShown *shown, char text[FIELD])
{
    static const LoaderClocks none;
    int64_t most = 0, before = shown->step - RECENT;
    int tower = 0;
    for (int t = 0; t < c->ledger->towers; t++) {
        int64_t waited = row_of(c, t, shown->step)->activity_ns[ACTIVITY_DATA];
        if (waited > most) most = waited, tower = t;
    }
    const LedgerRow *early = row_of(c, tower, before > 0 ? before : 0);
    const char *cause = loader_cause(c->job->train, early->step == before ? &early->loader : &none,
                                     &row_of(c, tower, shown->step)->loader);
    double share = shown->seconds > 0 ? 100 * (double)most * 1e-9 / shown->seconds : 0;
    bool named = share >= 0.5 && *cause;
    snprintf(text, FIELD, "data-wait %.0f %%%s%s%s", fmin(share, 100), named ? " (" : "", named ? cause : "",
             named ? ")" : "");
}

/* ---- the progress bar */

/* Fields in the order of display, and the order in which they are dropped if there is not enough room. */
typedef enum ConsoleField {
    FIELD_EPOCH = 0,
    FIELD_STEP,
    FIELD_LOSS,
    FIELD_TERMS,
    FIELD_SPREAD,
    FIELD_ACCURACY,
    FIELD_RATE,
    FIELD_SPEED,
    FIELD_DATA,
    FIELD_BAD,
    FIELD_ETA,
    FIELD_COUNT
} ConsoleField;
static const ConsoleField given_up[] = {FIELD_RATE,  FIELD_DATA,  FIELD_ACCURACY, FIELD_SPREAD, FIELD_TERMS,
                                        FIELD_EPOCH, FIELD_SPEED, FIELD_BAD,      FIELD_ETA,    FIELD_STEP};

static void fields_fill(const Console *c, const LedgerShown *shown, int64_t steps, char fields[FIELD_COUNT][FIELD])
{
    const LedgerRun *run = &c->ledger->run;
    int64_t step = shown->step, bad = atomic_load(&run->skipped), large = atomic_load(&run->overflows),
            damaged = atomic_load(&run->bad_samples);
    Number accuracy = recent_accuracy(c, step);
    char eta[32];
    eta_text(c, step, steps, eta);
    memset(fields, 0, FIELD_COUNT * FIELD);
    snprintf(fields[FIELD_EPOCH], FIELD, "epoch %.2f", (double)step / (double)job_steps_per_epoch(c->job));
    snprintf(fields[FIELD_STEP], FIELD, "%" PRId64 "/%" PRId64, step, steps);
    loss_text(c, step, shown->loss, fields[FIELD_LOSS], FIELD);
    char terms[FIELD];
    terms_text(c, step, terms, sizeof terms);
    snprintf(fields[FIELD_TERMS], FIELD, "%s", terms + strspn(terms, " "));
    spread_text(c, step, fields[FIELD_SPREAD], FIELD);
    if (!is_absent(accuracy))
        snprintf(fields[FIELD_ACCURACY], FIELD, "%s %.1f%%", c->job->program.multi_label ? "exact" : "acc",
                 100 * accuracy);
    snprintf(fields[FIELD_RATE], FIELD, "lr %.3g", shown->lr);
    snprintf(fields[FIELD_SPEED], FIELD, "%.0f img/s", (double)shown->samples / shown->seconds);
    waiting_text(c, shown, fields[FIELD_DATA]);
    Text left_out = text_start(fields[FIELD_BAD], FIELD);
    if (bad) text_add(&left_out, "%" PRId64 " skipped", bad);
    if (large) text_add(&left_out, "%s%" PRId64 " overflowed", bad ? ", " : "", large);
    if (damaged) text_add(&left_out, "%s%" PRId64 " damaged", bad || large ? ", " : "", damaged);
    snprintf(fields[FIELD_ETA], FIELD, "eta %s", eta);
}

static size_t fields_width(char fields[FIELD_COUNT][FIELD])
{
    size_t width = 0;
    for (int i = 0; i < FIELD_COUNT; i++)
        if (fields[i][0]) width += 2 + strlen(fields[i]);
    return width;
}

static void fields_fit(char fields[FIELD_COUNT][FIELD], size_t room)
{
    for (size_t i = 0; i < sizeof given_up / sizeof *given_up && fields_width(fields) > room; i++)
        fields[given_up[i]][0] = 0;
    if (fields_width(fields) > room) fields[FIELD_LOSS][room > 2 ? room - 2 : 0] = 0;
}

/* "tower 1  loss 0.4312  gradient 1.21  +12.5 ms  forward": its last complete step and (`now`) its current activity, in
 * `columns`; if they are not enough, fields are dropped, the gradient first. */
static void tower_text(const Console *c, int tower, int64_t step, bool now, int columns, char *buffer, size_t bytes)
{
    const LedgerRow *row = row_of(c, tower, step);
    int64_t earliest = row->arrival_ns;
    for (int t = 0; t < c->ledger->towers; t++) { /* 0: a tower on another host, whose clock means nothing here */
        int64_t arrival = row_of(c, t, step)->arrival_ns;
        if (arrival && arrival < earliest) earliest = arrival;
    }
    char loss[FIELD], gradient[FIELD], late[FIELD], activity[FIELD] = "", number[NUMBER_TEXT];
    snprintf(loss, sizeof loss, "  tower %-3d loss %-9s", tower,
             number_text(tower_loss_mean(&row->loss), "%.4f", number));
    snprintf(gradient, sizeof gradient, " gradient %-9.3g", row->loss.grad_norm);
    snprintf(late, sizeof late, " +%.1f ms", (double)(row->arrival_ns - earliest) * 1e-6);
    if (!row->arrival_ns) snprintf(late, sizeof late, " elsewhere");
    if (now && row->arrival_ns)
        snprintf(activity, sizeof activity, "  %s",
                 activity_name((Activity)atomic_load(&c->ledger->tower[tower].activity)));
    char *optional[] = {gradient, late, activity};
    for (int i = 0; i < 3; i++)
        if (strlen(loss) + strlen(gradient) + strlen(late) + strlen(activity) > (size_t)columns) optional[i][0] = 0;
    Text text = text_start(buffer, bytes);
    text_add(&text, "%s%s%s%s", loss, gradient, late, activity);
}

static void bar_draw(Console *c, int64_t step, int64_t steps)
{
    char fields[FIELD_COUNT][FIELD];
    const LedgerShown *shown = &c->ledger->run.shown[step % LEDGER_STEPS];
    int width = terminal_size(false), cells = width < NARROW ? FEW_CELLS : CELLS;
    if (width < 2 * FEW_CELLS) cells = 0;
    fields_fill(c, shown, steps, fields);
    fields_fit(fields, width > cells + 1 ? (size_t)(width - cells - 1) : 0);
    if (c->bar_shown)
        bar_clear(c);
    else
        fputs("\r\033[J", stderr);
    bool rich = speaks_utf8();
    int filled = steps > 0 ? (int)(step * cells / steps) : 0;
    if (c->job->color) fputs("\033[36m", stderr);
    for (int i = 0; i < filled; i++) fputs(rich ? "━" : "=", stderr);
    if (c->job->color) fputs("\033[90m", stderr);
    for (int i = filled; i < cells; i++) fputs(rich && c->job->color ? "━" : rich ? "┄" : "-", stderr);
    if (c->job->color) fputs("\033[0m", stderr);
    for (int i = 0; i < FIELD_COUNT; i++)
        if (fields[i][0]) fprintf(stderr, "  %s", fields[i]);
    c->bar_columns = cells + (int)fields_width(fields);
    if (c->job->towers_view) {
        int rows = terminal_size(true) - 2, count = c->ledger->towers < rows ? c->ledger->towers : rows;
        for (int t = 0; t < count; t++) {
            char text[2 * FIELD];
            tower_text(c, t, step, true, width - 1, text, sizeof text);
            fprintf(stderr, "\n%.*s", width - 1, text);
        }
        if (count > 0) fprintf(stderr, "\033[%dA", count);
    }
    fflush(stderr);
    c->bar_shown = true;
}

/* ---- lines */

static void plain_line(Console *c, const LedgerShown *shown, int64_t steps)
{
    char loss[512], terms[FIELD], waiting[FIELD], eta[32];
    double epoch = (double)shown->step / (double)job_steps_per_epoch(c->job);
    loss_text(c, shown->step, shown->loss, loss, sizeof loss);
    terms_text(c, shown->step, terms, sizeof terms);
    waiting_text(c, shown, waiting);
    eta_text(c, shown->step, steps, eta);
    fprintf(stderr, "step %" PRId64 "/%" PRId64 "  epoch %.2f  %s%s  lr %.4g  %.0f img/s  eta %s%s%s\n", shown->step,
            steps, epoch, loss, terms, shown->lr, (double)shown->samples / shown->seconds, eta,
            strchr(waiting, '(') ? "  " : "", strchr(waiting, '(') ? waiting : "");
    for (int t = 0; c->job->towers_view && t < c->ledger->towers; t++) {
        char text[2 * FIELD];
        tower_text(c, t, shown->step, false, FIELD, text, sizeof text);
        fprintf(stderr, "%s\n", text);
    }
}

/* "2016-07-23 14:05:06.123456: " */
static void time_prefix(void)
{
    struct timespec now;
    struct tm local;
    char text[32] = "";
    clock_gettime(CLOCK_REALTIME, &now);
    if (localtime_r(&now.tv_sec, &local)) strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local);
    fprintf(stderr, "%s.%06ld: ", text, now.tv_nsec / 1000);
}

/* The line of the original trainer, which counts steps from 0. */
static void tf2016_line(const LedgerShown *shown)
{
    time_prefix();
    fprintf(stderr, "step %" PRId64 ", loss = %.2f (%.1f examples/sec; %.3f sec/batch)\n", shown->step - 1, shown->loss,
            (double)shown->samples / shown->seconds, shown->seconds);
}

static void tf2016_result(const TrainJob *job, const EpochRecord *epoch)
{
    if (is_absent(epoch->test_top1)) return;
    time_prefix();
    fprintf(stderr, epoch->multi_label ? "mean average precision = %.4f" : "precision @ 1 = %.4f", epoch->test_top1);
    if (epoch->multi_label) fprintf(stderr, " exact matches = %.4f", epoch->test_top5);
    if (top5_says(job) && !epoch->multi_label) fprintf(stderr, " recall @ 5 = %.4f", epoch->test_top5);
    fprintf(stderr, " [%" PRId64 " examples]\n", source_info(job->test)->count);
}

static void epoch_line(Console *c, int64_t epoch)
{
    const EpochRecord *record = &c->ledger->epoch[epoch % LEDGER_EPOCHS];
    char text[EPOCH_TEXT];
    bar_clear(c);
    if (c->job->log_tf2016) {
        tf2016_result(c->job, record);
        return;
    }
    bool other =
        c->job->report != LOSS_REPORT_MEAN && c->job->report != LOSS_REPORT_ALL; /* than the lines of steps show */
    epoch_text(record, other ? "Loss (mean_loss)" : "Loss", text);
    fprintf(stderr, "%s\n", text);
}

void console_start(Console *c, const TrainJob *job, const Ledger *ledger)
{
    *c = (Console){.job = job, .ledger = ledger, .last_step = -1, .started_ns = clock_ns(), .first_step = -1};
}

void console_warn(Console *c, const char *format, ...)
{
    char line[LEDGER_MESSAGE];
    Text text = text_start(line, sizeof line);
    va_list args;
    bar_clear(c);
    fputs("warning: ", stderr);
    va_start(args, format);
    text_vadd(&text, format, args);
    va_end(args);
    text_print(stderr, line);
    fputc('\n', stderr);
}

/* Warnings are shown even with --quiet. One that is being written is waited for until the next time, unless its process has
 * died meanwhile: later ones, or the end, leave it out. */
static void notes_print(Console *c, bool ends)
{
    for (int64_t notes = atomic_load(&c->ledger->run.notes); c->notes < notes; c->notes++) {
        const char *note = ledger_noted(c->ledger, c->notes);
        bool informs = note && c->ledger->run.informs[c->notes % LEDGER_NOTES];
        if (note && !informs) console_warn(c, "%s", note);
        if (informs && !c->job->quiet) {
            bar_clear(c);
            text_print(stderr, note);
            fputc('\n', stderr);
        }
        if (!note && !ends && notes - c->notes < LEDGER_NOTES / 2) return;
    }
}

/* How long the run takes, once its first steps are known; a short one needs no such line. */
static void expected_print_once(Console *c, int64_t step, int64_t steps)
{
    char text[DURATION_TEXT];
    int64_t done = step - c->first_step;
    double seconds = (double)(clock_ns() - c->started_ns) * 1e-9;
    if (c->expected || c->job->log_tf2016 || done < EXPECTED_STEPS || seconds < EXPECTED_AFTER) return;
    c->expected = true;
    double left = seconds / (double)done * (double)(steps - step);
    if (left < EXPECTED_LEAST) return;
    bar_clear(c);
    fprintf(stderr, "expected       %s more, by the first %" PRId64 " steps\n", duration_text(left, text), done);
}

void console_update(Console *c)
{
    const LedgerRun *run = &c->ledger->run;
    int64_t step = atomic_load(&run->step), steps = atomic_load(&run->steps), epoch = atomic_load(&run->epochs_done);
    notes_print(c, false);
    if (c->job->quiet || steps == 0) return;
    if (c->first_step < 0) {
        c->first_step = atomic_load(&run->first_step);
        c->started_ns = clock_ns();
        c->last_epoch = atomic_load(&run->first_epoch);
        fputs(run->header, stderr);
        if (c->first_step > 0)
            fprintf(stderr, "resumed after step %" PRId64 "%s%s%s\n", c->first_step, *run->ending ? ": " : "",
                    run->ending,
                    *run->ending             ? "; change that option to train on"
                    : c->first_step >= steps ? ": all steps are done; raise --epochs or --max-steps to train on"
                                             : "");
    }
    expected_print_once(c, step, steps);
    bool fresh = step != c->last_step && step > c->first_step, bar = c->job->tty && !c->job->log_tf2016;
    if (fresh && !bar) {
        /* Print a line for every step that is due; the ring holds more steps than pass between two updates. */
        int64_t first = c->last_step < c->first_step ? c->first_step : c->last_step;
        if (first < step - LEDGER_STEPS / 2) first = step - LEDGER_STEPS / 2;
        for (int64_t s = first + 1; s <= step; s++) {
            const LedgerShown *shown = &c->ledger->run.shown[s % LEDGER_STEPS];
            int64_t counted = c->job->log_tf2016 ? s - 1 : s;
            if (shown->step != s || counted % c->job->log_interval) continue;
            if (c->job->log_tf2016)
                tf2016_line(shown);
            else
                plain_line(c, shown, steps);
        }
    }
    for (; c->last_epoch < epoch; c->last_epoch++) epoch_line(c, c->last_epoch + 1);
    if (fresh && bar) {
        if (clock_ns() - c->last_draw_ns < DRAW_MS * 1000000ll || outlet_waits(OUTLET_STDERR)) return;
        bar_draw(c, step, steps);
        c->last_draw_ns = clock_ns();
    }
    c->last_step = step;
}

void console_end(Console *c)
{
    console_update(c);
    notes_print(c, true);
    bar_clear(c);
}
