// What is live in every order: sets of buffers are bits, and many of them are looked at together.
#include <stdlib.h>
#include <string.h>

#include "bound.h"

enum { WORDS = 8, BITS = 64 * WORDS };

typedef struct { uint64_t words[WORDS]; } Set;

static void unite(Set *set, const Set *other) {
    for (int i = 0; i < WORDS; i++) set->words[i] |= other->words[i];
}

static void add(Set *set, int64_t bit) {
    if (bit >= 0 && bit < BITS) set->words[bit / 64] |= (uint64_t)1 << bit % 64;
}

static void add_all(Set *set, Lists lists, int64_t list, int64_t first) {
    for (int64_t i = lists.starts[list]; i < lists.starts[list + 1]; i++)
        add(set, lists.items[i] - first);
}

// For each node, the buffers that it or a node before it needs to have made.
static void find_made(const Bound *bound, int64_t first, Set *made) {
    Set all = {{0}};
    for (int64_t i = 0; i < bound->buffers; i++)
        if (bound->initial[i]) add(&all, i - first);
    for (int64_t node = 0; node < bound->nodes; node++) made[node] = all;
    for (int64_t i = 0; i < bound->nodes; i++) {
        const int64_t node = bound->order[i];
        Set passed = made[node];
        add_all(&passed, bound->makes, node, first);
        for (int64_t l = bound->later.starts[node]; l < bound->later.starts[node + 1]; l++)
            unite(&made[bound->later.items[l]], &passed);
    }
}

// For each node, the buffers that it or a node after it needs.
static void find_needed(const Bound *bound, int64_t first, Set *freed, Set *needed) {
    Set all = {{0}};
    for (int64_t leader = 0; leader < bound->leaders; leader++) {
        freed[leader] = (Set){{0}};
        add_all(&freed[leader], bound->parts, leader, first);
        if (bound->stays[leader]) unite(&all, &freed[leader]);
    }
    for (int64_t i = bound->nodes - 1; i >= 0; i--) {
        const int64_t node = bound->order[i];
        needed[node] = all;
        for (int64_t l = bound->later.starts[node]; l < bound->later.starts[node + 1]; l++)
            unite(&needed[node], &needed[bound->later.items[l]]);
        for (int64_t r = bound->reads.starts[node]; r < bound->reads.starts[node + 1]; r++)
            unite(&needed[node], &freed[bound->reads.items[r]]);
    }
}

static int64_t weigh(const Bound *bound, int64_t first, const Set *made, const Set *needed) {
    int64_t bytes = 0;
    for (int i = 0; i < WORDS; i++)
        for (uint64_t bits = made->words[i] & needed->words[i]; bits; bits &= bits - 1)
            bytes += bound->weights[first + 64 * i + __builtin_ctzll(bits)];
    return bytes;
}

Outcome add_certain_bytes(const Bound *bound, int64_t *live) {
    const size_t nodes = (size_t)bound->nodes, leaders = (size_t)bound->leaders;
    Set *made = calloc(2 * nodes + leaders + 1, sizeof(Set));
    if (!made) return NO_MEMORY;
    Set *needed = made + nodes, *freed = needed + nodes;
    for (int64_t first = 0; first < bound->buffers; first += BITS) {
        find_made(bound, first, made);
        find_needed(bound, first, freed, needed);
        for (int64_t node = 0; node < bound->nodes; node++)
            live[node] += weigh(bound, first, &made[node], &needed[node]);
    }
    free(made);
    return DONE;
}
