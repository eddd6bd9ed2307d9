/* NetFile: a convolutional classifier from an ONNX file, as a Model like those of inception/models/.
 *
 * The file's nodes become ops of the graph, its initializers parameters under their own names. What other nodes only compute from
 * constants and shapes is folded each time a graph is built, with the batch as a symbol, so that a network can be built for any
 * batch and, where its shapes allow that, for any side. A single number by which a node multiplies, or which it adds, is one parameter if
 * it is an initializer with the name of one; otherwise it stays as it is (NetFacts.held). Operator set 7 to 24 of the default domain. */
#pragma once

#include "towers/graph/layers.h"
#include "towers/graph/model.h"
#include "towers/store/safetensors.h"

enum { NET_FILE_RANK = 8, NET_FILE_DIGEST = 64 };

typedef struct NetFile NetFile;

/* A trained tensor of the file under its parameter's name, in PyTorch's layout: OIHW, {out, in}, vectors. */
typedef struct NetTensor {
    const char *name;  /* as are the others, borrowed from the network */
    const float *data; /* [product of dims]; NULL in a structure without weights */
    int rank;
    int64_t dims[NET_FILE_RANK];
} NetTensor;

/* Reads `path` and builds its network once, at the file's own side. Errors: ERR_FORMAT if it is no valid ONNX file; ERR_ARG names all
 * nodes at once that have no counterpart here, with the reasons. */
NODISCARD Status net_file_open(const char *path, NetFile **made);
/* The same of a file in memory, without external data; `name` is for messages. */
NODISCARD Status net_file_parse(const void *bytes, size_t count, const char *name, NetFile **made);
void net_file_close(NetFile *network); /* NULL is fine */

/* Lives as long as the network, which is its `networks`. The normalization is that of the file's first nodes, if these subtract a
 * mean and divide by a deviation; else that of ImageNet. */
const Model *net_file_model(const NetFile *network);
/* The first of so many names. */
typedef struct NetNames {
    int count;
    char list[160];
} NetNames;
/* What a file leaves to whoever trains it, and what a person would not expect. */
typedef struct NetFacts {
    bool normalizes;  /* its first nodes subtract a mean and divide by a deviation */
    bool norms;       /* it has batch or layer norms; without any, an exporter may have folded them into convolutions */
    bool convolves;   /* it has convolutions */
    int restored;     /* norms that net_file_restore has put there */
    bool momenta;     /* its batch norms keep different parts of their averages; here all keep that of the last one */
    bool sigmoid;     /* it ends in a Sigmoid, which is left to the loss as a softmax is, but to another one */
    int outputs;      /* the first are the logits, the others those of auxiliary heads */
    int shared;       /* parameters that several nodes have in common, and that are trained as one */
    NetNames scalars; /* single numbers that are trained, because they are named as parameters are */
    NetNames held;    /* those that stay as they are, though they may have been trained */
    NetNames filled;  /* trained, though the file has them as constants, as ones and zeros of batch norms */
} NetFacts;
NetFacts net_file_facts(const NetFile *network);
/* SHA-256, in hexadecimal digits, of nodes, attributes, names and shapes, without the trained values. */
const char *net_file_digest(const NetFile *network);
/* Whether `kept`, the structure that a run keeps, is that of this file. Digests say so of runs of this version; a run of one that trained
 * fewer numbers has the others among its constants, which must then be those of the file, and one that trained more of them, none of these. */
NODISCARD Status net_file_is_kept(const NetFile *network, const NetFile *kept, bool *same);
const NetTensor *net_file_tensors(const NetFile *network, int *count);
/* Whether a parameter belongs to the last product, whose outputs are the classes. */
bool net_file_is_head(const NetFile *network, const char *parameter);

/* The same network with a batch norm behind each convolution that has a bias, as folding leaves one, and no norm directly behind it. None
 * for the product of the classes, nor for what is computed from means of the whole image. If no such bias and no norm is there, as in a
 * network that was exported before training, all other convolutions get one. The norms are named by their convolutions,
 * "conv1.norm.running_mean", change nothing yet, and are NetFacts.restored, perhaps 0. Errors: as net_file_open. */
NODISCARD Status net_file_restore(const NetFile *network, NetFile **made);
/* Gives one of them mean[channels] and variance[channels], and the scale and shift with which it still changes nothing. Again: others in
 * their place. */
NODISCARD Status net_file_norm_set(NetFile *network, const NormNames *names, int64_t channels, const double *mean,
                                   const double *variance);

/* Writes the file without its trained values, whose names and shapes stay; net_file_open reads it back with the same digest. */
NODISCARD Status net_file_structure_write(const NetFile *network, const char *path);
/* Writes the file as it came, with other trained values: `value` returns those of a tensor, in the layout of net_file_tensors, whose
 * dims[0] is then `classes` for those of the head; NULL keeps the file's. The pairs of `about` join the metadata, in place of those
 * with the same keys. ERR_ARG if the file has no values to keep. */
typedef const float *NetValues(const void *context, const char *name);
NODISCARD Status net_file_export(const NetFile *network, NetValues *value, const void *context, int classes,
                                 const StPair *about, int pairs, const char *path);
