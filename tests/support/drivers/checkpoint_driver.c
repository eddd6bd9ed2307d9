/* The program that check_checkpoint_faults.sh interrupts: one checkpoint call per process, over the sample checkpoint.
 *
 *   checkpoint_driver save RUN STEP BALLAST KEEP     save the sample of STEP with BALLAST extra bytes
 *   checkpoint_driver load RUN                       open the newest; "step N" or "none"; exit 99 if it is not whole
 *   checkpoint_driver open DIRECTORY                 open one
 *   checkpoint_driver take RUN                       take and release the run directory (sweeps)
 *   checkpoint_driver older DIRECTORY RUN KEY...     save the checkpoint of DIRECTORY to RUN without these settings, as a
 *                                                    program wrote it that did not have them; KEY=OTHER: with another in
 *                                                    its place
 * Exits as `towers` does. */

#include "tests/support/sample_checkpoint.h"
#include "towers/files/json.h"
#include "towers/store/run_dir.h"

enum { NOT_WHOLE = 99 };

static int failed(Status st)
{
    status_print(stderr, st, 0);
    return status_exit_code(st);
}

static int save(const char *run, char **argv)
{
    Sample sample;
    sample_make(&sample, atoll(argv[0]), (size_t)atoll(argv[1]));
    Status st = checkpoint_save(run, &sample.content, atoi(argv[2]), NULL, 0);
    sample_free(&sample);
    return st == OK ? 0 : failed(st);
}

/* Take the setting KEY away, of "KEY=OTHER" to give OTHER its value. */
static int setting_cut(json_t *settings, const char *key)
{
    char name[128];
    int length = (int)strcspn(key, "=");
    snprintf(name, sizeof name, "%.*s", length, key);
    json_t *value = json_object_get(settings, name);
    if (!value) fprintf(stderr, "%s is not among the settings\n", name);
    if (!value) return 1;
    if (key[length]) json_object_set(settings, key + length + 1, value);
    return json_object_del(settings, name) == 0 ? 0 : 1;
}

/* The settings as earlier versions wrote them: one text of lines "KEY: value". */
static json_t *settings_lines(json_t *settings)
{
    char *text = NULL;
    size_t bytes;
    const char *key;
    json_t *value;
    FILE *to = open_memstream(&text, &bytes);
    json_object_foreach(settings, key, value) fprintf(to, "%s: %s\n", key, json_string_value(value));
    fclose(to);
    json_t *lines = json_string(text);
    free(text);
    return lines;
}

/* The text of state.json, which the caller frees. */
static char *state_older(const char *now, char **keys, int count, int *wrong)
{
    json_t *state = json_loads(now, 0, NULL), *settings = json_object_get(state, "settings");
    if (!json_is_object(settings)) abort();
    for (int i = 0; i < count; i++) *wrong |= setting_cut(settings, keys[i]);
    json_object_set_new(state, "settings", settings_lines(settings));
    char *text = json_dumps(state, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    json_decref(state);
    return text;
}

static int tensors_of(const SafeTensors *file, StTensor **tensors)
{
    int count = safetensors_count(file);
    *tensors = calloc((size_t)count + 1, sizeof **tensors);
    if (!*tensors) abort();
    for (int i = 0; i < count; i++) (*tensors)[i] = *safetensors_at(file, i);
    return count;
}

static int older(const char *directory, const char *run, char **keys, int count)
{
    Checkpoint *checkpoint;
    StTensor *model, *train;
    int wrong = 0;
    Status st = checkpoint_open(directory, &checkpoint);
    if (st != OK) return failed(st);
    char *state = state_older(checkpoint->state_json, keys, count, &wrong);
    StPair pairs[] = {{"format", "pt"}, {"model", safetensors_metadata(checkpoint->model, "model")}};
    CheckpointContent content = {.step = checkpoint->step, .state_json = state, .metadata = pairs};
    content.metadata_count = pairs[1].value ? 2 : 1;
    content.model_count = tensors_of(checkpoint->model, &model);
    content.train_count = tensors_of(checkpoint->train, &train);
    content.model = model;
    content.train = train;
    st = checkpoint_save(run, &content, 1, NULL, 0);
    free(state);
    free(model);
    free(train);
    checkpoint_close(checkpoint);
    return st == OK ? wrong : failed(st);
}

static int show(Checkpoint *checkpoint, const char *note)
{
    int whole = !checkpoint || sample_matches(checkpoint);
    if (note[0]) fprintf(stderr, "note: %s\n", note);
    if (!checkpoint)
        puts("none");
    else
        printf("%s %" PRId64 "\n", whole ? "step" : "NOT WHOLE: step", checkpoint->step);
    checkpoint_close(checkpoint);
    return whole ? 0 : NOT_WHOLE;
}

int main(int argc, char **argv)
{
    Checkpoint *checkpoint = NULL;
    char note[4096] = "";
    int lock;
    Status st = OK;
    if (argc == 6 && strcmp(argv[1], "save") == 0) return save(argv[2], argv + 3);
    if (argc > 4 && strcmp(argv[1], "older") == 0) return older(argv[2], argv[3], argv + 4, argc - 4);
    if (argc != 3) {
        fprintf(stderr, "usage: checkpoint_driver save RUN STEP BALLAST KEEP | load RUN | open DIRECTORY | take RUN |\n"
                        "       older DIRECTORY RUN KEY...\n");
        return 2;
    }
    if (strcmp(argv[1], "take") == 0) {
        st = run_dir_take(argv[2], &lock);
        if (st == OK) run_dir_release(lock);
        return st == OK ? 0 : failed(st);
    }
    if (strcmp(argv[1], "load") == 0)
        st = checkpoint_open_latest(argv[2], true, &checkpoint, note, sizeof note);
    else
        st = checkpoint_open(argv[2], &checkpoint);
    return st == OK ? show(checkpoint, note) : failed(st);
}
