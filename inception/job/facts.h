/* Facts about a file of weights: its own metadata (towers/replica/about.h), else the row of the table of published
 * weights whose file has its name, else env.json of the run in whose folder it is. */
#pragma once

#include "inception/options/options.h"
#include "towers/files/json.h"
#include "towers/graph/model.h"

/* An object of texts under the keys of about.h, of which only "class_names" is a list; owned by the caller. Empty if
 * nothing is known. `path` may be a file that does not exist: only its name is looked up then. Metadata are untrusted:
 * settings that are not plain, and names that are not a list of texts, are left out. ERR_FORMAT if a file of this program says what it
 * never does. */
NODISCARD Status facts_read(const Options *options, const char *path, json_t **facts);
/* Nothing if the text is NULL or not plain (setting_is_plain). */
void facts_put(json_t *facts, const char *key, const char *text);

/* Whether they are of weights of this model, as far as they say it. */
bool facts_are_of(const json_t *facts, const Model *model);
/* The shorter side before the center crop to `side` pixels, of which `resize` was for `own`. 0: no such crop. */
int64_t resize_in_proportion(int64_t resize, int64_t own, int64_t side);
/* The same, of a file for an input of `side` pixels. */
int64_t facts_resize(const json_t *facts, int64_t side);

/* Whether the metadata of weights may have this option: its flag without "--", of `length` bytes, which need not end in NUL. */
bool facts_have(const char *option, size_t length);
/* How images become the network's input, as settings below everything that the user gives: for eval, predict and export.
 * ERR_ARG names the key that does not fit. */
NODISCARD Status facts_apply(const json_t *facts, const char *path, Options *options);
/* For training: only mean and std, if they are not the model's. */
NODISCARD Status facts_normalize(const json_t *facts, const char *path, const Model *model, Options *options);

/* "0.485,0.456,0.406" or "0.5": one or three numbers in [least, 10]. ERR_ARG names `what`. */
NODISCARD Status channels_parse(const char *what, const char *text, double least, float value[3]);
