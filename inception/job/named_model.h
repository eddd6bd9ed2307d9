/* The model that a word names: one of this program's (models.h), or the network of a file FILE.onnx (inception/networks/).
 *
 * A network that was read from a file stays open until the program ends, as its Model is borrowed by all that is made of it. The
 * same unchanged file is opened once. Its name is that of the file without folders, "net.onnx", which no model of this program
 * has. Runs keep its structure: RUN/network.onnx. */
#pragma once

#include "inception/networks/net_file.h"
#include "towers/store/run_dir.h"
#include "towers/store/weights.h"

/* ERR_ARG if there is no such model; errors of reading FILE.onnx. */
NODISCARD Status model_named(const char *word, const Model **model);
/* The model `name` of what lies in `folder`: of a network from a file, that of folder/network.onnx. */
NODISCARD Status model_kept(const char *name, const char *folder, const Model **model);
/* The model `name` of a file of weights, which lies in the folder of its run, or two below it as that of a checkpoint. */
NODISCARD Status model_of_weights(const char *name, const char *weights, const Model **model);
/* The word by which model_named finds it. */
static inline const char *model_argument(const Model *model)
{
    return model->file ? model->file : model->name;
}
/* Whether weights and runs of one are those of the other. */
bool model_same(const Model *a, const Model *b);
/* "resnet18"; with the digest of a network from a file, whose name does not identify it, "net.onnx, network 39d0139ca7d1". */
enum { MODEL_TEXT = 96 };
const char *model_text(const char *name, const char *digest, char text[MODEL_TEXT]);

/* ---- of a model with a file */

/* Whether the file has trained values besides the structure. */
bool network_has_values(const Model *model);
/* Whether it says how its input is normalized: by its first nodes, or in its metadata. */
bool network_knows_input(const Model *model);
/* What the file says else of its network. */
NetFacts network_facts(const Model *model);
/* Its values as a file of weights: see weights_of_network. */
NODISCARD Status network_values_open(const char *path, SafeTensors **made);
/* The network with batch norms restored (net_file_restore), under the same name; NULL if no convolution lacks one. It is made once.
 * From then on network_values_open gives its values. */
NODISCARD Status network_restore(const Model *model, const Model **restored);
/* Whether a run that keeps `then` is one of this network, with norms restored or without: see net_file_is_kept. */
NODISCARD Status network_is_kept(const Model *model, const Model *then, bool *same);
/* Whether a parameter is one of a norm restored. */
bool network_has_restored(const Model *restored, const char *parameter);
/* See net_file_norm_set. */
NODISCARD Status network_norm_set(const Model *restored, const NormNames *names, int64_t channels, const double *mean,
                                  const double *variance);
/* Write RUN/network.onnx. */
NODISCARD Status network_keep(const Model *model, const char *run_dir);
/* Write the file's own graph with these weights in place of its values, its head for so many classes. Metadata that the file has
 * under other keys stay. */
NODISCARD Status network_write(const Model *model, const WeightList *weights, int classes, const StPair *about,
                               int pairs, const char *path);
