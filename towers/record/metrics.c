/* metrics.jsonl, results.csv, log.txt and the scalars of the event file; see metrics.h.
 *
 * JSON has no NaN: a number that is not finite is null, and `finite` says which tower it came from. What is absent
 * (kernels/base/absent.h) is left out of lists of towers and has no scalar; results.csv has an empty field. Numbers are the
 * shortest decimals that read back to the same double, with a point in every locale; times are UTC. */
#include "towers/record/metrics.h"

#include "kernels/base/clock.h"
#include "kernels/base/place.h"
#include "kernels/base/timeouts.h"
#include "towers/files/append.h"
#include "towers/files/files.h"
#include "towers/record/lines.h"

enum {
    WARNING_BYTES = STATUS_MESSAGE_BYTES + 64,
    QUEUE_BYTES = 64 << 20 /* of records that wait for storage: hours of most runs */
};

/* The files of lines, in the order in which they are opened and flushed. */
typedef enum RecordFile { STEPS = 0, EPOCHS, LAYERS, NORMS, GENERATED, LOG, RECORD_FILES } RecordFile;

static const char *const file_names[RECORD_FILES] = {
    [STEPS] = "metrics.jsonl", [EPOCHS] = "results.csv",        [LAYERS] = "layers.jsonl",
    [NORMS] = "norms.jsonl",   [GENERATED] = "generated.jsonl", [LOG] = "log.txt"};

struct Metrics {
    AppendQueue *queue;             /* owned: its thread writes the files */
    AppendFile *file[RECORD_FILES]; /* owned */
    Events *events;                 /* owned */
    int event_interval;
    int64_t row_interval;
    int64_t telemetry_ns;         /* of the last row */
    int64_t flushed_ms, failures; /* of the current outage */
    int64_t logged;               /* those of an outage whose end has been written to the log, if that succeeds */
    bool warned, away;            /* away: storage does not answer, as has been reported */
    char warning[WARNING_BYTES];
};

/* ---- failures of storage are reported, not returned */

static void failures_note(Metrics *metrics, int64_t failed, const char *why)
{
    if (metrics->failures == 0) {
        snprintf(metrics->warning, sizeof metrics->warning, "records are being lost, training continues: %s", why);
        metrics->warned = metrics->logged > 0; /* it is the same outage */
    }
    metrics->failures += failed + metrics->logged;
    metrics->logged = 0;
}

static void note_trouble(Metrics *metrics, Status st)
{
    if (st != OK) failures_note(metrics, 1, status_message());
}

static void outage_end(Metrics *metrics)
{
    int64_t failures = metrics->failures;
    metrics->failures = 0;
    metrics->logged = failures;
    metrics_log(metrics, "%" PRId64 " writes before this line failed, and their records are lost: %s", failures,
                metrics->warning);
}

/* What storage has done with the records that it was given before. */
static void storage_look(Metrics *metrics)
{
    AppendReport report;
    append_queue_report(metrics->queue, &report);
    if (report.longest_ns > STORAGE_REPORT_MS * 1000000ll)
        metrics_log(metrics, "storage did not answer for %.0f s; the records of that time were written after it",
                    (double)report.longest_ns * 1e-9);
    if (report.failed) failures_note(metrics, report.failed, report.why);
    if (!report.written) return;
    metrics->logged = 0;
    if (metrics->failures) outage_end(metrics);
}

static bool storage_is_away(Metrics *metrics)
{
    bool before = metrics->away;
    metrics->away = append_queue_waiting(metrics->queue) > STORAGE_REPORT_MS * 1000000ll;
    return metrics->away && !before;
}

const char *metrics_warning(Metrics *metrics)
{
    storage_look(metrics);
    if (storage_is_away(metrics))
        return "storage does not answer: records wait in memory, and training continues as long as there is room for "
               "them";
    if (metrics->failures == 0 || metrics->warned) return NULL;
    metrics->warned = true;
    return metrics->warning;
}

void metrics_flush(Metrics *metrics)
{
    metrics->flushed_ms = clock_ns() / 1000000;
    storage_look(metrics);
    for (int i = 0; i < RECORD_FILES; i++) note_trouble(metrics, append_flush(metrics->file[i]));
    note_trouble(metrics, events_flush(metrics->events));
}

Status metrics_sync(const Metrics *metrics)
{
    for (int i = 0; i < RECORD_FILES; i++) TRY(append_sync(metrics->file[i]));
    return events_sync(metrics->events);
}

/* ---- text */

/* The caller has set the C locale. */
static void put_finite(FILE *to, double value)
{
    char text[40];
    text_real(value, text, sizeof text);
    fputs(text, to);
}

static void put_json(FILE *to, double value)
{
    if (isfinite(value))
        put_finite(to, value);
    else
        fputs("null", to);
}

#define PUT_REAL(value) put_json(to, value)
#define PUT_MAYBE(value) put_json(to, value)
#define PUT_LOSS(value) put_json(to, value)
#define PUT_WHOLE(value) fprintf(to, "%" PRId64, value)
#define PUT_COUNT(value) PUT_WHOLE(value)
#define PUT_FLAG(value) fputs((value) ? "true" : "false", to)
#define PUT_WORD(value) fprintf(to, "\"%s\"", value)
#define LEFT_OUT_REAL(value) false
#define LEFT_OUT_MAYBE(value) false
#define LEFT_OUT_LOSS(value) is_absent(value)
#define LEFT_OUT_WHOLE(value) false
#define LEFT_OUT_COUNT(value) false
#define LEFT_OUT_FLAG(value) false
#define PUT_LIST(type, key, value, count)                                                                              \
    fprintf(to, ",\"%s\":[", #key);                                                                                    \
    for (int t = 0, listed = 0; t < (count); t++) {                                                                    \
        if (LEFT_OUT_##type(value)) continue;                                                                          \
        if (listed++) fputc(',', to);                                                                                  \
        PUT_##type(value);                                                                                             \
    }                                                                                                                  \
    fputc(']', to);

/* "terms": {NAME: mean, ...} and "tower_terms": {NAME: [of each tower with samples, ...], ...}. Names need no escapes
 * (model.h). */
static void put_terms(FILE *to, const StepRecord *r)
{
    for (int i = 0; i < r->terms; i++) {
        fprintf(to, "%s\"%s\":", i ? "," : ",\"terms\":{", r->term[i].name);
        put_json(to, r->term[i].mean);
    }
    for (int i = 0; i < r->terms; i++) {
        fprintf(to, "%s\"%s\":[", i ? "]," : "},\"tower_terms\":{", r->term[i].name);
        for (int t = 0, listed = 0; t < r->towers; t++) {
            if (is_absent(r->term[i].tower[t])) continue;
            if (listed++) fputc(',', to);
            put_json(to, r->term[i].tower[t]);
        }
    }
    if (r->terms) fputs("]}", to);
}

/* An unknown list is empty. */
static void put_step(FILE *to, const StepRecord *r)
{
    char before = '{';
#define DERIVED(type, key, value, when, read, tag, text)                                                               \
    if (when) {                                                                                                        \
        fprintf(to, "%c\"%s\":", before, #key);                                                                        \
        PUT_##type(value);                                                                                             \
        before = ',';                                                                                                  \
    }
#define TOWER_DERIVED(type, key, value, known, read, tag, text) PUT_LIST(type, key, value, (known) ? r->towers : 0)
#define TELEMETRY(key, tag, text)                                                                                      \
    if (r->telemetry) {                                                                                                \
        PUT_LIST(MAYBE, key, r->telemetry[t].key, r->towers)                                                           \
    }
#define HEAD_DERIVED(key, value, when, tag, text)                                                                      \
    if (when) {                                                                                                        \
        PUT_LIST(REAL, key, value, r->heads - 1)                                                                       \
    }
#include "towers/record/metrics.def"
    put_terms(to, r);
    fputs("}\n", to);
}

static void put_epoch(FILE *to, const EpochRecord *record)
{
    EpochRecord epoch = *record;
    fprintf(to, "%" PRId64 ",%" PRId64, record->epoch, record->step);
    for (int i = 0; i < EPOCH_COLUMNS; i++) {
        double number = *epoch_number(&epoch, i);
        fputc(',', to);
        if (isfinite(number))
            put_finite(to, number);
        else if (!is_absent(number))
            fputs(isnan(number) ? "nan" : number > 0 ? "inf" : "-inf", to);
    }
    fputc('\n', to);
}

/* A line is printed in memory and then appended as a whole. False without memory: there is no line to end. */
static bool line_begin(Metrics *metrics, Draft *line, RecordFile file)
{
    Status st = draft_begin(line, file_names[file]);
    note_trouble(metrics, st);
    return st == OK;
}

static void line_end(Metrics *metrics, Draft *line, RecordFile file)
{
    Status st = draft_end(line, OK);
    note_trouble(metrics, st == OK ? append_record(metrics->file[file], line->text, line->bytes) : st);
    free(line->text);
}

/* ---- records */

/* # in a tag stands for `number`. The phase, if there are several, precedes it: "critic/mean_loss". */
static Status scalar_add(Metrics *metrics, const StepRecord *r, const char *tag, int number, double value)
{
    char text[128];
    const char *place = strchrnul(tag, '#');
    Text name = text_start(text, sizeof text);
    text_add(&name, "%s%s%.*s", r->phase ? r->phase : "", r->phase ? "/" : "", (int)(place - tag), tag);
    if (*place) text_add(&name, "%d%s", number, place + 1);
    return events_scalar(metrics->events, r->step, text, value);
}

#define TAG_REAL(tag, number, value, when)                                                                             \
    if (tag[0] && (when)) TRY(scalar_add(metrics, r, tag, number, value));
#define TAG_MAYBE TAG_REAL
#define TAG_LOSS TAG_REAL
#define TAG_WHOLE(tag, number, value, when)
#define TAG_COUNT(tag, number, value, when)
#define TAG_FLAG(tag, number, value, when)
#define TAG_WORD(tag, number, value, when)

/* "critic/critic_real", and of each tower "critic/tower_0/critic_real". */
static Status terms_add(Metrics *metrics, const StepRecord *r)
{
    char tag[96];
    for (int i = 0; i < r->terms; i++) {
        const TermRecord *term = &r->term[i];
        snprintf(tag, sizeof tag, "tower_#/%s", term->name);
        TRY(scalar_add(metrics, r, term->name, 0, term->mean));
        for (int t = 0; t < r->towers; t++) TRY(scalar_add(metrics, r, tag, t, term->tower[t]));
    }
    return OK;
}

static Status scalars_add(Metrics *metrics, const StepRecord *r)
{
#define DERIVED(type, key, value, when, read, tag, text) TAG_##type(tag, 0, value, when)
#define TOWER_DERIVED(type, key, value, known, read, tag, text)                                                        \
    for (int t = 0; t < r->towers; t++) {                                                                              \
        TAG_##type(tag, t, value, known)                                                                               \
    }
#define HEAD_DERIVED(key, value, when, tag, text)                                                                      \
    for (int t = 0; t < r->heads - 1; t++) TAG_REAL(tag, t, value, when)
#define TELEMETRY(key, tag, text)                                                                                      \
    for (int t = 0; r->telemetry && t < r->towers; t++) TAG_REAL(tag, t, r->telemetry[t].key, true)
#define SCALAR(tag, value, when) TAG_REAL(tag, 0, value, when)
#include "towers/record/metrics.def"
    return terms_add(metrics, r);
}

void metrics_step(Metrics *metrics, const StepRecord *record)
{
    if (record->step % metrics->row_interval == 0 || record->skipped) {
        StepRecord row = *record;
        if (row.telemetry_ns == metrics->telemetry_ns) row.telemetry = NULL;
        metrics->telemetry_ns = row.telemetry_ns;
        Draft line;
        if (line_begin(metrics, &line, STEPS)) {
            put_step(line.to, &row);
            line_end(metrics, &line, STEPS);
        }
    }
    if (metrics->event_interval > 0 && record->step % metrics->event_interval == 0)
        note_trouble(metrics, scalars_add(metrics, record));
    if (clock_ns() / 1000000 - metrics->flushed_ms >= 1000) metrics_flush(metrics);
}

void metrics_epoch(Metrics *metrics, const EpochRecord *record)
{
    char text[EPOCH_TEXT];
    Draft line;
    if (line_begin(metrics, &line, EPOCHS)) {
        put_epoch(line.to, record);
        epoch_text(record, "Loss", text);
        line_end(metrics, &line, EPOCHS);
        metrics_log(metrics, "%s", text);
    }
    EpochRecord epoch = *record;
    for (int i = 0; i < EPOCH_COLUMNS; i++) {
        const char *tag = epoch.multi_label ? epoch_column[i].multi_label_tag : epoch_column[i].tag;
        double number = *epoch_number(&epoch, i);
        if (*tag) note_trouble(metrics, events_scalar(metrics->events, epoch.step, tag, number));
    }
    metrics_flush(metrics);
}

static void layers_add(Metrics *metrics, RecordFile file, const char *key, int64_t step, const LayerRecord *layers,
                       int count)
{
    Draft line;
    if (!line_begin(metrics, &line, file)) return;
    /* Names of parameters need no escapes: model files use letters, digits and dots. */
    fprintf(line.to, "{\"step\":%" PRId64 ",\"%s\":{", step, key);
    for (int i = 0; i < count; i++) {
        fprintf(line.to, "%s\"%s\":[", i ? "," : "", layers[i].name);
        put_json(line.to, layers[i].weight);
        fputc(',', line.to);
        put_json(line.to, layers[i].gradient);
        fputc(']', line.to);
    }
    fputs("}}\n", line.to);
    line_end(metrics, &line, file);
}

void metrics_layers(Metrics *metrics, int64_t step, const LayerRecord *layers, int count)
{
    layers_add(metrics, LAYERS, "layers", step, layers, count);
}

void metrics_norms(Metrics *metrics, int64_t step, const LayerRecord *norms, int count)
{
    layers_add(metrics, NORMS, "norms", step, norms, count);
}

static void put_generated(FILE *to, const GeneratedRecord *record)
{
    fprintf(to, "{\"step\":%" PRId64 ",\"epoch\":%" PRId64 ",\"file\":\"%s\"", record->step, record->epoch,
            record->file);
    if (record->measured) {
        fputs(",\"kid\":", to);
        put_json(to, record->kid);
        fputs(",\"kid_deviation\":", to);
        put_json(to, record->kid_deviation);
        fprintf(to, ",\"images\":%" PRId64 ",\"features\":\"%s\"", record->images, record->features);
    }
    fputs("}\n", to);
}

void metrics_generated(Metrics *metrics, const GeneratedRecord *record)
{
    Draft line;
    if (line_begin(metrics, &line, GENERATED)) {
        put_generated(line.to, record);
        line_end(metrics, &line, GENERATED);
    }
    if (record->measured) note_trouble(metrics, events_scalar(metrics->events, record->step, "kid", record->kid));
}

void metrics_outcome(Metrics *metrics, Status st)
{
    note_trouble(metrics, st);
}

/* Escapes control characters, so that a file name cannot forge a line. */
static void put_log(FILE *to, const char *message)
{
    struct timespec now;
    struct tm utc;
    char text[32] = "";
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
    fprintf(to, "%s.%03dZ ", text, (int)(now.tv_nsec / 1000000));
    for (const unsigned char *at = (const unsigned char *)message; *at; at++)
        if (*at < 0x20 || *at == 0x7f)
            fprintf(to, "\\x%02x", *at);
        else
            fputc(*at, to);
    fputc('\n', to);
}

void metrics_log(Metrics *metrics, const char *format, ...)
{
    char *message = NULL;
    Draft line;
    va_list args;
    va_start(args, format);
    bool made = vasprintf(&message, format, args) >= 0;
    va_end(args);
    if (!made) return;
    if (line_begin(metrics, &line, LOG)) {
        put_log(line.to, message);
        line_end(metrics, &line, LOG);
    }
    note_trouble(metrics, append_flush(metrics->file[LOG])); /* the last line before a crash matters most */
    free(message);
}

Events *metrics_events(Metrics *metrics)
{
    return metrics->events;
}

/* ---- opening: files of an earlier process */

static int64_t json_line_step(const char *line, size_t count)
{
    static const char start[] = "{\"step\":";
    size_t skip = sizeof start - 1;
    if (count <= skip || memcmp(line, start, skip) != 0 || line[count - 1] != '}') return -1;
    return line_number(line + skip, count - skip);
}

/* The header, which has fewer columns in older runs, belongs to every step. */
static int64_t csv_line_step(const char *line, size_t count)
{
    static const char first[] = "epoch,";
    if (count >= sizeof first - 1 && memcmp(line, first, sizeof first - 1) == 0) return 0;
    const char *comma = memchr(line, ',', count);
    return comma ? line_number(comma + 1, count - (size_t)(comma + 1 - line)) : -1;
}

/* For the log, from which only an incomplete last line is removed. */
static int64_t log_line_step(const char *line, size_t count)
{
    (void)line, (void)count;
    return 0;
}

static Status file_prepare(const char *run_dir, RecordFile file, int64_t resume_step, LineStep *step_of, bool *moved,
                           Metrics *metrics)
{
    char path[PATH_BYTES];
    TRY(path_join(path, run_dir, file_names[file]));
    if (resume_step >= 0 || step_of == log_line_step)
        TRY(lines_cut(path, resume_step < 0 ? 0 : resume_step, step_of));
    else
        TRY(lines_set_aside(path, moved));
    return append_open(path, false, &metrics->file[file]);
}

Status metrics_forget_epochs(const char *run_dir, int64_t last_step)
{
    char path[PATH_BYTES];
    TRY(path_join(path, run_dir, "results.csv"));
    return lines_cut(path, last_step, csv_line_step);
}

Status metrics_forget_end(const char *run_dir, int64_t step)
{
    static const RecordFile ends[] = {EPOCHS, NORMS, GENERATED};
    char path[PATH_BYTES];
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        TRY(path_join(path, run_dir, file_names[ends[i]]));
        TRY(lines_cut(path, step - 1, ends[i] == EPOCHS ? csv_line_step : json_line_step));
    }
    return OK;
}

/* Names the columns that later rows have, if an older version has begun the file. Readers of CSV would shift them. */
static Status header_renew(const char *run_dir, bool multi_label)
{
    enum { LIMIT = 1 << 30 /* bytes */ };
    char path[PATH_BYTES], header[EPOCH_TEXT], *text, *renewed = NULL;
    size_t count;
    struct stat info;
    TRY(path_join(path, run_dir, "results.csv"));
    if (place_lstat(path, &info) != 0) return OK;
    TRY(file_read(path, LIMIT, &text, &count));
    Status st = OK;
    char *end = strchr(text, '\n');
    if (end) *end = 0;
    epoch_header(multi_label, header);
    if (end && strcmp(text, header) != 0 && epoch_header_known(text, multi_label)) {
        int bytes = asprintf(&renewed, "%s\n%s", header, end + 1);
        st = bytes < 0 ? FAIL(ERR_MEMORY, "no memory for '%s'", path) : file_replace(path, renewed, (size_t)bytes);
        if (bytes >= 0) free(renewed);
    }
    free(text);
    return st;
}

Status metrics_open(const char *run_dir, int64_t resume_step, int64_t row_interval, int event_interval,
                    bool multi_label, Metrics **made)
{
    Status st = OK;
    bool moved = false;
    Metrics *metrics = calloc(1, sizeof *metrics);
    if (!metrics) return FAIL(ERR_MEMORY, "no memory for the metrics of '%s'", run_dir);
    metrics->row_interval = row_interval > 1 ? row_interval : 1;
    metrics->event_interval = event_interval;
    TRY_OUT(file_prepare(run_dir, STEPS, resume_step, json_line_step, &moved, metrics));
    if (resume_step >= 0) TRY_OUT(header_renew(run_dir, multi_label));
    TRY_OUT(file_prepare(run_dir, EPOCHS, resume_step, csv_line_step, &moved, metrics));
    char path[PATH_BYTES];
    struct stat info;
    TRY_OUT(path_join(path, run_dir, "results.csv"));
    if (place_stat(path, &info) != 0)
        TRY_OUT(FAIL(ERR_IO, "cannot determine the size of '%s': %s", path, strerror(errno)));
    char header[EPOCH_TEXT + 1];
    epoch_header(multi_label, header);
    strcat(header, "\n");
    TRY_OUT(info.st_size ? OK : append_record(metrics->file[EPOCHS], header, strlen(header)));
    TRY_OUT(file_prepare(run_dir, LAYERS, resume_step, json_line_step, &moved, metrics));
    TRY_OUT(file_prepare(run_dir, NORMS, resume_step, json_line_step, &moved, metrics));
    TRY_OUT(file_prepare(run_dir, GENERATED, resume_step, json_line_step, &moved, metrics));
    TRY_OUT(file_prepare(run_dir, LOG, resume_step, log_line_step, &moved, metrics));
    TRY_OUT(events_open(run_dir, resume_step < 0 && moved ? 0 : resume_step, &metrics->events));
    TRY_OUT(append_flush(metrics->file[EPOCHS]));
    TRY_OUT(append_queue_open(QUEUE_BYTES, &metrics->queue));
    for (int i = 0; i < RECORD_FILES; i++) append_through(metrics->file[i], metrics->queue);
    events_through(metrics->events, metrics->queue);
    metrics->flushed_ms = clock_ns() / 1000000;
    *made = metrics;
    metrics = NULL;
out:
    metrics_close(metrics);
    return st;
}

void metrics_close(Metrics *metrics)
{
    if (!metrics) return;
    if (metrics->queue) { /* what it reports may add a line to the log */
        append_queue_settle(metrics->queue);
        storage_look(metrics);
    }
    for (int i = 0; i < RECORD_FILES; i++) append_close(metrics->file[i]);
    events_close(metrics->events);
    append_queue_close(metrics->queue);
    free(metrics);
}
