/* Plans of cuDNN; see cudnn_plan.h. */
#include "kernels/cuda/libraries/cudnn_plan.h"
#include "kernels/base/progress.h"
#include "kernels/base/text.h"
#include "kernels/cuda/libraries/cudnn_descriptor.h"

struct CudnnPlan {
    CudnnLibrary *library; /* borrowed */
    Descriptor plan, pack; /* owned; pack: the pointers of the last run */
    int64_t workspace_bytes;
    void *memory[CUDNN_OPERANDS + 1]; /* what pack holds: the operands, the workspace */
    char text[CUDNN_PLAN_BYTES];
};

/* ---- plans */

/* May an engine carry a note? `name`: numerical or behavior notes. If cuDNN does not list all of them, it may. */
static bool engine_notes(Descriptor engine, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                         int note)
{
    enum { NOTES = 32 };
    int32_t notes[NOTES];
    int64_t count = 0;
    if (cudnnBackendGetAttribute(engine, name, type, NOTES, &count, notes) != CUDNN_STATUS_SUCCESS) return true;
    for (int64_t i = 0; i < count && i < NOTES; i++)
        if (notes[i] == note) return true;
    return count > NOTES;
}

static bool engine_keeps(Descriptor engine, const CudnnRules *rules)
{
    const cudnnBackendAttributeName_t numerical = CUDNN_ATTR_ENGINE_NUMERICAL_NOTE;
    const cudnnBackendAttributeType_t type = CUDNN_TYPE_NUMERICAL_NOTE;
    if (engine_notes(engine, numerical, type, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)) return false;
    if (!rules->tensor_cores && engine_notes(engine, numerical, type, CUDNN_NUMERICAL_NOTE_TENSOR_CORE)) return false;
    if (engine_notes(engine, numerical, type, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS)) return false;
    if (engine_notes(engine, numerical, type, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)) return false;
    return !rules->no_runtime_compile ||
           !engine_notes(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                         CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION);
}

/* The engine of a configuration; the caller destroys it. */
static Status config_engine(Descriptor config, Descriptor *engine)
{
    int64_t count = 0;
    TRY(descriptor_create(CUDNN_BACKEND_ENGINE_DESCRIPTOR, engine));
    TRY_CUDNN(cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                                       engine));
    return OK;
}

enum { KNOBS = 48 }; /* cuDNN 9.19 has 44 kinds */

/* False if cuDNN does not list all of them, or there is no room for them, or no memory. */
static bool text_add_knobs(Descriptor config, char *buffer, size_t bytes)
{
    Descriptor choice[KNOBS] = {0};
    int64_t count = 0, got = 0;
    Text text = text_behind(buffer, bytes);
    bool all = true;
    for (int i = 0; all && i < KNOBS; i++)
        all = cudnnBackendCreateDescriptor(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &choice[i]) == CUDNN_STATUS_SUCCESS;
    all = all && cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                          KNOBS, &count, choice) == CUDNN_STATUS_SUCCESS;
    for (int64_t i = 0; all && i < count && i < KNOBS; i++) {
        cudnnBackendKnobType_t type;
        int64_t value;
        all = cudnnBackendGetAttribute(choice[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &got,
                                       &type) == CUDNN_STATUS_SUCCESS &&
              cudnnBackendGetAttribute(choice[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &got,
                                       &value) == CUDNN_STATUS_SUCCESS;
        if (all) text_add(&text, " %d=%" PRId64, (int)type, value);
    }
    for (int i = 0; i < KNOBS; i++) descriptor_destroy(&choice[i]);
    return all && !text.truncated && count <= KNOBS;
}

/* A plan of one configuration, or OK and NULL where it breaks a rule or the library has no kernel for it on this device (any
 * CUDNN_STATUS_NOT_SUPPORTED_...): that is an answer, not a failure. */
static Status plan_create(CudnnLibrary *library, Descriptor config, const CudnnRules *rules, CudnnPlan **made)
{
    Status st = OK;
    Descriptor engine = NULL, plan = NULL;
    CudnnPlan *p = NULL;
    int64_t number = -1, count = 0, workspace = 0;
    *made = NULL;
    TRY_OUT(config_engine(config, &engine));
    if (!engine_keeps(engine, rules)) goto out;
    TRY_OUT(descriptor_create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan));
    TRY_OUT(set_descriptor(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config));
    if (library->handle)
        TRY_OUT(set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &library->handle));
    else
        TRY_OUT(set_descriptor(plan, OF_DEVICE(EXECUTION_PLAN), library->device));
    cudnnStatus_t made_it = cudnnBackendFinalize(plan);
    if (CUDNN_STATUS_CATEGORY(made_it) == CUDNN_STATUS_NOT_SUPPORTED) goto out;
    if (made_it != CUDNN_STATUS_SUCCESS)
        TRY_OUT(cudnn_failed(made_it, __FILE__, __LINE__, "cudnnBackendFinalize of a plan"));
    TRY_CUDNN_OUT(cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
                                           &workspace));
    if (rules->workspace_max && (size_t)workspace > rules->workspace_max) goto out;
    TRY_CUDNN_OUT(
        cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count, &number));
    p = calloc(1, sizeof *p);
    if (!p) TRY_OUT(FAIL(ERR_MEMORY, "no memory for the cuDNN plan"));
    p->library = library;
    p->workspace_bytes = workspace;
    snprintf(p->text, sizeof p->text, "engine %" PRId64 " knobs", number);
    if (!text_add_knobs(config, p->text, sizeof p->text)) goto out; /* no other process could make it */
    p->plan = plan;
    plan = NULL;
    *made = p;
    p = NULL;
out:
    free(p);
    descriptor_destroy(&plan);
    descriptor_destroy(&engine);
    return st;
}

void cudnn_plan_destroy(CudnnPlan *plan)
{
    if (!plan) return;
    descriptor_destroy(&plan->pack);
    descriptor_destroy(&plan->plan);
    free(plan);
}

/* The configurations that one mode of the heuristics offers; the caller destroys them. */
static Status configs_ask(CudnnLibrary *library, Descriptor graph, cudnnBackendHeurMode_t mode, Descriptor *configs,
                          int room, int *found)
{
    Status st = OK;
    Descriptor question = NULL;
    int64_t got = 0;
    TRY_OUT(descriptor_create(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &question));
    TRY_OUT(set_descriptor(question, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph));
    TRY_OUT(set(question, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode));
    if (library->device) TRY_OUT(set_descriptor(question, OF_DEVICE(ENGINEHEUR), library->device));
    cudnnStatus_t answer = cudnnBackendFinalize(question);
    if (answer == CUDNN_STATUS_SUCCESS)
        answer = cudnnBackendGetAttribute(question, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0,
                                          &got, NULL);
    room = answer != CUDNN_STATUS_SUCCESS ? 0 : got < room ? (int)got : room;
    got = 0;
    for (int i = 0; i < room; i++) TRY_OUT(descriptor_create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[i]));
    if (room)
        answer = cudnnBackendGetAttribute(question, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, room,
                                          &got, configs);
    if (answer == CUDNN_STATUS_SUCCESS) goto out;
    got = 0; /* nothing to offer */
    if (cudnn_failed(answer, __FILE__, __LINE__, "the heuristics") == ERR_MEMORY) st = ERR_MEMORY;
out:
    *found = (int)got;
    descriptor_destroy(&question);
    return st;
}

static Status plans_of_mode(CudnnLibrary *library, Descriptor graph, cudnnBackendHeurMode_t mode, int offers,
                            const CudnnRules *rules, int wanted, CudnnPlan **plans, int *found)
{
    Status st = OK;
    Descriptor configs[CUDNN_PLANS] = {0};
    int offered = 0;
    TRY_OUT(configs_ask(library, graph, mode, configs, offers, &offered));
    for (int i = 0; i < offered && *found < wanted; i++) {
        Status made = plan_create(library, configs[i], rules, &plans[*found]);
        progress_made("a plan of cuDNN");
        if (made == ERR_MEMORY) TRY_OUT(made); /* of no meaning for the plan: another process may have it */
        if (made != OK) plan_refused(library->refused);
        if (plans[*found]) (*found)++;
    }
out:
    for (int i = 0; i < CUDNN_PLANS; i++) descriptor_destroy(&configs[i]);
    return st;
}

Status cudnn_plans(CudnnGraph *g, const CudnnRules *rules, int wanted, CudnnPlan **plans, int *found)
{
    const struct {
        cudnnBackendHeurMode_t mode;
        int offers;
    } asked[] = {
        {CUDNN_HEUR_MODE_A, wanted == 1 ? 4 : CUDNN_PLANS}, /* offers cost time, and the first is mostly good */
        {CUDNN_HEUR_MODE_A, CUDNN_PLANS},
        {CUDNN_HEUR_MODE_FALLBACK, CUDNN_PLANS},
    };
    CudnnLibrary *library;
    Descriptor graph;
    *found = 0;
    Status st = cudnn_graph_finish(g, &library, &graph);
    for (int i = 0; st == OK && *found == 0 && i < 3; i++)
        st = plans_of_mode(library, graph, asked[i].mode, asked[i].offers, rules, wanted, plans, found);
    if (st == OK && *found == 0)
        st = FAIL(ERR_UNSUPPORTED,
                  "cuDNN has no plan that meets the requirements (memory, the same bits every time, number format)");
    if (st == OK) return OK;
    if (st != ERR_UNSUPPORTED) plan_refused(library->refused);
    while (*found > 0) cudnn_plan_destroy(plans[--*found]);
    return st;
}

/* ---- a plan by name */

static Status knobs_read(const char *text, Descriptor *choice, int *count)
{
    int type, used;
    int64_t setting;
    *count = 0;
    while (*count < KNOBS && sscanf(text, " %d=%" SCNd64 "%n", &type, &setting, &used) == 2) {
        cudnnBackendKnobType_t knob = (cudnnBackendKnobType_t)type;
        TRY(descriptor_create(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &choice[*count]));
        Descriptor d = choice[(*count)++];
        TRY(set(d, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &knob));
        TRY(set(d, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &setting));
        TRY(finalize(d));
        text += used;
    }
    return OK;
}

Status cudnn_plan_named(CudnnGraph *g, const CudnnRules *rules, const char *text, CudnnPlan **made)
{
    Status st = OK;
    CudnnLibrary *library;
    Descriptor graph, engine = NULL, config = NULL, choice[KNOBS] = {0};
    int64_t index;
    int used = 0, knobs = 0;
    *made = NULL;
    if (sscanf(text, "engine %" SCNd64 " knobs%n", &index, &used) != 1 || !used)
        return FAIL(ERR_FORMAT, "'%s' is not the name of a cuDNN plan", text);
    TRY(cudnn_graph_finish(g, &library, &graph));
    TRY_OUT(descriptor_create(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine));
    TRY_OUT(set_descriptor(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph));
    TRY_OUT(set(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &index));
    if (library->device) TRY_OUT(set_descriptor(engine, OF_DEVICE(ENGINE), library->device));
    TRY_OUT(finalize(engine));
    TRY_OUT(knobs_read(text + used, choice, &knobs));
    TRY_OUT(descriptor_create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &config));
    TRY_OUT(set_descriptor(config, CUDNN_ATTR_ENGINECFG_ENGINE, engine));
    if (knobs) TRY_OUT(set(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, knobs, choice));
    TRY_OUT(finalize(config));
    TRY_OUT(plan_create(library, config, rules, made));
    if (*made && strcmp((*made)->text, text) != 0) { /* a name that was cut off, or has another one's line behind it */
        cudnn_plan_destroy(*made);
        *made = NULL;
    }
    if (!*made)
        st = FAIL(ERR_UNSUPPORTED, "the plan '%s' is rejected by cuDNN or does not meet the requirements", text);
out:
    for (int i = 0; i < KNOBS; i++) descriptor_destroy(&choice[i]);
    descriptor_destroy(&config);
    descriptor_destroy(&engine);
    return st;
}

size_t cudnn_plan_workspace(const CudnnPlan *plan)
{
    return (size_t)plan->workspace_bytes;
}

const char *cudnn_plan_text(const CudnnPlan *plan)
{
    return plan->text;
}

/* ---- running */

static Status pack_create(CudnnPlan *p, void *const *memory)
{
    static const int64_t ids[CUDNN_OPERANDS] = {1, 2, 3, 4};
    int64_t operands = memory[CUDNN_OPERANDS - 1] ? CUDNN_OPERANDS : CUDNN_OPERANDS - 1;
    Status st = OK;
    Descriptor pack = NULL;
    TRY_OUT(descriptor_create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack));
    TRY_OUT(set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, operands, ids));
    TRY_OUT(set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, operands, memory));
    TRY_OUT(set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &memory[CUDNN_OPERANDS]));
    TRY_OUT(finalize(pack));
    descriptor_destroy(&p->pack);
    p->pack = pack;
    pack = NULL;
    memcpy(p->memory, memory, sizeof p->memory);
out:
    descriptor_destroy(&pack);
    return st;
}

/* The pack is made anew only when the memory has changed: in a training run, once. */
Status cudnn_plan_run(CudnnPlan *p, void *x, void *w, void *y, void *bias, void *workspace)
{
    void *const memory[CUDNN_OPERANDS + 1] = {x, w, y, bias, workspace};
    bool same = p->pack && memcmp(p->memory, memory, sizeof memory) == 0;
    if (!same) TRY(pack_create(p, memory));
    TRY_CUDNN(cudnnBackendExecute(p->library->handle, p->plan, p->pack));
    return OK;
}
