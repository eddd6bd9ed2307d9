/* Options: the settings from command line, environment, configuration file and recipe, as one struct.
 *
 * The struct, the enums and all texts come from options.def. A higher origin overrides a lower one, whatever the order
 * in which they are read: command line > environment (TOWERS_<FLAG>) > file > resumed run > recipe > model > default.
 * Every value is checked when it is read (exact numbers, ranges, choices, exclusive pairs), even if it is overridden.
 * Reads no model, opens no data and prints nothing unless asked to. */
#pragma once

#include "kernels/base/status.h"
#include "kernels/optimizer.h"
#include "nccl_sync/mean_loss.h"
#include "towers/data/images/transform.h"
#include "towers/data/loading/order.h"
#include "towers/data/sources/source.h"
#include "towers/graph/loss_kind.h"
#include "towers/replica/policy.h"
#include "towers/replica/schedule.h"

typedef enum Verb {
    VERB_NONE = 0, /* no command: --help, --version, or no arguments */
#define COMMAND(id, ...) VERB_##id,
#include "inception/options/commands.def"
    VERB_COUNT
} Verb;

/* What a command uses the options of a job for. */
typedef enum Use {
    USE_NONE = 0, /* it makes no job */
    USE_LEARN,    /* it trains */
    USE_TIME,     /* it measures training or inference */
    USE_EVALUATE, /* it scores weights on data with labels */
    USE_EXPORT,   /* it describes a network and its weights, or writes them */
    USE_PREDICT,  /* it runs a network on images of the user, or makes images */
    USE_COMPARE,  /* it compares images with two sets of real ones */
} Use;

#define CHOICE(value, name, about) value,
#define CHOICES(type, ...) typedef enum type { __VA_ARGS__ type##_COUNT } type;
#include "inception/options/options.def"
#undef CHOICE

typedef enum OptionGroup {
#define OPTION_GROUP(id, title) GROUP_##id,
#include "inception/options/options.def"
    GROUP_COUNT
} OptionGroup;

typedef enum OptionId { /* OPTION_ID_lr, in the order of the table */
#define OPTION_GROUP(id, title) OPTION_FIRST_##id, OPTION_BEFORE_##id = OPTION_FIRST_##id - 1,
#define OPTION_FIELD(type, field) OPTION_ID_##field,
#include "inception/options/options.def"
                        OPTION_ID_COUNT
} OptionId;

typedef enum OptionOrigin {
    ORIGIN_DEFAULT = 0,
    ORIGIN_MODEL,          /* the model's own defaults */
    ORIGIN_DEFAULT_RECIPE, /* of a small set of photos, without --recipe */
    ORIGIN_RECIPE,
    ORIGIN_RUN, /* given by the user to the run that is resumed */
    ORIGIN_CONFIG,
    ORIGIN_ENVIRONMENT,
    ORIGIN_COMMAND_LINE
} OptionOrigin;

enum { OPTION_LIST_MAX = 256 };
#define OPTION_MAX                                                                                                     \
    INT64_MIN /* the value "max" of integers whose metavar offers it ("N|max"); "auto" of reals ("RATE|auto") is NaN */

typedef struct IntList {
    int count; /* 0: not given */
    int64_t value[OPTION_LIST_MAX];
} IntList;

typedef struct OptionText OptionText;

typedef struct Options {
    /* state: one field per row of options.def. Texts are owned here; NULL if not given */
#define OPTION_FIELD(type, field) type field;
#include "inception/options/options.def"
    Verb verb;
    OptionOrigin origin[OPTION_ID_COUNT];
    const char *where[OPTION_ID_COUNT]; /* "train.yaml:3", "TOWERS_LR", "--lr", the recipe's name; owned */
    bool displaced[OPTION_ID_COUNT];    /* the resumed run was given it, and this call one that excludes it */

    /* owned */
    char **arguments; /* positional; NULL-terminated */
    int argument_count;
    OptionText *texts;
} Options;

/* Read argv[1..argc), then, unless help or version is requested, `environment` ("NAME=value", NULL-terminated; NULL:
 * none) and the file of --config. On ERR_ARG *options is already closed. Of positional arguments only the maximum
 * number is checked. */
NODISCARD Status options_parse(int argc, char *const *argv, char *const *environment, Options *options);
/* All defaults, no command. Nothing to free, but options_close is allowed. */
void options_init(Options *options);
void options_close(Options *options);

/* Returns `status`. Its message then names an option as it was typed: --hflip, which all code knows as --flip. */
NODISCARD Status options_as_typed(const Options *options, Status status);

/* Values from flat YAML text (a recipe, a test); keys are flags. Keys that the command does not have are checked and
 * ignored, so that one file can serve several commands. `name` precedes ":line:column" in messages. */
NODISCARD Status options_apply_yaml(Options *options, const char *text, OptionOrigin origin, const char *name);
/* options_apply_yaml from untrusted bytes, and from a file of at most CONFIG_MAX_BYTES. */
NODISCARD Status options_apply_bytes(Options *options, const void *bytes, size_t count, OptionOrigin origin,
                                     const char *name);
NODISCARD Status options_apply_file(Options *options, const char *path, OptionOrigin origin);

extern const Options option_defaults; /* before a model or a recipe changes them */
/* By flag or alias, with dashes or underscores. ORIGIN_DEFAULT for an unknown name. */
OptionOrigin option_origin(const Options *options, const char *flag);
bool option_is_set(const Options *options, const char *flag); /* set by any origin above the default */
bool option_belongs(OptionId id, Verb verb);
Use options_use(const Options *options);
const char *options_command(const Options *options); /* "lr-find" */
/* Whether it is a setting, of training or of this command, that all programs of one run must share. */
bool option_is_shared(const Options *options, OptionId id);
/* Whether it names a run or controls its output, and so is no setting of the training. */
bool option_is_of_the_call(OptionId id);
/* The option given instead of this one (--global-batch-size for --batch-size); OPTION_ID_COUNT if none. */
OptionId option_replaced_by(const Options *options, OptionId id);

/* The value as it could be typed ("" if not set), independent of the locale; reals as the shortest decimal that reads
 * back equal. NUL-terminated. Needs at most OPTION_FORMAT_BYTES, except for texts, which are returned as they are. */
enum { OPTION_FORMAT_BYTES = OPTION_LIST_MAX * 21 };
const char *option_format(const Options *options, OptionId id, char *buffer, size_t bytes);

/* Print the options of this command as a YAML file for `--config`, each with "# from ..."; unset ones as comments. */
void options_print_config(const Options *options, FILE *to);

/* ---- the table itself, for help, completion and run records */
typedef enum OptionType {
    OPTION_IS_INT,
    OPTION_IS_REAL,
    OPTION_IS_FLAG,
    OPTION_IS_CHOICE,
    OPTION_IS_LIST,
    OPTION_IS_TEXT
} OptionType;
typedef enum OptionLevel { LEVEL_ADVANCED = 0, LEVEL_BASIC, LEVEL_DEBUG } OptionLevel;
typedef enum OptionResume { RESUME_FREE = 0, RESUME_SAME, RESUME_TOTAL, RESUME_MADE } OptionResume; /* options.def */
/* options.def; OPEN: no text, or none of train */
typedef enum OptionBrought {
    BROUGHT_OPEN = 0,
    BROUGHT_TAKEN,
    BROUGHT_LEFT,
    BROUGHT_FILE_OF_CALL,
    BROUGHT_COMMAND_OF_CALL
} OptionBrought;

/* A field of TrainJob that an option fills as it is. */
typedef enum FillType { FILL_NONE = 0, FILL_BOOL, FILL_INT, FILL_INT64, FILL_FLOAT, FILL_DOUBLE, FILL_TEXT } FillType;

typedef struct OptionFill {
    FillType type;
    size_t offset;
} OptionFill;

typedef struct OptionInfo { /* options.def describes what its rows fill in */
    OptionType type;
    OptionLevel level;
    OptionGroup group;
    OptionResume resume;
    char *flag;  /* "batch-size" */
    char letter; /* 'b', or 0 */
    bool local;  /* programs of one run may have different values */
    bool remote; /* a path may be an address */
    OptionBrought brought;
    const char *aliases; /* comma separated, or NULL */
    uint64_t verbs;      /* one bit per Verb, and the two flags below */
    const char *metavar; /* NULL for flags and choices */
    const char *when;    /* NULL: always; conditions.h */
    const char *help;
    const char *more, *example; /* for the manual: sentences, a command; or NULL */
    size_t offset, bytes;       /* of the field in Options */
    OptionFill fill;
    int64_t least, most;          /* ints and list elements */
    double real_least, real_most; /* reals */
    const char *const *choices;   /* names in enum order; NULL-terminated */
    const char *const *abouts;    /* what each of them is, and when to use it */
} OptionInfo;

#define OPTION_NOT_IN_CONFIG (UINT64_C(1) << 63)
#define OPTION_ONLY_TYPED (UINT64_C(1) << 62)

typedef struct VerbInfo { /* commands.def describes what its rows fill in */
    const char *name, *arguments, *summary, *exits;
    int most;
    bool hidden, computes;
    Use use;
} VerbInfo;

const OptionInfo *option_info(OptionId id);
const VerbInfo *verb_info(Verb verb); /* VERB_NONE: name "" */
const char *group_title(OptionGroup group);
/* By name or alias; VERB_NONE if there is no such command. */
Verb verb_find(const char *name);
/* OPTION_ID_COUNT if there is no such option; *negated: the name was "no-aux" (flags only). */
OptionId option_find(const char *name, bool *negated);
