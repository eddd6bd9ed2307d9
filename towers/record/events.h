/* TensorBoard event files: TFRecord framing (length, masked CRC32C of both) around tf.Event messages (protobuf-c). */
#pragma once

#include "kernels/base/absent.h"
#include "towers/files/append.h"

typedef struct Events Events;
/* Opens RUN/events.out.tfevents.<time>.<host>.<pid>. After a resume, `purge_step` >= 0 makes readers drop later
 * steps. */
NODISCARD Status events_open(const char *run_dir, int64_t purge_step, Events **made);
/* Nothing if the number is absent. */
NODISCARD Status events_scalar(Events *events, int64_t step, const char *tag, Number value);
/* A histogram in TensorFlow's exponential buckets. Values that are not finite have no bucket and are left out. Counting
 * needs nothing but the values, so another thread may do it. */
enum { HISTOGRAM_BUCKETS = 1600 /* at most */ };
typedef struct Histogram {
    double least, most, number, sum, square_sum, bucket[HISTOGRAM_BUCKETS];
} Histogram;
void histogram_count(const float *values, int64_t count, Histogram *histogram);
NODISCARD Status events_histogram(Events *events, int64_t step, const char *tag, const Histogram *histogram);
NODISCARD Status events_text(Events *events, int64_t step, const char *tag, const char *text);
/* An 8-bit image [height][width][channels], channels 1 or 3. */
NODISCARD Status events_image(Events *events, int64_t step, const char *tag, const uint8_t *pixels, int32_t width,
                              int32_t height, int32_t channels);
void events_through(Events *events, AppendQueue *queue); /* append_through */
NODISCARD Status events_flush(Events *events);
NODISCARD Status events_sync(const Events *events); /* append_sync */
void events_close(Events *events);
