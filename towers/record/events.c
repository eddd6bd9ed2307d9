/* TensorBoard event files. A record is u64 length, u32 masked CRC32C of the length, the tf.Event, u32 masked CRC32C of
 * the event, all little-endian. The file's name has the time in seconds, and readers take the files of a directory in
 * the order of their names: a new file gets a time later than that of every existing file, even if the clock was set
 * back. */
#include "towers/record/events.h"

#include <dirent.h>
#include <float.h>
#include <pthread.h>

#include "kernels/base/clock.h"
#include "kernels/base/place.h"
#include "proto/event.pb-c.h"
#include "towers/files/crc32c.h"
#include "towers/files/files.h"
#include "towers/record/png.h"

enum { DT_STRING = 7, LIMITS_MAX = HISTOGRAM_BUCKETS, HEAD_BYTES = 12, FOOT_BYTES = 4 };
static const char prefix[] = "events.out.tfevents.";

struct Events {
    AppendFile *file;
};

static void put_little(unsigned char *to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) to[i] = (unsigned char)(value >> 8 * i);
}

static Status event_write(Events *events, Tfevent__Event *event)
{
    event->wall_time = clock_date();
    size_t count = tfevent__event__get_packed_size(event);
    unsigned char *record = malloc(HEAD_BYTES + count + FOOT_BYTES);
    if (!record) return FAIL(ERR_MEMORY, "no memory for an event of %zu bytes", count);
    put_little(record, count, 8);
    put_little(record + 8, crc32c_masked(record, 8), 4);
    tfevent__event__pack(event, record + HEAD_BYTES);
    put_little(record + HEAD_BYTES + count, crc32c_masked(record + HEAD_BYTES, count), 4);
    Status st = append_record(events->file, record, HEAD_BYTES + count + FOOT_BYTES);
    free(record);
    return st;
}

/* An event with one value of a summary. */
static Status value_write(Events *events, int64_t step, const char *tag, Tfevent__Summary__Value *value)
{
    Tfevent__Summary summary = TFEVENT__SUMMARY__INIT;
    Tfevent__Event event = TFEVENT__EVENT__INIT;
    value->tag = (char *)tag;
    summary.n_value = 1;
    summary.value = &value;
    event.step = step;
    event.what_case = TFEVENT__EVENT__WHAT_SUMMARY;
    event.summary = &summary;
    return event_write(events, &event);
}

/* The largest time in the names of the event files of `run_dir`, or 0. */
static Status newest_time(const char *run_dir, int64_t *newest)
{
    struct dirent *entry;
    DIR *listing = place_list(run_dir);
    if (!listing) return FAIL(ERR_IO, "cannot list '%s': %s", run_dir, strerror(errno));
    *newest = 0;
    while ((entry = place_next(listing))) {
        if (strncmp(entry->d_name, prefix, sizeof prefix - 1) != 0) continue;
        int64_t seconds = strtoll(entry->d_name + sizeof prefix - 1, NULL, 10);
        if (seconds > *newest && seconds < 9999999999) *newest = seconds;
    }
    closedir(listing);
    return OK;
}

static Status head_write(Events *events, int64_t purge_step)
{
    Tfevent__Event version = TFEVENT__EVENT__INIT, start = TFEVENT__EVENT__INIT;
    Tfevent__SessionLog session = TFEVENT__SESSION_LOG__INIT;
    version.what_case = TFEVENT__EVENT__WHAT_FILE_VERSION;
    version.file_version = "brain.Event:2";
    TRY(event_write(events, &version));
    if (purge_step < 0) return OK;
    session.status = TFEVENT__SESSION_LOG__STATUS__START;
    start.step = purge_step + 1;
    start.what_case = TFEVENT__EVENT__WHAT_SESSION_LOG;
    start.session_log = &session;
    return event_write(events, &start);
}

Status events_open(const char *run_dir, int64_t purge_step, Events **made)
{
    Status st = OK;
    int64_t newest = 0, seconds = time(NULL);
    char host[256] = "", name[512], path[PATH_BYTES];
    TRY(newest_time(run_dir, &newest));
    if (seconds <= newest) seconds = newest + 1;
    if (gethostname(host, sizeof host - 1) != 0 || !host[0] || strchr(host, '/')) strcpy(host, "localhost");
    snprintf(name, sizeof name, "%s%010" PRId64 ".%s.%ld", prefix, seconds, host, (long)getpid());
    TRY(path_join(path, run_dir, name));
    Events *events = calloc(1, sizeof *events);
    if (!events) return FAIL(ERR_MEMORY, "no memory for the writer of '%s'", path);
    TRY_OUT(append_open(path, true, &events->file));
    TRY_OUT(head_write(events, purge_step));
    TRY_OUT(append_flush(events->file));
    *made = events;
    events = NULL;
out:
    events_close(events);
    return st;
}

Status events_scalar(Events *events, int64_t step, const char *tag, Number number)
{
    if (is_absent(number)) return OK;
    Tfevent__Summary__Value value = TFEVENT__SUMMARY__VALUE__INIT;
    value.value_case = TFEVENT__SUMMARY__VALUE__VALUE_SIMPLE_VALUE;
    value.simple_value = (float)number;
    return value_write(events, step, tag, &value);
}

/* Upper limits of the buckets: 1e-12 growing by a tenth up to 1e20, then the largest number; the same below 0; 0
 * between. */
static double limits[LIMITS_MAX];
static int limit_count;

/* The start of the search for all floats with the same sign, exponent and three bits of mantissa: the limit above the
 * least of them. The result is at most a few limits away. */
enum { START_BITS = 12 };
static uint16_t starts[1 << START_BITS];

static int start_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (int)(bits >> (32 - START_BITS));
}

static void tables_make(void)
{
    int positive = 0;
    static double up[LIMITS_MAX / 2];
    for (double limit = 1e-12; limit < 1e20; limit *= 1.1) up[positive++] = limit;
    up[positive++] = DBL_MAX;
    for (int i = positive - 1; i >= 0; i--) limits[limit_count++] = -up[i];
    limits[limit_count++] = 0;
    for (int i = 0; i < positive; i++) limits[limit_count++] = up[i];
    for (uint32_t i = 0; i < 1u << START_BITS; i++) {
        uint32_t bits = i << (32 - START_BITS) | (i >> (START_BITS - 1) ? (1u << (32 - START_BITS)) - 1 : 0);
        float least;
        memcpy(&least, &bits, sizeof least);
        int k = 0;
        while (k < limit_count - 1 && !(limits[k] > (double)least)) k++;
        starts[i] = (uint16_t)k;
    }
}

/* The first limit above the value, which is finite. */
static int bucket_of(float value)
{
    int k = starts[start_of(value)];
    while (k < limit_count - 1 && limits[k] <= (double)value) k++;
    return k;
}

void histogram_count(const float *values, int64_t count, Histogram *h)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, tables_make);
    *h = (Histogram){.least = DBL_MAX, .most = -DBL_MAX};
    for (int64_t i = 0; i < count; i++) {
        double value = values[i];
        if (!isfinite(value)) continue;
        h->bucket[bucket_of(values[i])]++;
        h->number++;
        h->sum += value;
        h->square_sum += value * value;
        if (value < h->least) h->least = value;
        if (value > h->most) h->most = value;
    }
    if (h->number == 0) h->least = h->most = 0;
}

Status events_histogram(Events *events, int64_t step, const char *tag, const Histogram *h)
{
    double packed[LIMITS_MAX], packed_limits[LIMITS_MAX];
    Tfevent__HistogramProto histogram = TFEVENT__HISTOGRAM_PROTO__INIT;
    Tfevent__Summary__Value value = TFEVENT__SUMMARY__VALUE__INIT;
    histogram.min = h->least, histogram.max = h->most, histogram.num = h->number;
    histogram.sum = h->sum, histogram.sum_squares = h->square_sum;
    histogram.bucket = packed;
    histogram.bucket_limit = packed_limits;
    /* Joins runs of empty buckets into one. */
    for (int i = 0; i < limit_count; i++) {
        if (h->bucket[i] == 0 && i + 1 < limit_count && h->bucket[i + 1] == 0) continue;
        histogram.bucket_limit[histogram.n_bucket_limit++] = limits[i];
        histogram.bucket[histogram.n_bucket++] = h->bucket[i];
    }
    value.value_case = TFEVENT__SUMMARY__VALUE__VALUE_HISTO;
    value.histo = &histogram;
    return value_write(events, step, tag, &value);
}

/* A string tensor of one element, marked for the text dashboard. */
Status events_text(Events *events, int64_t step, const char *tag, const char *text)
{
    ProtobufCBinaryData data = {strlen(text), (uint8_t *)text};
    Tfevent__TensorShapeProto__Dim one = TFEVENT__TENSOR_SHAPE_PROTO__DIM__INIT, *dims[] = {&one};
    Tfevent__TensorShapeProto shape = TFEVENT__TENSOR_SHAPE_PROTO__INIT;
    Tfevent__TensorProto tensor = TFEVENT__TENSOR_PROTO__INIT;
    Tfevent__SummaryMetadata__PluginData plugin = TFEVENT__SUMMARY_METADATA__PLUGIN_DATA__INIT;
    Tfevent__SummaryMetadata metadata = TFEVENT__SUMMARY_METADATA__INIT;
    Tfevent__Summary__Value value = TFEVENT__SUMMARY__VALUE__INIT;
    one.size = 1;
    shape.n_dim = 1, shape.dim = dims;
    tensor.dtype = DT_STRING, tensor.tensor_shape = &shape;
    tensor.n_string_val = 1, tensor.string_val = &data;
    plugin.plugin_name = "text";
    metadata.plugin_data = &plugin;
    value.metadata = &metadata;
    value.value_case = TFEVENT__SUMMARY__VALUE__VALUE_TENSOR;
    value.tensor = &tensor;
    return value_write(events, step, tag, &value);
}

Status events_image(Events *events, int64_t step, const char *tag, const uint8_t *pixels, int32_t width, int32_t height,
                    int32_t channels)
{
    uint8_t *bytes;
    size_t count;
    Tfevent__Summary__Image image = TFEVENT__SUMMARY__IMAGE__INIT;
    Tfevent__Summary__Value value = TFEVENT__SUMMARY__VALUE__INIT;
    TRY(png_encode(pixels, width, height, channels, &bytes, &count));
    image.width = width;
    image.height = height;
    image.colorspace = channels;
    image.encoded_image_string = (ProtobufCBinaryData){count, bytes};
    value.value_case = TFEVENT__SUMMARY__VALUE__VALUE_IMAGE;
    value.image = &image;
    Status st = value_write(events, step, tag, &value);
    free(bytes);
    return st;
}

void events_through(Events *events, AppendQueue *queue)
{
    append_through(events->file, queue);
}

Status events_flush(Events *events)
{
    return append_flush(events->file);
}

Status events_sync(const Events *events)
{
    return append_sync(events->file);
}

void events_close(Events *events)
{
    if (!events) return;
    append_close(events->file);
    free(events);
}
