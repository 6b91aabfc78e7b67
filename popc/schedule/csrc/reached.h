// The states that the exact search has reached: the lowest peak of each, and which is next.
#pragma once

#include <stdbool.h>
#include <stdint.h>

// Nodes that have run, what is live then, the nodes that may run next and those that ran last.
typedef struct State {
    struct State *before, *previous;  // the one that it was reached from, the one made before
    uint64_t *done;
    int64_t live, ready_count, added_count;
    int64_t *ready, *added;
} State;

typedef struct {
    int64_t peak, left, number;  // `left`: nodes that have not run
    State *state;
} Entry;

// The lowest peak with which the nodes of a state have been reached.
typedef struct {
    State *state;
    int64_t peak;
} Seen;

typedef struct {
    int64_t nodes, words;  // of all; of a set of nodes
    Entry *heap;
    Seen *table;
    State *newest;
    int64_t heap_count, heap_room, seen_count, table_room, numbers;
} Reached;

// The nodes that have run, those that are ready and what is live become those of another state.
void copy_state(const Reached *reached, State *to, const State *from);

// What a trial, made as a copy, has run after the state, the state has run, too.
void adopt(const Reached *reached, State *state, const State *trial);

// Keeps a copy of a state, if it is new or its peak is lower; false if there is no memory.
bool keep(Reached *reached, const State *now, State *before, int64_t peak);

// Takes the entry of the lowest peak, of these the one of the fullest state.
Entry pop(Reached *reached);

// True if a state of an entry has been reached with a lower peak since.
bool is_outdated(const Reached *reached, Entry entry);

void free_reached(Reached *reached);
