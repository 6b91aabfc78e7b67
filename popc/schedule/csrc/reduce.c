// Links that follow from others: sets of targets are bits, and many of them are looked at together.
#include <stdlib.h>
#include <string.h>

#include "merge.h"

enum { WORDS = 8, BITS = 64 * WORDS };

typedef struct { uint64_t words[WORDS]; } Set;

typedef struct {
    int64_t nodes;
    const int64_t *order;
    const int64_t *starts;  // of each node, its links in `items`
    int64_t *items;  // targets, those of a node by their places
    int64_t *ends;  // of each node, where its links end
    int64_t *place, *depth, *bit;  // of each node; `bit` is -1 for what is not being looked at
    bool *follows;  // of each link, whether it follows from others
    Set *reached;  // of each node, the targets that are looked at and come after it
} Reduction;

static bool holds(const Set *set, int64_t bit) { return set->words[bit / 64] >> bit % 64 & 1; }

// A link to what is only a step deeper follows from no other: any way around is longer.
static bool is_long(const Reduction *r, int64_t node, int64_t link) {
    return r->depth[r->items[link]] > r->depth[node] + 1;
}

// Finds the place of each node; false if one is in the order twice.
static bool find_places(Reduction *r) {
    memset(r->place, -1, (size_t)r->nodes * sizeof(int64_t));
    for (int64_t i = 0; i < r->nodes; i++) {
        if (r->place[r->order[i]] >= 0) return false;
        r->place[r->order[i]] = i;
    }
    return true;
}

// Sorts the links of each node, and leaves out what is there twice; finds depths.
static void sort_links(Reduction *r, const int64_t *sources_of, const int64_t *sources) {
    memcpy(r->ends, r->starts, (size_t)r->nodes * sizeof(int64_t));
    for (int64_t i = 0; i < r->nodes; i++) {
        const int64_t target = r->order[i];
        for (int64_t s = sources_of[target]; s < sources_of[target + 1]; s++) {
            const int64_t node = sources[s], end = r->ends[node];
            if (end > r->starts[node] && r->items[end - 1] == target) continue;
            r->items[r->ends[node]++] = target;
            if (r->depth[target] <= r->depth[node]) r->depth[target] = r->depth[node] + 1;
        }
    }
}

// Looks at the links between two places of the order whose targets have bits.
static void look_between(Reduction *r, int64_t low, int64_t high) {
    for (int64_t i = high; i >= low; i--) {
        const int64_t node = r->order[i];
        Set own = {{0}}, after = {{0}};
        int64_t link = r->starts[node];
        for (; link < r->ends[node] && r->place[r->items[link]] <= high; link++) {
            const int64_t target = r->items[link], bit = r->bit[target];
            if (bit >= 0) own.words[bit / 64] |= (uint64_t)1 << bit % 64;
            for (int w = 0; w < WORDS; w++) after.words[w] |= r->reached[target].words[w];
        }
        while (--link >= r->starts[node])
            if (r->bit[r->items[link]] >= 0 && is_long(r, node, link))
                r->follows[link] = holds(&after, r->bit[r->items[link]]);
        for (int w = 0; w < WORDS; w++) r->reached[node].words[w] = after.words[w] | own.words[w];
    }
}

// Finds what follows, for as many targets at a time as sets have bits, in the order of places.
static void look_at_all(Reduction *r, const int64_t *sources_of, const int64_t *sources) {
    int64_t count = 0, low = r->nodes;
    for (int64_t i = 0; i < r->nodes; i++) {
        const int64_t target = r->order[i];
        bool is_asked = false;
        for (int64_t s = sources_of[target]; s < sources_of[target + 1]; s++) {
            if (r->depth[target] <= r->depth[sources[s]] + 1) continue;
            is_asked = true;
            if (r->place[sources[s]] < low) low = r->place[sources[s]];
        }
        if (is_asked) r->bit[target] = count++;
        if (count == 0 || (count < BITS && i + 1 < r->nodes)) continue;
        look_between(r, low, i);
        memset(r->bit, -1, (size_t)r->nodes * sizeof(int64_t));
        count = 0, low = r->nodes;
    }
}

static void write_kept(const Reduction *r, int64_t *starts, int64_t *items) {
    int64_t count = 0;
    for (int64_t node = 0; node < r->nodes; node++) {
        const int64_t first = r->starts[node], end = r->ends[node];
        starts[node] = count;
        for (int64_t link = first; link < end; link++)
            if (!r->follows[link]) items[count++] = r->items[link];
    }
    starts[r->nodes] = count;
}

static Outcome reduce(Reduction *r, Lists later, int64_t *memory, int64_t *starts, int64_t *items) {
    const int64_t nodes = r->nodes, links = later.starts[nodes];
    int64_t *sources_of = cut(&memory, nodes + 2), *sources = cut(&memory, links);
    r->items = cut(&memory, links), r->ends = cut(&memory, nodes);
    r->place = cut(&memory, nodes), r->depth = cut(&memory, nodes), r->bit = cut(&memory, nodes);
    if (!find_places(r)) return UNFIT;
    turn_around(later, nodes, nodes, sources_of, sources);
    sort_links(r, sources_of, sources);
    memset(r->bit, -1, (size_t)nodes * sizeof(int64_t));
    look_at_all(r, sources_of, sources);
    write_kept(r, starts, items);
    return DONE;
}

Outcome reduce_links(
    Lists later, int64_t nodes, const int64_t *order, int64_t *starts, int64_t *items) {
    const int64_t links = later.starts[nodes];
    int64_t *memory = calloc((size_t)(5 * nodes + 2 * links + 2), sizeof(int64_t));
    Reduction r = {nodes, order, later.starts, .follows = calloc((size_t)links + 1, sizeof(bool))};
    r.reached = calloc((size_t)nodes + 1, sizeof(Set));
    const bool had_memory = memory && r.reached && r.follows;
    const Outcome outcome = had_memory ? reduce(&r, later, memory, starts, items) : NO_MEMORY;
    free(memory);
    free(r.reached);
    free(r.follows);
    return outcome;
}
