#include "filters.h"

#include <stdlib.h>

static int64_t depth_of(const Conv *conv) { return conv->in * conv->window; }

static void pack_filters(const Filters *filters, float *to, int64_t group) {
    const Conv *conv = filters->conv;
    const int64_t k = depth_of(conv);
    to += group * filters->group;
    for (int64_t i = 0; i < conv->out; i += filters->rows, to += TILE_ROWS * k)
        ISA(pack_panels)(
            to, conv->w + (group * conv->out + i) * k, k, 1, lesser(conv->out - i, filters->rows),
            k, TILE_ROWS);
}

bool ISA(prepare_filters)(Filters *filters, const Conv *conv, int64_t rows) {
    *filters = (Filters){.conv = conv, .rows = rows};
    filters->group = ceil_div(conv->out, rows) * TILE_ROWS * depth_of(conv);
    if (!conv->constant) return true;
    const int64_t floats = padded(filters->group * conv->groups, 16);
    filters->packed = aligned_alloc(64, (size_t)floats * sizeof(float));
    for (int64_t group = 0; filters->packed && group < conv->groups; group++)
        pack_filters(filters, filters->packed, group);
    return filters->packed != NULL;
}

void ISA(free_filters)(Filters *filters) { free(filters->packed); }

typedef struct {
    const Filters *filters;
    float *to;
} Job;

static void pack_group(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    pack_filters(job->filters, job->to, chunk);
}

const float *ISA(packed_filters)(const Filters *filters, const Run *run, float *memory) {
    if (filters->packed) return filters->packed;
    Job job = {filters, memory};
    share_chunks(run, filters->conv->groups, pack_group, &job);
    return memory;
}
