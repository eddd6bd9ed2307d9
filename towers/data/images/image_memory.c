/* The budget of the decoders; see image_memory.h. */
#include "towers/data/images/image_memory.h"

#include <pthread.h>

enum { PIXELS_DEFAULT = 178956970, PIXEL_BYTES = 16 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t given = PTHREAD_COND_INITIALIZER;
static int64_t pixels_max = PIXELS_DEFAULT, taken_bytes;
static const char *remedy = "";

void image_pixels_limit(int64_t pixels)
{
    remedy = pixels > 0 ? ": see --max-pixels" : "";
    pixels_max = pixels > 0 ? pixels : PIXELS_DEFAULT;
}

int64_t image_pixels_max(void)
{
    return pixels_max;
}

const char *image_pixels_remedy(void)
{
    return remedy;
}

int64_t image_memory_take(int64_t bytes)
{
    int64_t all = pixels_max * PIXEL_BYTES;
    if (bytes > all) bytes = all;
    pthread_mutex_lock(&lock);
    while (bytes > all - taken_bytes) pthread_cond_wait(&given, &lock);
    taken_bytes += bytes;
    pthread_mutex_unlock(&lock);
    return bytes;
}

void image_memory_give(int64_t taken)
{
    pthread_mutex_lock(&lock);
    taken_bytes -= taken;
    pthread_cond_broadcast(&given);
    pthread_mutex_unlock(&lock);
}
