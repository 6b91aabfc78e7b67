#include <stdlib.h>

#include "shift.h"

// A ready node: what compares first comes first.
typedef struct { int64_t rank, level, change, push, node; } Entry;

typedef struct {
    const Shift *problem;
    const int64_t *levels;  // of each node
    bool is_greedy;  // whether the change of live bytes decides among those of a level
    Entry *heap;
    int64_t size, pushes;
    int64_t *waiting, *change, *done;  // of each node; `change` is that of the newest entry
    int64_t *left, *starts, *readers;  // of each buffer
} Ready;

static bool is_before(const Entry *a, const Entry *b) {
    if (a->rank != b->rank) return a->rank > b->rank;
    if (a->level != b->level) return a->level < b->level;
    if (a->change != b->change) return a->change < b->change;
    return a->push > b->push;
}

static void enqueue(Ready *ready, Entry entry) {
    ready->change[entry.node] = entry.change;
    int64_t at = ready->size++;
    for (; at > 0 && is_before(&entry, &ready->heap[(at - 1) / 2]); at = (at - 1) / 2)
        ready->heap[at] = ready->heap[(at - 1) / 2];
    ready->heap[at] = entry;
}

static Entry dequeue(Ready *ready) {
    const Entry first = ready->heap[0], last = ready->heap[--ready->size];
    int64_t at = 0;
    while (2 * at + 1 < ready->size) {
        int64_t child = 2 * at + 1;
        if (child + 1 < ready->size && is_before(&ready->heap[child + 1], &ready->heap[child]))
            child++;
        if (!is_before(&ready->heap[child], &last)) break;
        ready->heap[at] = ready->heap[child];
        at = child;
    }
    ready->heap[at] = last;
    return first;
}

static void push(Ready *ready, int64_t node) {
    const Shift *problem = ready->problem;
    const Lists reads = problem->reads;
    int64_t change = 0;
    if (ready->is_greedy) {
        change = problem->made[node];
        for (int64_t i = reads.starts[node]; i < reads.starts[node + 1]; i++)
            if (ready->left[reads.items[i]] == 1) change -= problem->frees[reads.items[i]];
    }
    ready->pushes++;
    enqueue(ready, (Entry){problem->ranks[node], ready->levels[node], change, ready->pushes, node});
    ready->waiting[node] = -ready->pushes;  // it is ready, since that push
}

// The last reader of a buffer frees it: if that is ready, it has become a better choice.
static void revise(Ready *ready, int64_t buffer) {
    const Shift *problem = ready->problem;
    int64_t i = ready->starts[buffer];
    while (i < ready->starts[buffer + 1] && ready->done[ready->readers[i]]) i++;
    if (i == ready->starts[buffer + 1]) return;
    const int64_t node = ready->readers[i];
    if (ready->waiting[node] >= 0) return;
    const int64_t change = ready->change[node] - problem->frees[buffer];
    const Entry entry = {
        problem->ranks[node], ready->levels[node], change, -ready->waiting[node], node};
    enqueue(ready, entry);
}

static void execute(Ready *ready, int64_t node) {
    const Shift *problem = ready->problem;
    const Lists reads = problem->reads, later = problem->later;
    ready->done[node] = 1;
    if (ready->is_greedy)
        for (int64_t i = reads.starts[node]; i < reads.starts[node + 1]; i++) {
            const int64_t buffer = reads.items[i];
            if (--ready->left[buffer] == 1 && !problem->stays[buffer]) revise(ready, buffer);
        }
    for (int64_t i = later.starts[node]; i < later.starts[node + 1]; i++)
        if (--ready->waiting[later.items[i]] == 0) push(ready, later.items[i]);
}

static void count(Ready *ready) {
    const Shift *problem = ready->problem;
    const Lists later = problem->later;
    const int64_t nodes = problem->nodes;
    for (int64_t i = 0; i < later.starts[nodes]; i++) ready->waiting[later.items[i]]++;
    turn_around(problem->reads, nodes, problem->buffers, ready->starts, ready->readers);
    for (int64_t buffer = 0; buffer < problem->buffers; buffer++) {
        const int64_t readers = ready->starts[buffer + 1] - ready->starts[buffer];
        ready->left[buffer] = problem->stays[buffer] + readers;
    }
}

Outcome order_nodes(Shift *problem, const int64_t *levels, bool is_greedy) {
    const int64_t nodes = problem->nodes, buffers = problem->buffers;
    const int64_t most = nodes + buffers + 1;  // a buffer loses its last reader but one once
    const int64_t numbers = 3 * nodes + 2 * buffers + 2 + problem->reads.starts[nodes];
    int64_t *const memory = calloc((size_t)numbers, sizeof(int64_t));
    Entry *const heap = malloc((size_t)most * sizeof(Entry));
    int64_t placed = 0;
    if (memory && heap) {
        Ready ready = {problem, levels, is_greedy, heap, .size = 0};
        ready.waiting = memory, ready.change = memory + nodes, ready.done = memory + 2 * nodes;
        ready.left = memory + 3 * nodes, ready.starts = ready.left + buffers;
        ready.readers = ready.starts + buffers + 2;
        count(&ready);
        for (int64_t node = 0; node < nodes; node++)
            if (ready.waiting[node] == 0) push(&ready, node);
        while (ready.size > 0) {
            const Entry entry = dequeue(&ready);
            if (ready.done[entry.node] || entry.change != ready.change[entry.node]) continue;
            problem->order[placed++] = entry.node;
            execute(&ready, entry.node);
        }
    }
    const bool had_memory = memory && heap;
    free(memory);
    free(heap);
    return !had_memory ? NO_MEMORY : placed < nodes ? HAS_CYCLE : DONE;
}
