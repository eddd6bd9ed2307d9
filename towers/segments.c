/* The list of recorded stretches; see segments.h. */
#include "towers/segments.h"

#include <stdlib.h>
#include <string.h>

typedef struct Segment {
    const Plan *plan; /* borrowed */
    int slot, first, end;
    int runs;
    bool refused;
    void *recorded; /* owned by the device's backend; NULL: not yet */
} Segment;

struct Segments {
    Device *device; /* borrowed */
    bool record;
    Segment *list; /* owned */
    int count, room;
    char complaint[512];
};

Status segments_create(Device *device, bool record, Segments **made)
{
    Segments *s = calloc(1, sizeof *s);
    if (!s) return FAIL(ERR_MEMORY, "list of recorded stretches");
    s->device = device;
    s->record = record && device->backend->segment_begin;
    *made = s;
    return OK;
}

void segments_destroy(Segments *s)
{
    if (!s) return;
    for (int i = 0; i < s->count; i++)
        if (s->list[i].recorded) s->device->backend->segment_free(s->device, s->list[i].recorded);
    free(s->list);
    free(s);
}

static Status segment_find(Segments *s, const Plan *plan, int slot, int first, int end, Segment **found)
{
    for (int i = 0; i < s->count; i++) {
        Segment *at = &s->list[i];
        *found = at;
        if (at->plan == plan && at->slot == slot && at->first == first && at->end == end) return OK;
    }
    if (s->count == s->room) {
        int room = s->room ? 2 * s->room : 32;
        Segment *list = realloc(s->list, (size_t)room * sizeof *list);
        if (!list) return FAIL(ERR_MEMORY, "list of %d recorded stretches", room);
        s->list = list;
        s->room = room;
    }
    *found = &s->list[s->count++];
    **found = (Segment){.plan = plan, .slot = slot, .first = first, .end = end};
    return OK;
}

static void complain(Segments *s, const Segment *segment)
{
    if (s->complaint[0]) return;
    snprintf(s->complaint, sizeof s->complaint, "operations %d to %d run one by one, not as a graph: %s",
             segment->first, segment->end - 1, status_message());
}

/* Nothing of the stretch has run after this, whatever came of it. */
static void segment_record(Segments *s, Plan *plan, Segment *segment)
{
    const Backend *backend = s->device->backend;
    void *recorded = NULL;
    segment->refused = true;
    if (backend->segment_begin(s->device) != OK) {
        complain(s, segment);
        return;
    }
    Status launched = plan_run(plan, segment->first, segment->end);
    if (launched != OK) complain(s, segment);
    Status ended = backend->segment_end(s->device, &recorded); /* also where a launch failed: it frees the stream */
    if (ended != OK) complain(s, segment);
    segment->refused = launched != OK || ended != OK;
    if (!segment->refused)
        segment->recorded = recorded;
    else if (recorded)
        backend->segment_free(s->device, recorded);
}

Status segments_run(Segments *s, Plan *plan, int slot, int first, int end)
{
    Segment *segment = NULL;
    if (!s->record || first >= end) return plan_run(plan, first, end);
    TRY(segment_find(s, plan, slot, first, end, &segment));
    if (!segment->refused && !segment->recorded && segment->runs++ >= SEGMENT_WARM) segment_record(s, plan, segment);
    if (segment->recorded) return s->device->backend->segment_run(s->device, segment->recorded);
    return plan_run(plan, first, end);
}

const char *segments_complaint(const Segments *s)
{
    return s->complaint[0] ? s->complaint : NULL;
}
