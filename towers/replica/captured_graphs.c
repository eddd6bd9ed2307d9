/* The list of captured graphs; see captured_graphs.h. */
#include "towers/replica/captured_graphs.h"
#include "kernels/base/array.h"

typedef struct CapturedGraph {
    CaptureKey key;
    int runs;
    bool refused;
    void *captured; /* owned by the device's backend; NULL: not yet */
} CapturedGraph;

struct CapturedGraphs {
    Device *device; /* borrowed */
    bool capture;
    CapturedGraph *list; /* owned */
    int count;
    char complaint[512];
};

Status captured_graphs_create(Device *device, bool capture, CapturedGraphs **made)
{
    CapturedGraphs *s = calloc(1, sizeof *s);
    if (!s) return FAIL(ERR_MEMORY, "no memory for the list of captured graphs");
    s->device = device;
    s->capture = capture && device->backend->capture_begin;
    *made = s;
    return OK;
}

void captured_graphs_destroy(CapturedGraphs *s)
{
    if (!s) return;
    for (int i = 0; i < s->count; i++)
        if (s->list[i].captured) s->device->backend->graph_free(s->device, s->list[i].captured);
    free(s->list);
    free(s);
}

static bool is_same(const CaptureKey *a, const CaptureKey *b)
{
    return a->of == b->of && a->kind == b->kind && a->index == b->index && a->first == b->first && a->end == b->end &&
           a->count == b->count && a->phase == b->phase;
}

static Status graph_find(CapturedGraphs *s, const CaptureKey *key, CapturedGraph **found)
{
    for (int i = 0; i < s->count; i++) {
        *found = &s->list[i];
        if (is_same(&s->list[i].key, key)) return OK;
    }
    TRY(array_grow(&s->list, s->count, sizeof *s->list, "the list of captured graphs"));
    *found = &s->list[s->count++];
    **found = (CapturedGraph){.key = *key};
    return OK;
}

static void complain(CapturedGraphs *s, const CapturedGraph *graph)
{
    if (s->complaint[0]) return;
    if (graph->key.end > graph->key.first)
        snprintf(s->complaint, sizeof s->complaint,
                 "operations %d to %d are launched one by one, not as a CUDA graph: %s", graph->key.first,
                 graph->key.end - 1, status_message());
    else
        snprintf(s->complaint, sizeof s->complaint, "the update is launched kernel by kernel, not as a CUDA graph: %s",
                 status_message());
}

/* After this none of the launches has been executed, whether the capture succeeded or not. */
static void graph_capture(CapturedGraphs *s, CapturedGraph *graph, Launches launches, void *context)
{
    const Backend *backend = s->device->backend;
    void *captured = NULL;
    graph->refused = true;
    if (backend->capture_begin(s->device) != OK) {
        complain(s, graph);
        return;
    }
    Status launched = launches(context);
    if (launched != OK) complain(s, graph);
    Status ended = backend->capture_end(s->device, &captured); /* also after a failed launch, to release the stream */
    if (ended != OK) complain(s, graph);
    graph->refused = launched != OK || ended != OK;
    if (!graph->refused)
        graph->captured = captured;
    else if (captured)
        backend->graph_free(s->device, captured);
}

Status captured_graphs_run(CapturedGraphs *s, const CaptureKey *key, Launches launches, void *context)
{
    CapturedGraph *graph = NULL;
    if (!s || !s->capture) return launches(context);
    TRY(graph_find(s, key, &graph));
    if (!graph->refused && !graph->captured && graph->runs++ >= CAPTURE_WARM)
        graph_capture(s, graph, launches, context);
    if (graph->captured) return s->device->backend->graph_launch(s->device, graph->captured);
    return launches(context);
}

const char *captured_graphs_refusal(const CapturedGraphs *s)
{
    return s->complaint[0] ? s->complaint : NULL;
}
