/* What a file of weights says about itself, in the metadata of its header, as texts:
 *
 *   format, model, variant, classes, width, channels   the network
 *   network                                             of a model from a file: the digest of its structure
 *   img_size, mean, std                                 its input: side in pixels; of pixels in [0, 1], "R,G,B" or one number
 *   exif                                                "true": the image is turned upright first (as Pillow's exif_transpose)
 *   crop, eval_resize, eval_crop, interpolation         then how it becomes that input (transform.h): crop "center" (eval_resize is
 *                                                       the shorter side before it), "fraction" (eval_crop of each side) or "whole";
 *                                                       the last two are stretched. "bilinear" and "bicubic" are Pillow's, which are
 *                                                       antialiased; "tf-bilinear" and so on are those of tf.image, which are not
 *   amp, amp_dtype                                      "true": it computes in this type, where the machine can; else in f32
 *   maps                                                "channels first": the order of outputs that become a map (weights.h)
 *   loss                                                "bce" if every class has a probability of its own, the sigmoid of its logit
 *   temperature                                         else the probabilities are the softmax of the logits, divided by this
 *                                                       number, if it was fitted (`towers eval --calibrate`)
 *   several_classes, class_names                        "true" if an image has any number of classes; a JSON array of names
 *   label_base, background                              the label of the first class in the files of the training data (0 or 1);
 *                                                       "true" if class 0 is none of the data's but the background
 *   data_fingerprint, towers_version                    of the training data, as the settings of a run have it; of this program
 *
 * Together they are all that changes a probability; what is the same for all files is no key: pixels are 8 bits in RGB order, decoded
 * as image.h says, and with channels 1 their luma (Pillow's mode L). Keys that do not apply are left out. No key depends on a path,
 * a time or a host, so equal runs write equal files. */
#pragma once

#include "towers/replica/job.h"
#include "towers/store/safetensors.h"

enum { ABOUT_PAIRS = 32, ABOUT_TEXT = 1024 };

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
void about_real(About *about, const char *key, double value);
NODISCARD Status about_job(const TrainJob *job, About *about); /* all keys of a training job */
void about_close(About *about);
