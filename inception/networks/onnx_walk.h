/* Walk: the nodes of a file, one after another, become ops of a graph. A value of the file is either fixed, that is known before the
 * network runs, or active: a value of the graph, seen through an order of axes and a curve. Neither costs anything until an op
 * needs memory as it is. */
#pragma once

#include "inception/networks/onnx_curve.h"
#include "inception/networks/onnx_order.h"
#include "inception/networks/onnx_read.h"

enum { NUMBERS_MAX = 1 << 20 }; /* of one value that is computed before the network runs */

/* Numbers known before the network runs. */
typedef struct Fixed {
    int rank;
    int64_t dims[NET_FILE_RANK], count;
    bool integer;
    bool turned;        /* those of `tensor`, a matrix, transposed */
    OnnxTensor from;    /* of the file, as a parameter may be; proto NULL: computed */
    double *number;     /* computed; owned by the walk, as is the next one */
    Curve *curve;       /* one number that is this of the one in `from`, which is trained; NULL: it is that one */
    const char *name;   /* as a parameter */
    const char *source; /* what else it was computed of that may be trained; NULL: nothing */
} Fixed;

/* What is added at the border of an image. */
typedef struct Border {
    int32_t top, bottom, left, right;
    double value;
    bool mirrored; /* the pixels beside the outermost ones instead of `value` */
} Border;

typedef struct Active {
    Value base;
    AxisOrder order;      /* with the border */
    Border border;        /* around base */
    Curve *curve;         /* of each element of base; NULL: the element itself. Owned by the walk */
    Value made;           /* the curve of base, once it was computed */
    int operand[2];       /* of the curve's last node: numbers of values */
    const OnnxNode *node; /* that node */
} Active;

/* Random numbers of training, of each image or of each of its elements. */
typedef struct Drawn {
    int rank;
    int64_t image; /* numbers of one image */
    double keep;   /* the part that is 1, of the others, which are 0; below 0: all are uniform in [0, 1) */
    double scale;  /* a factor of them */
} Drawn;

/* Whole numbers for each image of a batch whose size is open. */
typedef struct Places {
    int rank;
    int64_t dims[NET_FILE_RANK], count; /* the first is BATCH_SIZE; numbers of one image */
    double *first, step;                /* those of the first image, owned by the walk; what each image adds to them */
} Places;

typedef enum Known {
    KNOWN_NOT,
    KNOWN_LOST /* by a node that is refused */,
    KNOWN_FIXED,
    KNOWN_LATER /* of fixed ones, but not computed here: an op may do it */,
    KNOWN_DRAWN,
    KNOWN_PLACES,
    KNOWN_ACTIVE
} Known;
typedef struct OnnxItem {
    Known known;
    Fixed fixed;
    Drawn drawn;
    Places places;
    Active active;
    const OnnxNode *late; /* KNOWN_LATER: the first node that was not computed */
} OnnxItem;

/* A parameter or state of the graph, and where its numbers are in the file. */
typedef struct Binding {
    const char *name; /* borrowed from the file */
    OnnxTensor tensor;
    bool turned; /* the file has {in, out} */
    bool head;
    bool shared; /* several nodes have it: they are trained as one */
    bool scalar; /* one number that is added or multiplied */
    int reader;  /* the first of them */
    int rank;
    int64_t dims[NET_FILE_RANK]; /* as a NetTensor */
} Binding;

typedef struct NodeRefusal {
    const OnnxNode *node; /* the first of them */
    char reason[160];
    int count;
} NodeRefusal;
enum { REFUSALS = 12 };

/* A Mul by random numbers, of which operand `of` is what the network computes. */
typedef struct MaskedNode {
    int node, of;
} MaskedNode;

/* What becomes of a value's numbers, by its number in the file. */
typedef struct ValueNotes {
    bool stays; /* they are part of an op, and no parameter */
    bool held;  /* its name is in OnnxSurvey.held */
} ValueNotes;

/* What the first walk finds out. */
typedef struct OnnxSurvey {
    NodeRefusal refusal[REFUSALS];
    int refusal_count, more;
    Binding *binding; /* owned */
    int binding_count;
    ValueNotes *notes; /* owned: [value_count + 1] */
    const char **held; /* owned; the names of single numbers that stay, though they may have been trained */
    int held_count;
    MaskedNode *masked; /* owned */
    int masked_count;
    bool *means;     /* owned: [node_count] it makes one number of each channel of an image */
    float dropout;   /* rate of the last Dropout, or -1 */
    float drop_path; /* highest rate of stochastic depth; 0: none */
    int residuals;   /* sums of a value and of what is computed of it */
    float momentum;  /* that the running averages of the last batch norm keep, or -1 */
    bool momenta;    /* others keep another part */
    bool norms;      /* there are some, of any kind */
    bool sigmoid;    /* at the end */
    bool normalizes; /* its first nodes compute scale x + shift of each channel of the image */
    float scale[3], shift[3];
    int64_t batch; /* fixed batch of the file's image, or 0 */
} OnnxSurvey;

/* The last product before an output. */
typedef struct OnnxHead {
    int node;        /* index, or -1 */
    int64_t classes; /* in the file */
} OnnxHead;
enum { HEADS_MAX = MODEL_HEADS };

/* Which head this node makes, the number of an OnnxHead; -1: none. */
static inline int onnx_head_of(const OnnxHead head[HEADS_MAX], int node)
{
    for (int h = 0; h < HEADS_MAX; h++)
        if (head[h].node == node) return h;
    return -1;
}

/* What a walk drops in training. */
typedef struct OnnxDrops {
    float rate, path; /* the model's defaults of dropout and of stochastic depth */
    bool built;       /* a dropout of the file was built */
    int residuals;    /* of the file */
    int residual;     /* so far */
} OnnxDrops;

typedef struct OnnxWalk {
    const OnnxFile *file; /* borrowed, as are the next ones */
    Graph *g;
    const ModelOptions *options;
    OnnxSurvey *survey;
    const OnnxHead *head; /* [HEADS_MAX] */
    unsigned outputs;     /* bit k: output k of the file is wanted */
    bool first;           /* it fills the survey */
    OnnxDrops drops;
    Value image; /* as it enters the network */
    /* owned */
    OnnxItem *item; /* [1 .. value_count] */
    bool *done;     /* [node_count] */
    void **memory;
    int memory_count;
    size_t bytes;
    /* state */
    const OnnxNode *node; /* the present one */
    int depth;            /* of functions that are computed of others */
    int listed;           /* ranges of channels that nodes have listed */
    bool lost;            /* an operand of it could not be computed, for a reason that was given */
    Status status;
} OnnxWalk;

NODISCARD Status walk_open(OnnxWalk *walk);
void walk_close(OnnxWalk *walk);
/* Puts the image at the file's input. Its channels are those of the file. */
void walk_image(OnnxWalk *walk, Value image, const char *axes);
/* All needed nodes; what fails is in the survey, or in the graph. */
void walk_run(OnnxWalk *walk);

/* ---- onnx_value.c */

/* What the node would read is not computed here, nor by the node. Its outputs are lost. */
void walk_refuse_late(OnnxWalk *w, const OnnxNode *node);
/* The node has no counterpart. Its outputs are lost. */
void walk_refuse(OnnxWalk *w, const OnnxNode *node, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The walk ends with this error, unless it has another one already. */
void walk_fail(OnnxWalk *w, Status code, const char *message);
void *walk_memory(OnnxWalk *w, size_t count, size_t bytes);  /* zeroed, until walk_close; NULL after a failure */
OnnxItem *walk_in(OnnxWalk *w, const OnnxNode *node, int k); /* NULL if it is left out */
const Fixed *walk_fixed(OnnxWalk *w, const OnnxNode *node, int k);
Active *walk_active(OnnxWalk *w, const OnnxNode *node, int k);
void walk_give(OnnxWalk *w, const OnnxNode *node, Value v, const AxisOrder *order);
void walk_give_image(OnnxWalk *w, const OnnxNode *node, Value v); /* whose axes are NCHW */
void walk_alias(OnnxWalk *w, int id, int of);
/* The node after this one, if it is the only reader of its output and of this type, and not done; NULL. */
const OnnxNode *walk_next(OnnxWalk *w, const OnnxNode *node, const char *type);
/* `next` needs nothing more: its output is that of `node`. */
void walk_skip(OnnxWalk *w, const OnnxNode *node, const OnnxNode *next);

/* ---- onnx_active.c */

/* Puts channels whose factors have changed places into their order; false: they have not, or not so. */
bool walk_settle(OnnxWalk *w, Active *a);
/* The value itself: its curve has been computed, its border added. Value 0 if the graph has no such function. */
Value walk_value(OnnxWalk *w, int id);
/* The same without the border that is still to be added. */
Value walk_inner(OnnxWalk *w, int id);
bool has_border(const Active *active);
/* The value as NCHW or another order, whose axes stay where they are in memory. Value 0: it was refused. */
Value walk_ordered(OnnxWalk *w, const OnnxNode *node, int k, const char *axes);
/* The node's function of one number, after what `curve` is before; false if it is none. */
bool curve_of_node(OnnxWalk *w, const OnnxNode *node, Curve *curve);
/* Operand k as a curve, if it is one number known before the network runs, of at most so many axes. */
bool walk_scalar(OnnxWalk *w, const OnnxNode *node, int k, int rank, Curve *curve);

/* ---- onnx_params.c */

typedef struct Wanted {
    Shape shape;
    int rank; /* in files of weights; 0: by the layer */
    Init init;
    bool decay;
    bool turned; /* the file has the transposed matrix of `shape` */
    bool scalar; /* see Binding */
} Wanted;
/* The parameter or state of these numbers. Value 0: refused. */
Value walk_param(OnnxWalk *w, const OnnxNode *node, const Fixed *fixed, Wanted wanted);
/* Whether operand k is trained: numbers of the file, but for those that are all `nothing` and that an exporter has written as a node,
 * because a norm must have some. */
bool walk_is_trained(OnnxWalk *w, const OnnxNode *node, int k, double nothing);
/* One of `count` numbers, one for each channel. */
Value walk_vector(OnnxWalk *w, const OnnxNode *node, const Fixed *f, int64_t count, Init init);
/* "layer1.0.conv1" of "layer1.0.conv1.weight": what ops are named by. */
const char *layer_name(OnnxWalk *w, const OnnxNode *node, const Fixed *weights);
/* Enters the numbers among those of the network; false: refused. */
bool walk_bind(OnnxWalk *w, const OnnxNode *node, const Fixed *fixed, const Wanted *wanted);
/* Before numbers are read that are part of an op, and stay. False: another node trains them, which is refused: of a run's file, whose trained
 * values are left out, they could not be read. */
bool walk_stays(OnnxWalk *w, const OnnxNode *node, const Fixed *fixed);
/* The same of the parameter of this name. */
bool walk_name_stays(OnnxWalk *w, const OnnxNode *node, const char *name);
/* Outputs of this node instead of those in the file, for other classes. */
int64_t walk_classes(const OnnxWalk *w, const OnnxNode *node, int64_t in_file);
/* In the first walk, of a value of the file. */
ValueNotes *walk_notes(OnnxWalk *w, const char *name);

/* ---- onnx_fixed.c */

double fixed_at(const Fixed *fixed, int64_t i);
/* Whether its numbers are in the file, and each is this one; NULL: no. */
bool fixed_all_are(const Fixed *fixed, double value);
/* Small integers: how many; -1 if they are more than `room` or none. */
int fixed_ints(const Fixed *fixed, int64_t *to, int room);
/* NumPy's broadcasting: the sizes dims[*rank] of a result, with those of an operand; false if they do not fit. Its element at place i of
 * the result. */
bool fixed_spread(const Fixed *fixed, int *rank, int64_t *dims);
double fixed_spread_at(const Fixed *fixed, int64_t i, int rank, const int64_t *dims);
/* The sizes that a Reshape, an Expand or a ConstantOfShape says of its output; -1: another node, or they are not known. */
int fixed_shape(OnnxWalk *walk, const OnnxNode *node, int64_t dims[NET_FILE_RANK]);
void fixed_from_tensor(OnnxTensor tensor, const char *name, Fixed *fixed);
bool element_is_integer(OnnxElement type);

/* ---- onnx_dims.c: axes, and sizes of views */

/* Operand k, which is attribute `name` in old versions: how many integers; -1 if they are more than `room`, or not known. */
int node_ints(OnnxWalk *w, const OnnxNode *node, int k, const char *name, int64_t *to, int room);
/* Which of so many axes a file means, which counts negative ones from the end; -1: there is none such. */
int axis_among(int64_t axis, int rank);
/* The same of a node's axis; -1: it was refused. */
int node_axis(OnnxWalk *w, const OnnxNode *node, int64_t axis, int rank);
/* Makes axes of a node those that they mean, each once; false: it was refused. */
bool node_axes_settle(OnnxWalk *w, const OnnxNode *node, int64_t *axes, int count, int rank);
/* The axes of a node as they are in the file: an attribute, or its second operand. 0: none; -1: not known. */
int node_axes_listed(OnnxWalk *w, const OnnxNode *node, int64_t axes[NET_FILE_RANK]);
/* The axes of a node, which are among so many. 0: none; -1: it was refused. */
int node_axes(OnnxWalk *w, const OnnxNode *node, int rank, int64_t axes[NET_FILE_RANK]);
bool axes_have(const int64_t *axes, int count, int axis);
/* Whether a Transpose has each axis of its operand once; false: it was refused. */
bool node_permutes(OnnxWalk *w, const OnnxNode *node, int rank);
/* The sizes to[NET_FILE_RANK] that Squeeze and Unsqueeze make of from[rank]: how many; -1: it was refused. */
int dims_squeeze(OnnxWalk *w, const OnnxNode *node, const int64_t *from, int rank, int64_t *to);
int dims_unsqueeze(OnnxWalk *w, const OnnxNode *node, const int64_t *from, int rank, int64_t *to);
/* Puts numbers for what is 0 and -1 in the shape dims[rank] of a Reshape of from[from_rank], and BATCH_SIZE for a first size that is
 * `batch`, the one that a file fixes (0: none). False if both have not as many elements. */
bool dims_reshape(const OnnxNode *node, const int64_t *from, int from_rank, int64_t batch, int64_t *dims, int rank);

/* ---- onnx_fold.c */

/* Computes a node whose operands are all fixed, or a shape. False: refused. */
bool fold_node(OnnxWalk *w, const OnnxNode *node);

/* ---- onnx_pointwise.c */

void build_unary(OnnxWalk *w, const OnnxNode *node);
void build_binary(OnnxWalk *w, const OnnxNode *node);
void build_prelu(OnnxWalk *w, const OnnxNode *node);
/* Whether these are one number for each channel of a value of this order: along the axis of the channels, and none else. */
bool fixed_is_of_channels(const Fixed *fixed, const AxisOrder *order);

/* ---- onnx_scalars.c */

typedef enum Scalar { SCALAR_LITERAL, SCALAR_UNKNOWN, SCALAR_PARAMETER } Scalar;
Scalar scalar_of(const OnnxWalk *w, const Fixed *fixed);
/* The name of a number that may be trained, and of which this one is computed, if it is not that one itself; NULL: there is none. */
const char *scalar_source(const OnnxWalk *w, const Fixed *fixed);

/* A single number stays as it is in the file, which is said if it may be a parameter. False: another node trains it. */
bool scalar_stays(OnnxWalk *w, const OnnxNode *node, const Fixed *fixed);

/* ---- onnx_random.c */

/* False if the node neither draws random numbers nor reads any. */
bool random_node(OnnxWalk *w, const OnnxNode *node);
/* x with a dropout of the file, whose rate is an option. */
Value elements_drop(OnnxWalk *w, Value x, double rate);
/* Gives the branch of a sum stochastic depth, if that is asked for and the other term is what the branch is computed of: with rates that
 * rise in equal steps, from 0 of the first of these sums to the option's of the last. */
void residual_sum(OnnxWalk *w, const OnnxNode *node, Value term[2]);

/* ---- onnx_places.c */

/* False if the node neither counts the images of a batch nor computes anything of their count. */
bool places_node(OnnxWalk *w, const OnnxNode *node);
const Places *walk_places(OnnxWalk *w, const OnnxNode *node, int k);
/* Whether these are the places of all elements of a value, in their order. */
bool places_in_order(const Places *places);

/* ---- onnx_views.c: what moves no number */

void build_transpose(OnnxWalk *w, const OnnxNode *node);
void build_reshape(OnnxWalk *w, const OnnxNode *node);
void build_flatten(OnnxWalk *w, const OnnxNode *node);
void build_gather(OnnxWalk *w, const OnnxNode *node);
void build_squeeze(OnnxWalk *w, const OnnxNode *node);
void build_unsqueeze(OnnxWalk *w, const OnnxNode *node);
void build_pad(OnnxWalk *w, const OnnxNode *node);
void build_slice(OnnxWalk *w, const OnnxNode *node);
void build_split(OnnxWalk *w, const OnnxNode *node);
void build_sequence_at(OnnxWalk *w, const OnnxNode *node);
void build_concat(OnnxWalk *w, const OnnxNode *node);

/* Expand, whose result is spread by what reads it where that can be. */
void build_expand(OnnxWalk *w, const OnnxNode *node);

/* ---- onnx_sums.c */

/* The node makes one number of each channel of an image. */
void means_note(OnnxWalk *w, const OnnxNode *node);
/* The largest of all rows, of all columns, or of both: those of which `few` has one. */
Value largest_pixel(Graph *g, Value x, Shape few);
enum { LARGEST_OF = 256 }; /* numbers of a window, among which the largest is found again for its gradient */
void build_reduce(OnnxWalk *w, const OnnxNode *node);
/* A softmax over the axes first .. end - 1, if these have all pixels of an image; false: they have not. */
bool softmax_of_pixels(OnnxWalk *w, const OnnxNode *node, int first, int end);
/* A product of two values that the network computes, if it sums an image by the weights of its pixels; false: it does not. */
bool weighted_sum(OnnxWalk *w, const OnnxNode *node);

/* ---- onnx_groups.c: groups of channels that are an axis; false: the node is another one */

bool reduce_groups(OnnxWalk *w, const OnnxNode *node, int axis);
bool softmax_of_groups(OnnxWalk *w, const OnnxNode *node, int axis);
/* Concat along an axis that no operand has. */
bool stack_of_groups(OnnxWalk *w, const OnnxNode *node, int axis);
void build_instance_norm(OnnxWalk *w, const OnnxNode *node);
void build_group_norm(OnnxWalk *w, const OnnxNode *node);

/* ---- onnx_filters.c: convolutions that are none of an image's channels; false: the node is another one */

bool conv_of_channels(OnnxWalk *w, const OnnxNode *node);
bool blur(OnnxWalk *w, const OnnxNode *node);

/* ---- onnx_standard.c */

typedef struct Standardized {
    Fixed weights, gain; /* a gain of no numbers: none */
    double scale;
    const OnnxNode *norm; /* which does it */
} Standardized;
/* Whether value `id` are weights of a convolution that the file standardizes. */
bool weights_standardized(OnnxWalk *w, int id, Standardized *standardized);
/* What the convolution reads. Value 0: refused. */
Value weights_standardize(OnnxWalk *w, const OnnxNode *node, const Standardized *standardized, Value weights);

/* ---- onnx_layers.c */

void build_conv(OnnxWalk *w, const OnnxNode *node);
void build_matmul(OnnxWalk *w, const OnnxNode *node);
void build_gemm(OnnxWalk *w, const OnnxNode *node);

/* ---- onnx_norms.c */

void build_batch_norm(OnnxWalk *w, const OnnxNode *node);
void build_layer_norm(OnnxWalk *w, const OnnxNode *node);
/* The epsilon of a norm; false: it is refused, as without one the norm of equal numbers has no slope. */
bool norm_epsilon(OnnxWalk *w, const OnnxNode *node, float *epsilon);

/* ---- onnx_windows.c */

/* The image that a window goes over, and the border that becomes padding of it if its value is one that padding has (`pads`; NULL: none is). */
Value walk_windowed(OnnxWalk *w, const OnnxNode *node, bool (*pads)(double value), Border *border);
/* The node's window over x, whose border is part of the padding. False: refused. */
bool node_window(OnnxWalk *w, const OnnxNode *node, Shape x, const Border *border, Window *window);
void build_pool(OnnxWalk *w, const OnnxNode *node);
void build_global_pool(OnnxWalk *w, const OnnxNode *node);
void build_resize(OnnxWalk *w, const OnnxNode *node);

/* ---- onnx_ops.c */

typedef struct OnnxOp {
    const char *type;
    void (*build)(OnnxWalk *w, const OnnxNode *node);
    const char *attributes; /* that it knows, separated by blanks */
} OnnxOp;
const OnnxOp *onnx_op(const char *type);
