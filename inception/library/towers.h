/* libtowers: classify images with a network that `towers train` trained. It does not train: a program that wants to starts `towers`.
 *
 *     towers_error error;
 *     towers_network *network;
 *     if (towers_open("best.safetensors", NULL, &network, &error)) fprintf(stderr, "%s\n", error.text);
 *     towers_image image = {.bytes = jpeg, .size = size};
 *     float probability[1000];
 *     if (!towers_classify(network, &image, 1, probability, NULL, &error)) ...
 *     towers_close(network);
 *
 * Results are those of `towers predict`: an image is prepared as the weights say (cropped, scaled, turned upright by its EXIF
 * orientation if the network was trained so), probabilities are of the temperature that was fitted to them, and weights that
 * were trained with --amp compute in that type where the machine can, else in f32. `towers info FILE` prints all of it.
 *
 * The library never prints, never ends the process and keeps no state but its handles. Any number of handles may be used by
 * any number of threads at the same time; calls of towers_classify with one handle take turns in the order in which they
 * come. Each handle computes in threads of its own. A process that was forked opens its own handles.
 *
 * The functions and structs of this header stay compatible within a major version. A struct is only extended behind its
 * end, and `struct_size` says which fields the caller knows. */
#ifndef TOWERS_H
#define TOWERS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct towers_network towers_network; /* an open network; belongs to the caller until towers_close */

typedef enum towers_status {
    TOWERS_OK = 0,
    TOWERS_INTERNAL = 1,    /* a bug of the library */
    TOWERS_ARGUMENT = 2,    /* the caller asked for something impossible */
    TOWERS_FORMAT = 3,      /* an image is damaged or of an unknown format */
    TOWERS_WEIGHTS = 4,     /* the weights cannot be used, or compute numbers that are not finite */
    TOWERS_UNAVAILABLE = 5, /* memory, or the device */
    TOWERS_IO = 6           /* a file cannot be read */
} towers_status;

typedef struct towers_error {
    towers_status status;
    char text[1024]; /* one line: what, expected, found, remedy; "" without an error */
} towers_error;

typedef struct towers_options {
    size_t struct_size; /* sizeof(towers_options) */
    int threads;        /* of the computation; 0: all cores of this process */
    int batch;          /* images that are computed together, 1 to 1024; 0: 1. More need more memory */
    int embeddings;     /* not 0: towers_classify may return embeddings */
} towers_options;

/* An image: encoded, in a format of docs/data.md (`towers version` lists those of a build), if `channels` is 0; else
 * height x width x channels bytes, row by row, without padding; channels 1 (gray) or 3 (RGB), upright. Borrowed during the call. */
typedef struct towers_image {
    const void *bytes;
    size_t size;
    int height, width, channels;
} towers_image;

const char *towers_version(void);                     /* "MAJOR.MINOR.PATCH" */
const char *towers_status_name(towers_status status); /* "TOWERS_FORMAT" */

/* `path`: a run directory, or a file of weights that says what it is (safetensors of this program). `options` and
 * `error` may be NULL. *made is written on success only. */
towers_status towers_open(const char *path, const towers_options *options, towers_network **made, towers_error *error);
/* NULL is fine. Other threads may be in towers_classify: their calls are served first, and those that come later are refused
 * with TOWERS_ARGUMENT, at least until another network is opened. No other function may meet a handle that is closed, or being
 * closed, by another thread. */
void towers_close(towers_network *network);

const char *towers_model(const towers_network *network); /* "resnet18" */
int towers_side(const towers_network *network);          /* of the square that an image becomes, in pixels */
int towers_class_count(const towers_network *network);
const char *towers_class_name(const towers_network *network,
                              int class_number);           /* "" if it is not known, or there is no such class */
int towers_several_classes(const towers_network *network); /* not 0: every class has a probability of its own */
int towers_turns_upright(
    const towers_network *network); /* not 0: encoded images are turned by their EXIF orientation */
int towers_embedding_size(const towers_network *network); /* 0 unless they were asked for */

/* probabilities[count][class_count], and embeddings[count][embedding_size] unless it is NULL. A damaged image gives
 * rows of NaN, and after all others TOWERS_FORMAT with the first one's text. */
towers_status towers_classify(towers_network *network, const towers_image *images, int count, float *probabilities,
                              float *embeddings, towers_error *error);

#ifdef __cplusplus
}
#endif

#endif
