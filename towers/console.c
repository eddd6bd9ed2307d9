/* The bar, the plain lines and the epoch lines of a run; see console.h. */
#include "towers/console.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { DRAW_MS = 100, BAR_CELLS = 24 };

static int terminal_width(void)
{
    struct winsize size;
    const char *columns = getenv("COLUMNS");
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20) return size.ws_col;
    return columns && atoi(columns) > 20 ? atoi(columns) : 80;
}

static void bar_clear(Console *c)
{
    if (c->bar_shown) fputs("\r\033[K", stderr);
    c->bar_shown = false;
}

static void eta_text(double seconds, char *text, size_t bytes)
{
    long s = isfinite(seconds) && seconds >= 0 ? (long)(seconds + 0.5) : 0;
    if (s >= 3600)
        snprintf(text, bytes, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(text, bytes, "%ld:%02ld", s / 60, s % 60);
}

static double elapsed(const Console *c)
{
    return (double)(clock_ns() - c->started_ns) * 1e-9;
}

/* "loss 0.5123" as --report-loss says; "all" lists every tower's. */
static void loss_text(const Console *c, int64_t step, double loss, char *text, size_t bytes)
{
    static const char *const words[] = {[LOSS_REPORT_LAST] = "last_tower_loss",
                                        [LOSS_REPORT_FIRST] = "first_tower_loss",
                                        [LOSS_REPORT_MEAN] = "mean_loss",
                                        [LOSS_REPORT_WORST] = "worst_tower_loss",
                                        [LOSS_REPORT_ALL] = "mean_loss"};
    LossReport report = c->job->report;
    int used = snprintf(text, bytes, "%s %.4f", words[report], loss);
    if (report != LOSS_REPORT_ALL) return;
    for (int t = 0; t < c->ledger->towers && used < (int)bytes - 16; t++) {
        const LedgerRow *row = &c->ledger->tower[t].rows[step % LEDGER_STEPS];
        used += snprintf(text + used, bytes - (size_t)used, "%s%.4f", t ? " " : " [", tower_loss_mean(&row->loss));
    }
    snprintf(text + used, bytes - (size_t)used, "]");
}

static void bar_draw(Console *c, int64_t step, int64_t steps)
{
    char line[1024], loss[512], eta[32], bar[BAR_CELLS * 3 + 1] = "";
    const LedgerRun *run = &c->ledger->run;
    int64_t done = step - c->first_step;
    double left = done > 0 ? elapsed(c) / (double)done * (double)(steps - step) : 0;
    int filled = steps > 0 ? (int)(step * BAR_CELLS / steps) : 0, width = terminal_width();
    for (int i = 0; i < BAR_CELLS; i++) strcat(bar, i < filled ? "━" : "╌");
    loss_text(c, step, atomic_load(&run->loss), loss, sizeof loss);
    eta_text(left, eta, sizeof eta);
    const char *tint = c->job->color ? "\033[36m" : "", *plain = c->job->color ? "\033[0m" : "";
    int text = snprintf(line, sizeof line, " epoch %.2f  %lld/%lld  %s  lr %.4g  %.0f img/s  eta %s",
                        (double)atomic_load(&run->epoch_x1000) / 1000, (long long)step, (long long)steps, loss,
                        atomic_load(&run->lr), atomic_load(&run->images_per_sec), eta);
    int room = width - BAR_CELLS - 1;
    if (text > room && room > 0) line[room] = 0;
    fprintf(stderr, "\r\033[K%s%s%s%s", tint, bar, plain, line);
    fflush(stderr);
    c->bar_shown = true;
}

static void plain_line(Console *c, const LedgerShown *shown, int64_t steps)
{
    char loss[512];
    double epoch = (double)shown->step / (double)job_steps_per_epoch(c->job);
    loss_text(c, shown->step, shown->loss, loss, sizeof loss);
    fprintf(stderr, "step %lld/%lld  epoch %.2f  %s  lr %.4g  %.0f img/s\n", (long long)shown->step, (long long)steps,
            epoch, loss, shown->lr, (double)shown->samples / shown->seconds);
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

/* The original trainer's line. It counts steps from 0. */
static void tf2016_line(const LedgerShown *shown)
{
    time_prefix();
    fprintf(stderr, "step %lld, loss = %.2f (%.1f examples/sec; %.3f sec/batch)\n", (long long)shown->step - 1,
            shown->loss, (double)shown->samples / shown->seconds, shown->seconds);
}

static void tf2016_result(const TrainJob *job, const LedgerEpoch *epoch)
{
    if (isnan(epoch->test_top1)) return;
    time_prefix();
    fprintf(stderr, "precision @ 1 = %.4f recall @ 5 = %.4f [%lld examples]\n", epoch->test_top1, epoch->test_top5,
            (long long)dataset_info(job->test)->count);
}

/* A line for every step that is due; the ring holds more steps than pass between two updates. */
static void lines_print(Console *c, int64_t step, int64_t steps)
{
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

/* The tf.distribute tutorial's five fields, then ours. */
static void epoch_line(Console *c, int64_t epoch)
{
    const LedgerEpoch *e = &c->ledger->epoch[epoch % LEDGER_EPOCHS];
    bar_clear(c);
    if (c->job->log_tf2016) {
        tf2016_result(c->job, e);
        return;
    }
    fprintf(stderr, "Epoch %lld, Loss: %.5f, Accuracy: %.3f", (long long)epoch, e->train_loss, 100 * e->train_top1);
    if (!isnan(e->test_top1))
        fprintf(stderr, ", Test Loss: %.5f, Test Accuracy: %.2f", e->test_loss, 100 * e->test_top1);
    fprintf(stderr, "  (%.1f s, %.0f img/s)\n", e->seconds, e->images_per_sec);
}

void console_start(Console *c, const TrainJob *job, const Ledger *ledger)
{
    *c = (Console){.job = job, .ledger = ledger, .last_step = -1, .started_ns = clock_ns(), .first_step = -1};
}

/* Warnings are shown even to who wants no progress. */
static void notes_print(Console *c)
{
    const LedgerRun *run = &c->ledger->run;
    for (int64_t notes = atomic_load(&run->notes); c->notes < notes; c->notes++) {
        bar_clear(c);
        fprintf(stderr, "warning: %s\n", run->note[c->notes % LEDGER_NOTES]);
    }
}

void console_update(Console *c)
{
    const LedgerRun *run = &c->ledger->run;
    int64_t step = atomic_load(&run->step), steps = atomic_load(&run->steps), epoch = atomic_load(&run->epochs_done);
    notes_print(c);
    if (c->job->quiet || steps == 0) return;
    if (c->first_step < 0) {
        c->first_step = atomic_load(&run->first_step);
        c->started_ns = clock_ns();
        c->last_epoch = epoch;
    }
    bool fresh = step != c->last_step && step > c->first_step, bar = c->job->tty && !c->job->log_tf2016;
    if (fresh && !bar) lines_print(c, step, steps);
    for (; c->last_epoch < epoch; c->last_epoch++) epoch_line(c, c->last_epoch + 1);
    if (fresh && bar) {
        if (clock_ns() - c->last_draw_ns < DRAW_MS * 1000000ll) return;
        bar_draw(c, step, steps);
        c->last_draw_ns = clock_ns();
    }
    c->last_step = step;
}

void console_end(Console *c, const TrainResult *result, Status status)
{
    console_update(c);
    bar_clear(c);
    if (c->job->quiet || (status != OK && status != ERR_INTERRUPTED)) return;
    if (result->test_top1 >= 0)
        fprintf(stderr, "test accuracy %.2f %% (best epoch %.2f %%)\n", 100 * result->test_top1,
                100 * result->best_top1);
    fprintf(stderr, "run directory %s\n", c->job->run_dir);
}
