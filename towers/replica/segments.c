/* The list of recorded stretches; see segments.h. */
#include "towers/replica/segments.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Segment {
    SegmentKey key;
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
    if (!s) return FAIL(ERR_MEMORY, "no memory for the list of captured graphs");
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

static bool is_same(const SegmentKey *a, const SegmentKey *b)
{
    return a->of == b->of && a->kind == b->kind && a->slot == b->slot && a->first == b->first && a->end == b->end &&
           memcmp(a->towers, b->towers, sizeof a->towers) == 0;
}

static Status segment_find(Segments *s, const SegmentKey *key, Segment **found)
{
    for (int i = 0; i < s->count; i++) {
        *found = &s->list[i];
        if (is_same(&s->list[i].key, key)) return OK;
    }
    if (s->count == s->room) {
        int room = s->room ? 2 * s->room : 32;
        Segment *list = realloc(s->list, (size_t)room * sizeof *list);
        if (!list) return FAIL(ERR_MEMORY, "no memory for a list of %d captured graphs", room);
        s->list = list;
        s->room = room;
    }
    *found = &s->list[s->count++];
    **found = (Segment){.key = *key};
    return OK;
}

static void complain(Segments *s, const Segment *segment)
{
    if (s->complaint[0]) return;
    if (segment->key.end > segment->key.first)
        snprintf(s->complaint, sizeof s->complaint, "operations %d to %d run one by one, not as a graph: %s",
                 segment->key.first, segment->key.end - 1, status_message());
    else
        snprintf(s->complaint, sizeof s->complaint, "the update runs kernel by kernel, not as a graph: %s",
                 status_message());
}

/* Nothing of the stretch has run after this, whatever came of it. */
static void segment_record(Segments *s, Segment *segment, Stretch stretch, void *context)
{
    const Backend *backend = s->device->backend;
    void *recorded = NULL;
    segment->refused = true;
    if (backend->segment_begin(s->device) != OK) {
        complain(s, segment);
        return;
    }
    Status launched = stretch(context);
    if (launched != OK) complain(s, segment);
    Status ended = backend->segment_end(s->device, &recorded); /* also where a launch failed: it frees the stream */
    if (ended != OK) complain(s, segment);
    segment->refused = launched != OK || ended != OK;
    if (!segment->refused)
        segment->recorded = recorded;
    else if (recorded)
        backend->segment_free(s->device, recorded);
}

Status segments_run(Segments *s, const SegmentKey *key, Stretch stretch, void *context)
{
    Segment *segment = NULL;
    if (!s->record) return stretch(context);
    TRY(segment_find(s, key, &segment));
    if (!segment->refused && !segment->recorded && segment->runs++ >= SEGMENT_WARM)
        segment_record(s, segment, stretch, context);
    if (segment->recorded) return s->device->backend->segment_run(s->device, segment->recorded);
    return stretch(context);
}

const char *segments_complaint(const Segments *s)
{
    return s->complaint[0] ? s->complaint : NULL;
}
