/* What a file of weights says about itself, in the metadata of its header, as texts:
 *
 *   format, model, variant, classes, width, channels   the network
 *   img_size, mean, std                                 its input: side in pixels; of pixels in [0, 1], "R,G,B" or one number
 *   crop, eval_resize, eval_crop, interpolation, exif   how an image becomes that input (transform.h): crop "center" (eval_resize is
 *                                                       the shorter side before it), "fraction" (eval_crop of each side) or "whole"
 *   maps                                                "channels first": the order of outputs that become a map (weights.h)
 *   loss                                                "bce" if every class has a probability of its own
 *   several_classes, class_names                        "true" if an image has any number of classes; a JSON array of names
 *   data_fingerprint, towers_version                    of the training data, as the settings of a run have it; of this program
 *
 * Keys that do not apply are left out. No key depends on a path, a time or a host, so equal runs write equal files. */
#pragma once

#include "towers/replica/job.h"
#include "towers/store/safetensors.h"

enum { ABOUT_PAIRS = 20, ABOUT_TEXT = 512 };

typedef struct About {
    StPair pair[ABOUT_PAIRS]; /* values are borrowed from here and from the job */
    int count;
    char text[ABOUT_TEXT];
    size_t used;
    char *names; /* owned, or NULL */
} About;

/* `eval`: the transform of evaluation, or NULL if it is not known. */
void about_begin(const ProgramConfig *program, const Transform *eval, About *about);
/* An unnamed class or more than 4 MiB of names: none are written. */
NODISCARD Status about_classes(About *about, const char *const *names, int count);
void about_add(About *about, const char *key, const char *value); /* borrows both */
void about_number(About *about, const char *key, int64_t value);
NODISCARD Status about_job(const TrainJob *job, About *about); /* all keys of a training job */
void about_close(About *about);
