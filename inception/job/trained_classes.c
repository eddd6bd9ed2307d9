/* What a file of weights says about its classes, compared with those of data; see trained_classes.h. */
#include "inception/job/trained_classes.h"

#include "inception/job/facts.h"
#include "inception/job/notes.h"
#include "inception/models/published.h"
#include "towers/data/sources/labels.h"

typedef struct Trained {
    json_t *names;      /* owned: of the classes, or of ImageNet's the ids that the data have; NULL: not known */
    const char **texts; /* owned: [count]; NULL: not known */
    char whose[PATH_BYTES + 32];
    ClassList list;
} Trained;

static json_t *names_of(const json_t *facts)
{
    json_t *names = json_object_get(facts, "class_names");
    for (size_t i = 0; i < json_array_size(names); i++)
        if (!json_string_length(json_array_get(names, i))) return NULL;
    return json_incref(names);
}

json_t *trained_names(const Options *options, const char *weights)
{
    json_t *facts;
    if (facts_read(options, weights, &facts) != OK) return NULL; /* opening the weights reports it */
    json_t *names = names_of(facts);
    json_decref(facts);
    return names;
}

int64_t trained_count(const Options *options, const char *weights)
{
    json_t *facts;
    if (facts_read(options, weights, &facts) != OK) return 0; /* opening the weights reports it */
    const char *classes = json_word(facts, "classes");
    int64_t count =
        classes ? strtoll(classes, NULL, 10) : (int64_t)json_array_size(json_object_get(facts, "class_names"));
    json_decref(facts);
    return count;
}

static void trained_close(Trained *t)
{
    json_decref(t->names);
    free(t->texts);
}

/* Folders of ImageNet have the names of ids in WordNet: "n01440764". */
static bool has_synsets(const SourceInfo *data)
{
    const char *last = data->class_names[data->classes - 1];
    return last[0] == 'n' && strspn(last + 1, "0123456789") == 8 && !last[9];
}

/* `given`: how the user names the weights. `outputs`: classes of the network, if its file names none. */
static Status trained_open(const Options *o, const char *weights, const char *given, const SourceInfo *data,
                           int outputs, Trained *t)
{
    json_t *facts;
    TRY(facts_read(o, weights, &facts));
    const char *base = json_word(facts, "label_base"), *background = json_word(facts, "background");
    t->names = names_of(facts);
    json_t *synsets = t->names && has_synsets(data) ? published_synsets(t->names) : NULL;
    if (synsets) {
        json_decref(t->names);
        t->names = synsets;
    }
    int count = t->names ? (int)json_array_size(t->names) : outputs;
    snprintf(t->whose, sizeof t->whose, "the network of %s", given);
    t->list = (ClassList){.whose = t->whose, .count = count, .origin = base ? FIRST_KNOWN : FIRST_UNKNOWN};
    t->list.first = (base && !strcmp(base, "1")) - (background && !strcmp(background, "true"));
    json_decref(facts);
    if (!t->names) return OK;
    t->list.names = t->texts = json_texts(t->names);
    return t->texts ? OK : FAIL(ERR_MEMORY, "no memory for the names of %d classes", count);
}

/* Where labels begin is what the user says for this data, whatever the weights say. */
static void first_take(const Options *o, const SourceInfo *data, ClassList *list)
{
    if (option_origin(o, "label-base") <= ORIGIN_RECIPE) return;
    list->first = data->first_label - data->background;
    list->origin = FIRST_KNOWN;
}

Status trained_match(const Options *o, const char *weights, JobFiles *files, Source **data)
{
    Status st = OK;
    Trained t = {0};
    char text[512] = "", note[512] = "", why[STATUS_MESSAGE_BYTES];
    Text remark = text_start(text, sizeof text);
    const SourceInfo *info = source_info(*data);
    if (info->labels_note) snprintf(note, sizeof note, "%s", info->labels_note);
    TRY_OUT(trained_open(o, weights, o->weights, info, o->classes > 0 ? (int)o->classes : info->classes, &t));
    first_take(o, info, &t.list);
    st = source_match(data, &t.list, o->match_classes, &remark);
    if (st == ERR_FORMAT && *note) { /* the classes may be what a wrong separator has made of them */
        snprintf(why, sizeof why, "%s", status_message());
        TRY_OUT(FAIL(st, "%s (%s)", why, note));
    }
    TRY_OUT(st);
    if (*text) job_note(files, "warning: %s", text);
out:
    trained_close(&t);
    return st;
}

/* "class 3 is 'cat' there, but 'dog' in flowers" */
static Status order_refuse(const Options *o, const SourceInfo *data, const ClassList *list, const int32_t *map)
{
    int at = 0;
    while (map[at] == at) at++;
    return FAIL(ERR_ARG,
                "--pretrained %s: its classifier knows the classes of %s in another order: class %d is '%s' there, but "
                "'%s' here; --reset-head trains a new one, and --match-classes number this one as it is",
                o->pretrained, data->name, at, list->names[at], data->class_names[at]);
}

static Status head_compare(const Options *o, const SourceInfo *data, const Trained *t, JobFiles *files, int32_t *map)
{
    char why[STATUS_MESSAGE_BYTES];
    bool same = true;
    const ClassList of = {.whose = data->name,
                          .names = data->class_names,
                          .count = data->classes,
                          .first = data->first_label - data->background,
                          .origin = data->first_origin};
    Status st = class_match(&of, &t->list, o->match_classes, map, NULL);
    for (int i = 0; st == OK && i < data->classes; i++) same = same && map[i] == i;
    if (st == OK) return same || !t->names ? OK : order_refuse(o, data, &t->list, map);
    if (st == ERR_MEMORY) return st;
    snprintf(why, sizeof why, "%s", status_message());
    if (t->names && *data->class_names[0])
        return FAIL(ERR_ARG,
                    "--pretrained %s: its classifier is of other classes: %s; --reset-head trains a new one, and "
                    "--match-classes number this one as it is",
                    o->pretrained, why);
    job_note(files,
             "warning: the classifier of %s goes on as it is, class by class in its order, because no names say which "
             "classes it knows; --reset-head trains a new one",
             o->pretrained);
    return OK;
}

Status trained_head_check(const Options *o, const char *weights, JobFiles *files)
{
    Status st = OK;
    Trained t = {0};
    const SourceInfo *data = source_info(files->job.train);
    int outputs = files->job.program.options.classes;
    bool learns = files->job.program.model->classes > 0 && o->dataset != DATASET_SYNTHETIC && !files->job.reset_head;
    if (!learns || access(weights, R_OK) != 0) return OK; /* reading it says more */
    int32_t *map = calloc((size_t)data->classes + 1, sizeof *map);
    if (!map) return FAIL(ERR_MEMORY, "no memory for the list of %d classes", data->classes);
    TRY_OUT(trained_open(o, weights, o->pretrained, data, outputs, &t));
    if (t.list.count == outputs)
        TRY_OUT(head_compare(o, data, &t, files, map)); /* else it does not fit (pretrained.h) */
out:
    trained_close(&t);
    free(map);
    return st;
}
