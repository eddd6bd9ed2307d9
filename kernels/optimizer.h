/* The update of the weights: one flat kernel over a range of the parameter arena.
 *
 * LARS and LAMB scale the step of every parameter tensor by a trust ratio, which takes the norms of the whole tensor:
 *   LARS   g' = g + decay p;  ratio = trust |p| / (|g| + decay |p| + epsilon);  v = momentum v + lr ratio g';  p -= v
 *   LAMB   r = m^ / (sqrt(v^) + epsilon) + decay p, with Adam's m^ and v^;  ratio = |p| / |r|;  p -= lr ratio r
 * The ratio is 1 if one of its norms is 0, and for segments that do not adapt (biases, batch norm).
 *
 * Gradients, states, averages and 16-bit copies lie in arenas of the same layout as the parameters, so element i of one
 * belongs to element i of all. Segments give what differs between parameters (weight decay, learning rate factor).
 * Sources: momentum and Nesterov as PyTorch SGD; RMSProp as TensorFlow (epsilon inside the root, mean square starts at
 * one, rate inside the momentum buffer) and as PyTorch; Adam (Kingma & Ba 2015) as PyTorch; AdamW (Loshchilov 2019);
 * LARS (You et al., arXiv:1708.03888) with the learning rate inside the momentum as in TensorFlow's and MLPerf's code;
 * LAMB (You et al., arXiv:1904.00962). */
#pragma once

#include "kernels/base/status.h"
#include "kernels/tensor.h"

typedef enum OptimizerKind {
#define OPTIMIZER(KIND, ...) OPTIMIZER_##KIND,
#include "kernels/optimizers.def"
    OPTIMIZER_COUNT
} OptimizerKind;

/* The values of --opt. */
typedef enum OptimizerChoice {
#define OPTIMIZER(KIND, ...) OPT_##KIND,
#define OPTIMIZER_AS(CHOICE, ...) OPT_##CHOICE,
#include "kernels/optimizers.def"
    OPT_COUNT
} OptimizerChoice;

/* The hyperparameters that an optimizer may read; HYPER_BETAS are two. */
enum { HYPER_MOMENTUM = 1, HYPER_BETAS = 2, HYPER_DECAY = 4, HYPER_EPSILON = 8, HYPER_TRUST = 16 };

typedef struct OptimizerInfo { /* optimizers.def describes the columns */
    const char *name;
    int states;
    float start;
    unsigned uses; /* HYPER_ bits */
    float epsilon;
    bool layerwise;
} OptimizerInfo;

extern const OptimizerInfo optimizer_infos[OPTIMIZER_COUNT];
extern const struct OptimizerChoiceInfo {
    const char *name;
    OptimizerKind kind;
    double momentum;
    bool nesterov;
    const char *about;
} optimizer_choices[OPT_COUNT];

enum { OPTIMIZER_STATES = 2, TRUST_PARTS = 256 };

typedef struct OptimizerHyper {
    OptimizerKind kind;
    float momentum;
    bool nesterov;
    float beta1, beta2;
    float decay; /* of the mean square */
    float epsilon;
    float clip_value; /* elementwise; 0 = off */
    float trust;      /* the trust coefficient */
} OptimizerHyper;

typedef struct OptimizerSegment {
    size_t first, count; /* elements of the arena; segments are ascending and cover the range */
    float weight_decay;  /* L2 factor (decoupled for AdamW and LAMB) */
    float lr_factor;     /* 0 freezes */
    bool adapts;         /* of a layer-wise kind: by its trust ratio. Then the segment is one tensor */
    bool late;           /* its updates count from OptimizerUpdate.unfrozen_updates on */
} OptimizerSegment;

/* The trust ratio of a segment, and memory to compute it on a GPU: sums of squares of parts of the parameters and of
 * their gradients (LARS) or directions (LAMB). Zeroed before the first update. */
typedef struct OptimizerTrust {
    float ratio;
    unsigned arrived; /* parts that are there; 0 between updates */
    double part[TRUST_PARTS][2];
} OptimizerTrust;

/* The values that change from step to step, in device memory so that a captured step can be replayed. */
typedef struct OptimizerScalars {
    float lr;
    float step;       /* 1 for the first update (bias correction) */
    float grad_scale; /* gradients are multiplied by it first (1 / loss scale, times the clip factor of the
                       * global norm, times gate_refill) */
    float ema_decay;  /* of the weight average, already warmed up; used only if ema != NULL */
    float commit;     /* the gate: 0 = change nothing */
    float reserved[2];
    float bn_decay; /* of the running statistics, for Backend.average */
} OptimizerScalars;

typedef struct OptimizerUpdate {
    OptimizerHyper hyper;
    float *param;                   /* f32 master weights */
    const float *grad;              /* f32 */
    float *state[OPTIMIZER_STATES]; /* NULL if the kind does not use it */
    float *ema;                     /* weight average, or NULL */
    void *half;                     /* 16-bit copy of the weights, or NULL */
    Dtype half_dtype;
    const OptimizerSegment *segments; /* host memory */
    int segment_count;
    const OptimizerScalars *scalars; /* device memory */
    float unfrozen_updates; /* updates that were made before the late segments were unfrozen (bias correction) */
    OptimizerTrust *trust;  /* [segment_count] device memory; NULL unless optimizer_is_layerwise */
} OptimizerUpdate;

/* What the functions of optimizer_rules.h read: an update's hyperparameters in one segment. */
typedef struct OptimizerRule {
    float momentum, beta1, beta2, decay, epsilon, trust;
    float clip; /* INFINITY: off */
    bool nesterov;
    /* not set by optimizer_rule */
    float lr; /* of the segment, times its trust ratio */
    float grad_scale, weight_decay;
    float first_fix;  /* 1 / (1 - beta1^t) */
    float step_size;  /* lr / (1 - beta1^t) */
    float second_fix; /* 1 / sqrt(1 - beta2^t) */
} OptimizerRule;

/* The value that a state starts with, and how many states the kind uses. */
float optimizer_state_start(const OptimizerHyper *hyper, int state);
int optimizer_state_count(const OptimizerHyper *hyper);
bool optimizer_is_layerwise(OptimizerKind kind);
/* The fields that do not depend on the segment. */
OptimizerRule optimizer_rule(const OptimizerHyper *hyper);
/* Checks common to all backends: the kind exists, its states (and trust ratios) are there, and the copy, if any, has 16
 * bits. */
NODISCARD Status optimizer_check(const OptimizerUpdate *update);
