/* The command line: every origin, their precedence, exact numbers, exclusive pairs, similar names, and printed values
 * that read back. */
#include "inception/options/options.h"

#include <float.h>

#include "inception/models/near_name.h"
#include "inception/options/conditions.h"
#include "inception/options/fill.h"
#include "inception/options/help.h"
#include "inception/options/settle.h"
#include "inception/options/values.h"
#include "tests/support/german.h"
#include "tests/support/unit.h"

enum { ARGUMENTS_MAX = 32 };

/* Parse "train m --lr 1", cut at blanks. Words live in `space` as long as the options. */
typedef struct Line {
    char space[1024];
    char *words[ARGUMENTS_MAX];
    Options options;
} Line;

static Status parse(Line *line, const char *command, char *const *environment)
{
    int count = 0;
    snprintf(line->space, sizeof line->space, "towers %s", command);
    for (char *rest = line->space, *word; (word = strsep(&rest, " "));)
        if (*word) line->words[count++] = word;
    return options_parse(count, line->words, environment, &line->options);
}

static void check_parse(Line *line, const char *command, char *const *environment)
{
    if (parse(line, command, environment) != OK) fail_msg("'%s': %s", command, status_message());
}

static void check_refused(const char *command, char *const *environment, const char *about)
{
    Line line;
    Status st = parse(&line, command, environment);
    if (st == OK) options_close(&line.options);
    if (st != ERR_ARG) fail_msg("'%s' was not refused (wanted: %s)", command, about);
    if (!strstr(status_message(), about)) fail_msg("'%s': wanted '%s', got: %s", command, about, status_message());
}

TEST(reads_every_spelling)
{
    Line line;
    check_parse(&line, "train m -b32 -j 3 --lr=1e-3 --gpus 0,2 --no-aux --report_loss worst --num_gpus 2 --amp=yes",
                NULL);
    const Options *o = &line.options;
    assert_int_equal(o->verb, VERB_TRAIN);
    assert_int_equal(o->argument_count, 1);
    assert_string_equal(o->arguments[0], "m");
    assert_null(o->arguments[1]);
    assert_int_equal(o->batch_size, 32);
    assert_int_equal(o->workers, 3);
    assert_true(o->lr == 1e-3);
    assert_int_equal(o->gpus.count, 2);
    assert_int_equal(o->gpus.value[1], 2);
    assert_false(o->aux);
    assert_true(o->amp);
    assert_int_equal(o->report_loss, LOSS_REPORT_WORST);
    assert_int_equal(o->towers, 2);
    assert_int_equal(option_origin(o, "num-gpus"), ORIGIN_COMMAND_LINE);
    assert_int_equal(option_origin(o, "epochs"), ORIGIN_DEFAULT);
    assert_true(option_is_set(o, "batch_size"));
    options_close(&line.options);
}

TEST(ends_options_at_two_dashes)
{
    Line line;
    check_parse(&line, "compare a --json -- --b - -c", NULL);
    assert_int_equal(line.options.argument_count, 4);
    assert_string_equal(line.options.arguments[1], "--b");
    assert_string_equal(line.options.arguments[3], "-c");
    options_close(&line.options);
    check_parse(&line, "train -- m", NULL);
    assert_string_equal(line.options.arguments[0], "m");
    options_close(&line.options);
    check_parse(&line, "", NULL);
    assert_int_equal(line.options.verb, VERB_NONE);
    options_close(&line.options);
}

TEST(last_flag_counts)
{
    Line line;
    check_parse(&line, "train m --lr 1 --lr 2 --amp --no-amp --no-aux --aux", NULL);
    assert_true(line.options.lr == 2);
    assert_false(line.options.amp);
    assert_true(line.options.aux);
    options_close(&line.options);
}

/* Choices whatever their case, and under the names that other programs use. */
TEST(reads_other_spellings_of_choices)
{
    Line line;
    check_parse(&line, "train m --auto-augment ta_wide --lr-scheduler CosineAnnealingLR --dist-bn reduce", NULL);
    assert_int_equal(line.options.auto_augment, POLICY_TRIVIAL);
    assert_int_equal(line.options.sched, SCHEDULE_COSINE);
    assert_int_equal(line.options.bn_stats, BN_STATS_MEAN);
    options_close(&line.options);
    check_parse(&line, "train m --opt SGD --device GPU --amp-dtype bfloat16 --bn-stats Pooled", NULL);
    assert_int_equal(line.options.opt, OPT_SGD);
    assert_int_equal(line.options.device, DEVICE_CUDA);
    assert_int_equal(line.options.amp_dtype, AMP_BF16);
    assert_int_equal(line.options.bn_stats, BN_STATS_POOLED);
    options_close(&line.options);
}

static const char *const refusals[][2] = {
    {"train m --batchsize 3", "did you mean --batch-size?"},
    {"train m --batch 3", "did you mean --batch-size?"},
    {"train m --bacth_size 3", "did you mean --batch-size?"},
    {"train m --label-smothing 0", "did you mean --label-smoothing?"},
    {"train m --no-auxx", "did you mean --no-aux?"},
    {"train m --frobnicate", "--frobnicate is not an option of 'towers train'"},
    {"train m --no-lr", "--no-lr is not an option"},
    {"train m --fuse auto", "--fuse is not an option of 'towers train': convolutions are not fused"},
    {"train m --batches 3", "the commands that have it: bench"},
    {"train m --version", "--version cannot follow a command; use: towers --version"},
    {"train m --batch-size", "needs a value"},
    {"train m --lr --epochs 3", "--lr needs a value"},
    {"train m --lr -inf", "needs a value"},
    {"train m -b", "-b needs a value"},
    {"train m --lr=", "'' is not a number"},
    {"train m --data-path=", "empty"},
    {"train m --lr 1e", "'1e' is not a number"},
    {"train m --lr nan", "not a number"},
    {"train m --lr inf", "not a number"},
    {"train m --lr 0x10", "not a number"},
    {"train m --lr 0,1", "not a number"},
    {"train m --lr 1e999", "out of range"},
    {"train m --lr 1e-999", "out of range"},
    {"train m --lr -5", "out of range"},
    {"train m --lr 1000001", "out of range (0 to 1000000)"},
    {"train m --momentum 1", "out of range (0 to 0.999999)"},
    {"train m --lr .", "not a number"},
    {"train m --batch-size -5", "out of range (1 to 65536, or max)"},
    {"train m --batch-size 0", "out of range"},
    {"train m --batch-size 65537", "out of range"},
    {"train m --batch-size 1e3", "not a whole number"},
    {"train m --batch-size 3.0", "not a whole number"},
    {"train m --batch-size 32x", "not a whole number"},
    {"train m --batch-size 99999999999999999999", "out of range"},
    {"train m --seed 18446744073709551615", "out of range"},
    {"train m --seed 9223372036854775808", "out of range (0 to 9223372036854775807)"},
    {"train m --gpus 0,,1", "not a whole number"},
    {"train m --gpus 0,", "not a whole number"},
    {"train m --gpus 0;1", "not a whole number"},
    {"train m --gpus 0000000000000000000000000000000000000001", "not a list"},
    {"train m --opt adm", "did you mean adam?"},
    {"train m --opt frob", "one of sgd, momentum"},
    {"train m --device gpus", "did you mean gpu?"},
    {"train m --amp=maybe", "neither true nor false"},
    {"train m -b 1 --global-batch-size 2", "exclude each other"},
    {"train m --tower-batch 1,2 --batch-size 2", "exclude each other"},
    {"predict r i --json --csv", "--csv and --json exclude each other"},
    {"train m n", "unexpected argument"},
    {"train m -x", "-x is not an option; long"},
    {"export r -o x.onnx",
     "-o is not an option of 'towers export'; the commands that have it: data, generate, compare, card; "
     "usage: towers export MODEL|RUN|FILE [FILE] [OPTIONS]"},
    {"-b 3", "-b must follow a command that has this option: train, lr-find"},
    {"train m -hb", "single-letter options separately"},
    {"doctor x", "unexpected argument"},
    {"trian m", "did you mean 'train'?"},
    {"frobnicate", "unknown command 'frobnicate'"},
    {"--towers 2 train", "must follow a command"},
    {"train m --config /nowhere/a.yaml", "/nowhere/a.yaml"},
    {"train m --config /", "not a regular file"},
};

/* Each alias of the table: a message about the option, whose own name is in it, has the alias. */
TEST(names_what_was_typed)
{
    int count = 0;
    for (OptionId id = 0; id < OPTION_ID_COUNT; id++) {
        const OptionInfo *info = option_info(id);
        char names[256], command[512], value[64] = "x", wanted[256];
        Verb verb = VERB_NONE;
        while (!option_belongs(id, verb)) verb++;
        if (info->type == OPTION_IS_INT || info->type == OPTION_IS_LIST)
            snprintf(value, sizeof value, "%" PRId64, info->least);
        if (info->type == OPTION_IS_REAL) snprintf(value, sizeof value, "%g", info->real_least);
        if (info->type == OPTION_IS_CHOICE) snprintf(value, sizeof value, "%s", info->choices[0]);
        if (info->type == OPTION_IS_FLAG) snprintf(value, sizeof value, "true");
        snprintf(names, sizeof names, "%s", info->aliases ? info->aliases : "");
        for (char *rest = names, *name; *names && (name = strsep(&rest, ",")); count++) {
            Line line;
            snprintf(command, sizeof command, "%s --%s=%s", verb_info(verb)->name, name, value);
            check_parse(&line, command, NULL);
            Status st = FAIL(ERR_SHAPE, "--%s, --%s-more and --%s=1", info->flag, info->flag, info->flag);
            assert_int_equal(options_as_typed(&line.options, st), ERR_SHAPE);
            snprintf(wanted, sizeof wanted, "--%s, --%s-more and --%s=1", name, info->flag, name);
            assert_string_equal(status_message(), wanted);
            options_close(&line.options);
        }
    }
    assert_in_range(count, 30, 200);
}

/* fault: F50 */
TEST(refuses_with_advice)
{
    for (size_t k = 0; k < sizeof refusals / sizeof refusals[0]; k++)
        check_refused(refusals[k][0], NULL, refusals[k][1]);
}

TEST(reads_the_environment)
{
    Line line;
    char *const good[] = {
        "TOWERS_LR=0.5",   "TOWERS_NO_AUX=1",  "TOWERS_WD=0.25",  "TOWERS_VERSION=1.2", "TOWERS_EPOCHS=",
        "TOWERS_UNKNOWN=", "TOWERS_NOTHING=1", "TOWERS_JSON=yes", "towers_seed=3",      NULL};
    check_parse(&line, "train m --no-json", good);
    assert_true(line.options.lr == 0.5);
    assert_true(line.options.weight_decay == 0.25);
    assert_false(line.options.aux);
    assert_false(line.options.json);
    assert_int_equal(line.options.epochs, 10);
    assert_int_equal(line.options.seed, 0);
    assert_string_equal(line.options.where[OPTION_ID_lr], "TOWERS_LR");
    assert_int_equal(option_origin(&line.options, "lr"), ORIGIN_ENVIRONMENT);
    options_close(&line.options);
    check_refused("train m", (char *const[]){"TOWERS_LR=1e", NULL}, "TOWERS_LR: '1e'");
    check_refused("train m --lr 1", (char *const[]){"TOWERS_LR=1e", NULL}, "TOWERS_LR: '1e'");
    check_refused("train m", (char *const[]){"TOWERS_BATCH_SIE=3", NULL}, "--batch-size");
    check_refused("train m", (char *const[]){"TOWERS_LRR=3", NULL}, "did you mean --lr?");
    check_parse(&line, "train --help", (char *const[]){"TOWERS_LR=1e", NULL}); /* help comes whatever is wrong */
    assert_true(line.options.help);
    options_close(&line.options);
}

/* Four origins in every order: the result depends on the origins alone. */
TEST(higher_origin_wins_in_any_order)
{
    static const OptionOrigin orders[][3] = {{1, 3, 4}, {1, 4, 3}, {3, 1, 4}, {3, 4, 1}, {4, 1, 3}, {4, 3, 1}};
    for (size_t k = 0; k < 6; k++) {
        Options o;
        options_init(&o);
        o.verb = VERB_TRAIN;
        for (int i = 0; i < 3; i++) {
            char text[64];
            snprintf(text, sizeof text, "lr: 0.%d\n%s", orders[k][i],
                     orders[k][i] == ORIGIN_RECIPE ? "epochs: 7\n" : "");
            assert_int_equal(options_apply_yaml(&o, text, orders[k][i], "here"), OK);
        }
        assert_true(o.lr == 0.4);
        assert_int_equal(o.epochs, 7);
        assert_int_equal(option_origin(&o, "epochs"), ORIGIN_RECIPE);
        assert_string_equal(o.where[OPTION_ID_epochs], "here:2");
        options_close(&o);
    }
}

TEST(exclusive_pairs_follow_origin)
{
    Line line;
    check_parse(&line, "train m --global-batch-size 128", (char *const[]){"TOWERS_BATCH_SIZE=3", NULL});
    assert_int_equal(line.options.global_batch_size, 128);
    assert_int_equal(option_origin(&line.options, "batch-size"), ORIGIN_DEFAULT);
    assert_int_equal(options_apply_yaml(&line.options, "tower-batch: 1,2\n", ORIGIN_RECIPE, "r"), OK);
    assert_int_equal(line.options.tower_batch.count, 0);
    assert_int_equal(option_replaced_by(&line.options, OPTION_ID_batch_size), OPTION_ID_global_batch_size);
    assert_int_equal(options_apply_yaml(&line.options, "batch-size: 7\n", ORIGIN_COMMAND_LINE, "r"), ERR_ARG);
    options_close(&line.options);
    options_init(&line.options);
    line.options.verb = VERB_TRAIN;
    assert_int_equal(options_apply_yaml(&line.options, "batch-size: 7\n", ORIGIN_RECIPE, "r"), OK);
    assert_int_equal(options_apply_yaml(&line.options, "tower-batch: 4,4\n", ORIGIN_CONFIG, "c"), OK);
    assert_int_equal(line.options.batch_size, 64);
    assert_int_equal(line.options.tower_batch.count, 2);
    options_close(&line.options);
}

static const char *const bad_entries[][2] = {
    {"batch-sise: 3\n", "c:1:1: unknown option 'batch-sise'; did you mean batch-size?"},
    {"lr: 1\nlr: 2\n", "c:2:1: 'lr' is set twice, first in line 1"},
    {"wd: 1\nweight-decay: 2\n", "c:2:1: 'weight-decay' is set twice"},
    {"aux: true\nno-aux: true\n", "c:2:1: 'no-aux' is set twice"},
    {"lr: fast\n", "c:1:5: lr: 'fast' is not a number"},
    {"lr: \"0.1\"\n", "c:1:5: 'lr' expects a number, but a quoted value"},
    {"amp: 'true'\n", "c:1:6: 'amp' expects true or false"},
    {"epochs: -1\n", "c:1:9: epochs: -1 is out of range"},
    {"seed: 010\n", "c:1:7: a number that begins with 0"},
    {"experiment: ~\n", "c:1:13: null is no value"},
    {"after-checkpoint: false\n", "c:1:19: 'after-checkpoint' expects text, but false without quotes"},
    {"prometheus: No\n", "c:1:13: 'prometheus' expects text, but No without quotes"},
    {"help: true\n", "c:1:1: 'help' is not allowed in a file"},
    {"config: b.yaml\n", "c:1:1: 'config' is not allowed in a file"},
    {"batch-size: 1\nglobal-batch-size: 2\n", "exclude each other"},
    {"batches: none\n", "c:1:10: batches: 'none'"}, /* bench's, checked all the same */
};

TEST(refuses_bad_entries)
{
    for (size_t k = 0; k < sizeof bad_entries / sizeof bad_entries[0]; k++) {
        Options o;
        options_init(&o);
        o.verb = VERB_TRAIN;
        assert_int_equal(options_apply_yaml(&o, bad_entries[k][0], ORIGIN_CONFIG, "c"), ERR_ARG);
        if (!strstr(status_message(), bad_entries[k][1]))
            fail_msg("'%s': wanted '%s', got: %s", bad_entries[k][0], bad_entries[k][1], status_message());
        options_close(&o);
    }
}

/* And those of an earlier version, as --fuse. */
TEST(leaves_other_verbs_keys_alone)
{
    Options o;
    options_init(&o);
    o.verb = VERB_EVAL;
    assert_int_equal(options_apply_yaml(&o, "lr: 3\nbatch_size: 8\nnan-check: off\nfuse: auto\n", ORIGIN_CONFIG, "c"),
                     OK);
    assert_true(o.lr == 0.001);
    assert_int_equal(o.batch_size, 8);
    options_close(&o);
}

/* The output of --print-config reads back to the same values, in every field. */
TEST(printed_config_reads_back)
{
    Line line;
    Options again;
    char *text = NULL, first[OPTION_FORMAT_BYTES], second[OPTION_FORMAT_BYTES];
    size_t bytes = 0;
    check_parse(&line,
                "train m --global-batch-size 12 --lr 0.1 --gpus 3,1 --no-aux --opt nesterov --nan-check off "
                "--min-lr 1e-5 --warmup-lr 2.5e-06",
                NULL);
    assert_int_equal(options_apply_yaml(&line.options,
                                        "data-path: \"a\\\"b\\\\ \\u00fc \\U0001F600 \\x07\"\nresume: 'true'\n",
                                        ORIGIN_CONFIG, "c"),
                     OK);
    FILE *to = open_memstream(&text, &bytes);
    options_print_config(&line.options, to);
    fclose(to);
    assert_non_null(strstr(text, "# from command line \"--lr\""));
    assert_non_null(strstr(text, "# from file \"c:1\""));
    assert_non_null(strstr(text, "nan-check: \"off\" ")); /* other readers of YAML 1.1 take it for false */
    assert_non_null(strstr(text, "min-lr: 1.0e-05 "));    /* they take 1e-05 for a text */
    assert_non_null(strstr(text, "warmup-lr: 2.5e-06 "));
    options_init(&again);
    again.verb = VERB_TRAIN;
    if (options_apply_yaml(&again, text, ORIGIN_CONFIG, "printed") != OK) fail_msg("%s\n%s", status_message(), text);
    for (OptionId id = 0; id < OPTION_ID_COUNT; id++)
        assert_string_equal(option_format(&line.options, id, first, sizeof first),
                            option_format(&again, id, second, sizeof second));
    free(text);
    options_close(&again);
    options_close(&line.options);
}

TEST(numbers_are_exact)
{
    int64_t whole;
    double real;
    char text[32];
    assert_int_equal(text_to_int("9223372036854775807", &whole), VALUE_OK);
    assert_true(whole == INT64_MAX);
    assert_int_equal(text_to_int("9223372036854775808", &whole), VALUE_TOO_LARGE);
    assert_int_equal(text_to_int("-9223372036854775808", &whole), VALUE_OK);
    assert_int_equal(text_to_int("+7", &whole), VALUE_OK);
    const char *const bad[] = {"", " 7", "7 ", "+", "--7", "7.", "1_000"};
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++)
        assert_int_equal(text_to_int(bad[k], &whole), VALUE_MALFORMED);
    const double values[] = {0.1, 1.0 / 3, 5e-324 * 0x1p60, DBL_MAX, DBL_MIN, 2e-4, 1e6, 0};
    for (size_t k = 0; k < sizeof values / sizeof values[0]; k++) {
        real_to_text(values[k], text, sizeof text);
        assert_int_equal(text_to_real(text, &real), values[k] != 0 && values[k] < DBL_MIN ? VALUE_TOO_LARGE : VALUE_OK);
        if (values[k] == 0 || values[k] >= DBL_MIN) assert_true(real == values[k]);
    }
    real_to_text(0.1, text, sizeof text);
    assert_string_equal(text, "0.1");
    assert_int_equal(text_to_real("-0", &real), VALUE_OK);
    assert_false(signbit(real));
}

/* fault: F56 */
TEST(numbers_ignore_the_locale)
{
    char text[32];
    double real = 0;
    if (!german_begin()) skip("localedef cannot make the German locale (package locales)");
    ValueVerdict point = text_to_real("0.5", &real), comma = text_to_real("0,5", &(double){0});
    real_to_text(0.5, text, sizeof text);
    german_end();
    assert_int_equal(point, VALUE_OK);
    assert_true(real == 0.5);
    assert_int_equal(comma, VALUE_MALFORMED);
    assert_string_equal(text, "0.5");
}

TEST(distances)
{
    assert_int_equal(edit_distance("train", "train", 2), 0);
    assert_int_equal(edit_distance("trian", "train", 2), 1);
    assert_int_equal(edit_distance("tran", "train", 2), 1);
    assert_int_equal(edit_distance("kitten", "sitting", 3), 3);
    assert_int_equal(edit_distance("kitten", "sitting", 2), 3);
    assert_int_equal(edit_distance("", "ab", 2), 2);
    assert_int_equal(edit_distance("a", "abcd", 2), 3);
}

/* The table itself: names unique over flags, aliases and letters; defaults inside the range or plainly unset; plain
 * flags. */
TEST(table_is_sound)
{
    for (OptionId a = 0; a < OPTION_ID_COUNT; a++) {
        bool negated;
        char names[256], value[OPTION_FORMAT_BYTES];
        const OptionInfo *info = option_info(a);
        assert_int_equal(option_find(info->flag, &negated), a);
        assert_false(negated);
        assert_int_equal(strspn(info->flag, "abcdefghijklmnopqrstuvwxyz0123456789-"), strlen(info->flag));
        snprintf(names, sizeof names, "%s", info->aliases ? info->aliases : "");
        for (char *rest = names, *name; (name = strsep(&rest, ","));)
            if (*name) assert_int_equal(option_find(name, &negated), a);
        const uint64_t commands = info->verbs & ~(OPTION_NOT_IN_CONFIG | OPTION_ONLY_TYPED);
        for (OptionId b = 0; b < a && info->letter; b++) /* one letter may have a meaning for each command */
            assert_true(option_info(b)->letter != info->letter || !(option_info(b)->verbs & commands));
        assert_true(strlen(info->help) > 4 &&
                    strlen(option_format(&option_defaults, a, value, sizeof value)) < sizeof value);
        assert_true(info->type == OPTION_IS_FLAG || info->type == OPTION_IS_CHOICE || info->metavar);
        assert_int_equal(condition_read(a), OK);
    }
    for (int k = 0; help_examples[k].command; k++) assert_memory_equal(help_examples[k].command, "towers ", 7);
}

/* Of each text of train it is decided what becomes of it in a run that others may have written: it may name a file or a command. */
TEST(foreign_texts_are_decided)
{
    for (OptionId id = 0; id < OPTION_ID_COUNT; id++) {
        const OptionInfo *info = option_info(id);
        bool kept = info->type == OPTION_IS_TEXT && option_belongs(id, VERB_TRAIN) && !option_is_of_the_call(id);
        if (kept != (info->brought != BROUGHT_OPEN)) fail_msg("--%s: .brought", info->flag);
    }
}

/* A value that was left to the program is replaced, and its origin stays; what is withdrawn, a lower origin may set. */
TEST(values_settle)
{
    Line line;
    Options *o = &line.options;
    check_parse(
        &line, "train fashion_cnn --batch-size max --lr auto --data-path photos --val-split 0.2 --no-exif --device cpu",
        NULL);
    option_settle_int(o, OPTION_ID_batch_size, 48);
    assert_int_equal(o->batch_size, 48);
    assert_int_equal(o->origin[OPTION_ID_batch_size], ORIGIN_COMMAND_LINE);
    option_settle_flag(o, OPTION_ID_exif, true);
    option_settle_choice(o, OPTION_ID_device, DEVICE_CUDA);
    option_settle_default(o, OPTION_ID_val_split);
    assert_true(o->exif && o->device == DEVICE_CUDA && o->val_split == 0);
    assert_int_equal(o->origin[OPTION_ID_val_split], ORIGIN_COMMAND_LINE);

    assert_int_equal(options_apply_yaml(o, "lr: 0.5\n", ORIGIN_RUN, "run"), OK);
    assert_true(isnan(o->lr));
    assert_int_equal(option_withdraw(o, OPTION_ID_lr), ORIGIN_COMMAND_LINE);
    assert_true(o->lr == option_defaults.lr);
    assert_int_equal(options_apply_yaml(o, "lr: 0.5\n", ORIGIN_RUN, "run"), OK);
    assert_true(o->lr == 0.5);
    option_give(o, OPTION_ID_lr, ORIGIN_COMMAND_LINE);
    option_settle_real(o, OPTION_ID_lr, 0.25);
    assert_int_equal(options_apply_yaml(o, "lr: 0.5\n", ORIGIN_RUN, "run"), OK);
    assert_true(o->lr == 0.25);

    options_name_model(o, "resnet18");
    assert_string_equal(o->arguments[0], "resnet18");
    assert_int_equal(options_serve(o, VERB_EVAL), VERB_TRAIN);
    assert_int_equal(options_use(o), USE_EVALUATE);
    options_close(o);
}

/* Each type of field of a job gets its option's value; what no option fills stays. */
TEST(options_fill_a_job)
{
    Line line;
    TrainJob job = {.host = "here"};
    check_parse(&line,
                "train fashion_cnn --deterministic --no-graphs --accumulate 3 --seed 9 --smoothing 0.25 --lr 0.375 "
                "--freeze fc* --sched cosine --epochs 6",
                NULL);
    options_fill(&line.options, &job);
    assert_true(job.device.deterministic && !job.graphs);
    assert_int_equal(job.accumulate, 3);
    assert_int_equal(job.seed, 9);
    assert_int_equal(job.epochs, 6);
    assert_int_equal(job.schedule.kind, SCHEDULE_COSINE);
    assert_true(job.program.smoothing == 0.25F && job.schedule.lr == 0.375);
    assert_string_equal(job.program.freeze, "fc*");
    assert_string_equal(job.host, "here");
    options_close(&line.options);
}

/* Nothing of a copy is the original's, which may be changed or closed first. */
TEST(options_are_copied)
{
    Line line;
    Options copy;
    check_parse(&line, "predict run a.jpg --variant photos --top 3", NULL);
    assert_int_equal(options_copy(&line.options, &copy), OK);
    assert_ptr_not_equal(copy.variant, line.options.variant);
    assert_ptr_not_equal(copy.where[OPTION_ID_top], line.options.where[OPTION_ID_top]);
    options_name_model(&copy, "resnet18");
    assert_int_equal(option_settle_text(&copy, OPTION_ID_weights, "run"), OK);
    assert_string_equal(line.options.arguments[0], "run");
    assert_null(line.options.weights);
    options_close(&line.options);
    assert_string_equal(copy.variant, "photos");
    assert_string_equal(copy.where[OPTION_ID_top], "--top");
    assert_string_equal(copy.arguments[1], "a.jpg");
    assert_null(copy.arguments[2]);
    assert_int_equal(copy.top, 3);
    options_close(&copy);
}

/* Examples in the help must be commands that the parser takes. */
TEST(examples_parse)
{
    for (const Example *example = help_examples; example->command; example++) {
        Line line;
        char command[256];
        snprintf(command, sizeof command, "%s", example->command + strlen("towers "));
        check_parse(&line, command, NULL);
        options_close(&line.options);
    }
}

/* The command of an example is one that has the option, parses, sets the option, and gives it an effect. */
static void check_example(OptionId id)
{
    Line line;
    char command[256];
    const OptionInfo *info = option_info(id);
    const char *at = strstr(info->example, "towers ");
    if (!at) fail_msg("--%s: its example is no command: %s", info->flag, info->example);
    snprintf(command, sizeof command, "%s", at + strlen("towers "));
    for (char *p = command; (p = strchr(p, '\'')) != NULL;) memmove(p, p + 1, strlen(p));
    check_parse(&line, command, NULL);
    if (line.options.origin[id] != ORIGIN_COMMAND_LINE)
        fail_msg("--%s: its example does without it: %s", info->flag, info->example);
    if (conditions_check(&line.options) != OK) fail_msg("--%s: %s: %s", info->flag, info->example, status_message());
    options_close(&line.options);
}

/* Every option of --help has a sentence or the words of its values, and an example; every value says what it is. */
TEST(options_are_explained)
{
    for (OptionId id = 0; id < OPTION_ID_COUNT; id++) {
        const OptionInfo *info = option_info(id);
        ValueWords value;
        if (info->more && info->more[strlen(info->more) - 1] != '.')
            fail_msg("--%s: these are no whole sentences: %s", info->flag, info->more);
        if (info->example && id != OPTION_ID_config) check_example(id); /* which opens its file */
        if (info->level == LEVEL_BASIC && !info->more && !info->choices)
            fail_msg("--%s: no sentence explains it", info->flag);
        if (info->level == LEVEL_BASIC && !info->example) fail_msg("--%s has no example", info->flag);
        for (int k = 0; option_value_words(id, k, &value); k++)
            if (strlen(value.about) < 5 || value.about[strlen(value.about) - 1] == '.')
                fail_msg("--%s %s: '%s' says too little, or ends in a full stop", info->flag, value.name, value.about);
        assert_true(!info->choices || option_value_words(id, 0, &value));
    }
}

/* What help, pages and manuals say of an option does not end in the middle, and each of the three says all of it. */
TEST(words_are_whole)
{
    for (OptionId id = 0; id < OPTION_ID_COUNT; id++) {
        OptionWords words;
        option_describe(id, VERB_NONE, &words);
        const char *texts[] = {words.term, words.story, words.condition, words.facts, words.related};
        const size_t rooms[] = {sizeof words.term, sizeof words.story, sizeof words.condition, sizeof words.facts,
                                sizeof words.related};
        for (int k = 0; k < 5; k++)
            if (strlen(texts[k]) + 1 >= rooms[k]) fail_msg("--%s: no room for: %s", option_info(id)->flag, texts[k]);
    }
}

static const char *condition_of(const char *flag, Verb verb)
{
    static char text[FACTS_BYTES];
    bool negated;
    condition_say(option_find(flag, &negated), verb, text, sizeof text);
    return text;
}

TEST(conditions_in_words)
{
    assert_string_equal(condition_of("epochs", VERB_NONE), "");
    assert_string_equal(condition_of("crop-covered", VERB_NONE), "Only with --augment. Only with --crop box.");
    assert_string_equal(condition_of("join-equal", VERB_NONE), "Only with --val-split or --fold.");
    assert_string_equal(condition_of("nan-limit", VERB_NONE),
                        "Only with --nan-policy skip or rollback or --sdc-policy rollback.");
    assert_string_equal(condition_of("unfreeze-epoch", VERB_NONE), "Only with --freeze. Only for classifiers.");
    assert_string_equal(condition_of("sdc-policy", VERB_NONE), "Not with --sdc-check 0.");
    assert_string_equal(condition_of("augment", VERB_NONE), "towers data: only bench and show.");
    assert_string_equal(condition_of("augment", VERB_TRAIN), "");
    assert_string_equal(condition_of("augment", VERB_DATA), "Only bench and show.");
    assert_string_equal(condition_of("data-path", VERB_EXPORT), "Only with --int8. Not with --dataset synthetic.");
    assert_string_equal(condition_of("data-path", VERB_NONE),
                        "towers doctor: only with --hosts. towers export: only with --int8. towers generate: only with "
                        "--beside-real. Not with --dataset synthetic.");
    assert_string_equal(condition_of("beta1", VERB_NONE), ""); /* its story names the optimizers */
}

TEST(help_fits)
{
    static const int widths[] = {40, 63, 64, 80, 160};
    for (Verb verb = VERB_NONE; verb < VERB_COUNT; verb++) {
        for (size_t k = 0; k < sizeof widths / sizeof widths[0]; k++) {
            char *text = NULL;
            size_t bytes = 0;
            int lines = 0, column = 0, longest = 0;
            FILE *to = open_memstream(&text, &bytes);
            help_print(to, verb, NULL, LEVEL_BASIC, widths[k]);
            fclose(to);
            long comments = 0; /* the column in which all of them begin */
            for (char *mark = text; widths[k] == 80 && (mark = strstr(mark, "  # ")) != NULL; mark++) {
                const char *line = mark;
                while (line > text && line[-1] != '\n') line--;
                if (comments && mark - line != comments)
                    fail_msg("help of '%s': ragged comments", verb_info(verb)->name);
                comments = mark - line;
            }
            for (const char *p = text; *p; p++) {
                lines += *p == '\n';
                column = *p == '\n' ? 0 : column + 1;
                longest = column > longest ? column : longest;
            }
            free(text);
            if (widths[k] == 80 && lines > 45) fail_msg("help of '%s' has %d lines", verb_info(verb)->name, lines);
            if (widths[k] >= 80 && longest > widths[k])
                fail_msg("help of '%s' is %d columns wide in %d", verb_info(verb)->name, longest, widths[k]);
        }
    }
}
