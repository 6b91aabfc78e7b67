// A search over sets of nodes that have run, the lowest peak first.
#include <stdlib.h>
#include <string.h>

#include "exact.h"
#include "reached.h"

enum { LONGEST_CHAIN = 32 };  // as in Python

typedef struct {
    Exact *exact;
    Shift *problem;
    Reached reached;
    int64_t *starts, *earlier;  // of each node, those that it waits for
    int64_t *first_reader, *readers;  // of each buffer, the nodes that read it
    State now, trial;  // what is being worked on; both have room for anything
    int64_t questions;
} Search;

// -- sets of nodes --------------------------------------------------------------------------------

static bool holds(const uint64_t *set, int64_t node) { return set[node / 64] >> node % 64 & 1; }

static bool holds_all(const uint64_t *set, const int64_t *nodes, const int64_t *end) {
    for (; nodes < end; nodes++)
        if (!holds(set, *nodes)) return false;
    return true;
}

// -- one node -------------------------------------------------------------------------------------

static bool is_dead(const Search *s, const uint64_t *done, int64_t buffer) {
    const int64_t *first = s->first_reader + buffer;
    return !s->problem->stays[buffer] &&
           holds_all(done, s->readers + first[0], s->readers + first[1]);
}

// By how much a node changes what is live; `done` holds it already.
static int64_t effect(Search *s, const uint64_t *done, int64_t node) {
    const Shift *problem = s->problem;
    s->problem->work++;
    int64_t change = problem->made[node];
    for (int64_t i = problem->reads.starts[node]; i < problem->reads.starts[node + 1]; i++) {
        const int64_t buffer = problem->reads.items[i];
        if (problem->frees[buffer] && is_dead(s, done, buffer)) change -= problem->frees[buffer];
    }
    return change;
}

// The bytes live while a node runs; `done` holds it already.
static int64_t step(const Search *s, const uint64_t *done, int64_t live, int64_t node) {
    const Shift *problem = s->problem;
    int64_t bytes = live + problem->rise[node];
    for (int64_t t = problem->takes.starts[node]; t < problem->takes.starts[node + 1]; t++)
        for (int64_t c = problem->choices.starts[t]; c < problem->choices.starts[t + 1]; c++)
            if (is_dead(s, done, problem->choices.items[c])) {
                bytes -= problem->takes.items[t];
                break;
            }
    return bytes;
}

static void mark(State *state, int64_t node) { state->done[node / 64] |= (uint64_t)1 << node % 64; }

static void unmark(State *state, int64_t node) {
    state->done[node / 64] &= ~((uint64_t)1 << node % 64);
}

// Runs the ready node of this index, which is marked and changes what is live by `change`.
static void execute(const Search *s, State *state, int64_t index, int64_t change) {
    const Lists later = s->problem->later;
    const int64_t node = state->ready[index];
    const size_t behind = (size_t)(--state->ready_count - index);
    memmove(state->ready + index, state->ready + index + 1, behind * sizeof(int64_t));
    state->live += change;
    state->added[state->added_count++] = node;
    for (int64_t i = later.starts[node]; i < later.starts[node + 1]; i++) {
        const int64_t other = later.items[i];
        const int64_t *first = s->starts + other;
        if (holds_all(state->done, s->earlier + first[0], s->earlier + first[1]))
            state->ready[state->ready_count++] = other;
    }
}

// -- nodes that may run at once -------------------------------------------------------------------

// Runs ready nodes from index `start` on that need no more and leave no more live.
static void run_harmless(Search *s, State *state, int64_t peak, int64_t start) {
    int64_t index = start, unchanged = 0;
    while (unchanged < state->ready_count - start) {
        if (index >= state->ready_count) index = start;
        const int64_t node = state->ready[index];
        mark(state, node);
        const int64_t change = effect(s, state->done, node);
        if (change <= 0 && step(s, state->done, state->live, node) <= peak) {
            execute(s, state, index, change);
            unchanged = 0;
        } else {
            unmark(state, node);
            index++;
            unchanged++;
        }
    }
}

// Runs a chain that begins with a ready node, if one leaves no more live than now.
static bool run_chain(Search *s, State *state, int64_t index, int64_t peak) {
    State *trial = &s->trial;
    const int64_t ready = state->ready_count - 1;
    copy_state(&s->reached, trial, state);
    trial->added_count = 0;
    for (int i = 0; i < LONGEST_CHAIN; i++) {
        const int64_t node = trial->ready[index];
        mark(trial, node);
        if (step(s, trial->done, trial->live, node) > peak) return false;
        execute(s, trial, index, effect(s, trial->done, node));
        run_harmless(s, trial, peak, ready);
        if (trial->live <= state->live) {
            adopt(&s->reached, state, trial);
            return true;
        }
        if (trial->ready_count != ready + 1) return false;
        index = ready;
    }
    return false;
}

// Runs all nodes and chains of nodes that do no harm.
static void settle(Search *s, State *state, int64_t peak) {
    bool has_run;
    do {
        run_harmless(s, state, peak, 0);
        has_run = false;
        for (int64_t index = 0; index < state->ready_count && !has_run; index++)
            has_run = run_chain(s, state, index, peak);
    } while (has_run);
}

// -- the search -----------------------------------------------------------------------------------

// Looks at the state after running one ready node.
static bool advance(Search *s, State *state, int64_t index, int64_t peak) {
    const int64_t node = state->ready[index];
    copy_state(&s->reached, &s->now, state);
    s->now.added_count = 0;
    mark(&s->now, node);
    const int64_t bytes = step(s, s->now.done, state->live, node);
    if (bytes > peak) peak = bytes;
    if (peak >= s->exact->bound) return true;
    execute(s, &s->now, index, effect(s, s->now.done, node));
    settle(s, &s->now, peak);
    return keep(&s->reached, &s->now, state, peak);
}

static bool begin(Search *s) {
    State *first = &s->now;
    memset(first->done, 0, (size_t)s->reached.words * sizeof(uint64_t));
    first->live = s->problem->first_live;
    for (int64_t node = 0; node < s->problem->nodes; node++)
        if (s->starts[node] == s->starts[node + 1]) first->ready[first->ready_count++] = node;
    settle(s, first, s->exact->peak);
    return keep(&s->reached, first, NULL, s->exact->peak);
}

static void write_order(const Search *s, const State *state) {
    int64_t end = 0;
    for (const State *each = state; each; each = each->before) end += each->added_count;
    s->exact->placed = end;
    for (const State *each = state; each; each = each->before) {
        end -= each->added_count;
        const size_t bytes = (size_t)each->added_count * sizeof(int64_t);
        memcpy(s->problem->order + end, each->added, bytes);
    }
}

static Outcome run(Search *s) {
    Outcome outcome = DONE;
    if (!begin(s)) return NO_MEMORY;
    while (s->reached.heap_count) {
        const Entry entry = pop(&s->reached);
        State *state = entry.state;
        if (is_outdated(&s->reached, entry)) continue;
        const bool is_found = !state->ready_count;
        if (is_found) write_order(s, state);
        if (is_found || is_over(s->problem, &s->questions, &outcome)) {
            s->exact->lower = entry.peak;
            return outcome;
        }
        for (int64_t index = 0; index < state->ready_count; index++)
            if (!advance(s, state, index, entry.peak)) return NO_MEMORY;
    }
    return DONE;
}

// True if a node waits for another one twice: it would be ready twice.
static bool names_twice(const Search *s) {
    for (int64_t node = 0; node < s->problem->nodes; node++)
        for (int64_t i = s->starts[node] + 1; i < s->starts[node + 1]; i++)
            if (s->earlier[i - 1] == s->earlier[i]) return true;
    return false;
}

// All memory of a fixed size, for lists of nodes; the caller frees it.
static void *lay_out(Search *s) {
    const Shift *problem = s->problem;
    const int64_t nodes = problem->nodes, buffers = problem->buffers;
    const int64_t links = problem->later.starts[nodes], uses = problem->reads.starts[nodes];
    s->reached = (Reached){.nodes = nodes, .words = nodes / 64 + 1};
    const int64_t total = nodes + 2 + links + buffers + 2 + uses +
                          2 * (s->reached.words + 2 * nodes);
    int64_t *memory = malloc((size_t)total * sizeof(int64_t)), *const all = memory;
    if (!memory) return NULL;
    s->starts = cut(&memory, nodes + 2), s->earlier = cut(&memory, links);
    s->first_reader = cut(&memory, buffers + 2), s->readers = cut(&memory, uses);
    State *const states[] = {&s->now, &s->trial};
    for (int i = 0; i < 2; i++) {
        states[i]->done = cut(&memory, s->reached.words);
        states[i]->ready = cut(&memory, nodes);
        states[i]->added = cut(&memory, nodes);
    }
    turn_around(problem->later, nodes, nodes, s->starts, s->earlier);
    turn_around(problem->reads, nodes, buffers, s->first_reader, s->readers);
    return all;
}

Outcome search_exactly(Exact *exact) {
    Search search = {.exact = exact, .problem = exact->problem};
    exact->placed = -1, exact->lower = exact->bound;
    void *lists = lay_out(&search);
    Outcome outcome = lists ? DONE : NO_MEMORY;
    if (lists && names_twice(&search)) outcome = UNFIT;
    if (outcome == DONE) outcome = run(&search);
    free_reached(&search.reached);
    free(lists);
    return outcome;
}
