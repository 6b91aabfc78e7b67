// What is live in every order: sets of buffers are bits, and many of them are looked at together.
#include <stdlib.h>
#include <string.h>

#include "bound.h"

enum { WORDS = 8, BITS = 64 * WORDS };

typedef struct { uint64_t words[WORDS]; } Set;

typedef struct {
    const Bound *bound;
    const int64_t *chosen;  // the buffers of this pass, one for each bit
    int64_t count;
    int64_t low, high;  // between these places of the order any of them can be live
    int64_t *bit;  // of each buffer; -1 if it is not looked at
    int64_t *place;  // of each node
    int64_t *begin, *end;  // of each buffer, the places of who makes it, and of who reads it last
    Set *made, *needed;  // of each node
    Set *freed;  // of each buffer, those that are freed with it
} Pass;

static void unite(Set *set, const Set *other) {
    for (int i = 0; i < WORDS; i++) set->words[i] |= other->words[i];
}

static void add(Set *set, int64_t bit) {
    if (bit >= 0) set->words[bit / 64] |= (uint64_t)1 << bit % 64;
}

// Finds for all buffers between which places they can be live.
static void find_lives(Pass *pass) {
    const Bound *bound = pass->bound;
    const Shift *problem = bound->problem;
    const Lists makes = bound->makes, reads = problem->reads;
    for (int64_t b = 0; b < problem->buffers; b++)
        pass->begin[b] = problem->nodes, pass->end[b] = problem->stays[b] ? problem->nodes - 1 : -1;
    for (int64_t i = 0; i < bound->initial_count; i++) pass->begin[bound->initial[i]] = 0;
    for (int64_t place = 0; place < problem->nodes; place++) {
        const int64_t node = problem->order[place];
        pass->place[node] = place;
        for (int64_t i = makes.starts[node]; i < makes.starts[node + 1]; i++)
            if (place < pass->begin[makes.items[i]]) pass->begin[makes.items[i]] = place;
        for (int64_t i = reads.starts[node]; i < reads.starts[node + 1]; i++)
            if (place > pass->end[reads.items[i]]) pass->end[reads.items[i]] = place;
    }
}

// Gives the buffers of a pass their bits, and notes where they can be live.
static void open_pass(Pass *pass, const int64_t *chosen, int64_t count) {
    const int64_t *leaders = pass->bound->freed_with;
    pass->chosen = chosen, pass->count = count;
    pass->low = pass->bound->problem->nodes, pass->high = -1;
    for (int64_t i = 0; i < count; i++) pass->freed[leaders[chosen[i]]] = (Set){{0}};
    for (int64_t i = 0; i < count; i++) {
        const int64_t buffer = chosen[i], leader = leaders[buffer];
        pass->bit[buffer] = i;
        add(&pass->freed[leader], i);
        if (pass->begin[buffer] < pass->low) pass->low = pass->begin[buffer];
        if (pass->end[leader] > pass->high) pass->high = pass->end[leader];
    }
}

static void close_pass(Pass *pass) {
    for (int64_t i = 0; i < pass->count; i++) {
        pass->bit[pass->chosen[i]] = -1;
        pass->freed[pass->bound->freed_with[pass->chosen[i]]] = (Set){{0}};
    }
}

// For each node, the buffers that it or a node before it needs to have made.
static void find_made(Pass *pass) {
    const Bound *bound = pass->bound;
    const Lists later = bound->problem->later, makes = bound->makes;
    Set all = {{0}};
    for (int64_t i = 0; i < bound->initial_count; i++) add(&all, pass->bit[bound->initial[i]]);
    for (int64_t i = pass->low; i <= pass->high; i++) pass->made[bound->problem->order[i]] = all;
    for (int64_t i = pass->low; i <= pass->high; i++) {
        const int64_t node = bound->problem->order[i];
        Set passed = pass->made[node];
        for (int64_t m = makes.starts[node]; m < makes.starts[node + 1]; m++)
            add(&passed, pass->bit[makes.items[m]]);
        for (int64_t l = later.starts[node]; l < later.starts[node + 1]; l++)
            if (pass->place[later.items[l]] <= pass->high)
                unite(&pass->made[later.items[l]], &passed);
    }
}

// For each node, the buffers that it or a node after it needs.
static void find_needed(Pass *pass) {
    const Bound *bound = pass->bound;
    const Shift *problem = bound->problem;
    const Lists later = problem->later, reads = problem->reads;
    Set all = {{0}};
    for (int64_t i = 0; i < pass->count; i++)
        if (problem->stays[bound->freed_with[pass->chosen[i]]]) add(&all, i);
    for (int64_t i = pass->high; i >= pass->low; i--) {
        const int64_t node = problem->order[i];
        Set *needed = &pass->needed[node];
        *needed = all;
        for (int64_t l = later.starts[node]; l < later.starts[node + 1]; l++)
            if (pass->place[later.items[l]] <= pass->high)
                unite(needed, &pass->needed[later.items[l]]);
        for (int64_t r = reads.starts[node]; r < reads.starts[node + 1]; r++)
            unite(needed, &pass->freed[reads.items[r]]);
    }
}

static int64_t weigh(const Pass *pass, int64_t node) {
    int64_t bytes = 0;
    for (int i = 0; i < WORDS; i++) {
        const uint64_t both = pass->made[node].words[i] & pass->needed[node].words[i];
        for (uint64_t bits = both; bits; bits &= bits - 1)
            bytes += pass->bound->weights[pass->chosen[64 * i + __builtin_ctzll(bits)]];
    }
    return bytes;
}

static void add_all(Pass *pass, int64_t *live) {
    const Bound *bound = pass->bound;
    const int64_t *order = bound->problem->order;
    find_lives(pass);
    for (int64_t first = 0; first < bound->count; first += BITS) {
        const int64_t left = bound->count - first;
        open_pass(pass, bound->chosen + first, left < BITS ? left : BITS);
        find_made(pass);
        find_needed(pass);
        for (int64_t i = pass->low; i <= pass->high; i++) live[order[i]] += weigh(pass, order[i]);
        close_pass(pass);
    }
}

Outcome add_certain_bytes(const Bound *bound, int64_t *live) {
    const int64_t nodes = bound->problem->nodes, buffers = bound->problem->buffers;
    Set *const sets = calloc((size_t)(2 * nodes + buffers + 1), sizeof(Set));
    int64_t *const all = calloc((size_t)(nodes + 3 * buffers + 1), sizeof(int64_t));
    if (sets && all) {
        int64_t *memory = all;
        Pass pass = {.bound = bound, .made = sets, .needed = sets + nodes};
        pass.freed = pass.needed + nodes, pass.place = cut(&memory, nodes);
        pass.bit = cut(&memory, buffers);
        pass.begin = cut(&memory, buffers), pass.end = cut(&memory, buffers);
        memset(pass.bit, -1, (size_t)buffers * sizeof(int64_t));
        add_all(&pass, live);
    }
    const bool had_memory = sets && all;
    free(sets);
    free(all);
    return had_memory ? DONE : NO_MEMORY;
}
