// The state of a local search, and what moves would gain.
#pragma once

#include "shift.h"

typedef struct { int64_t attraction, stretch, total; } Gain;

typedef struct {
    Gain gain;
    int64_t target;
} Move;

// What holds a block that begins at some place: the last place before it, the first behind it.
typedef struct {
    int64_t moves;  // how many had been made when that was found
    int32_t end, after, until;
} Room;

// Lists of nodes or buffers, of half the size: what is looked at all the time stays in the cache.
typedef struct { int32_t *starts, *items; } ShortLists;

typedef struct {
    Shift *shift;
    ShortLists later, earlier;  // of each node, those that wait for it, and that it waits for
    ShortLists reads, readers;  // of each node, buffers; of each buffer, nodes
    int32_t *order;
    int32_t *place;  // of each node
    int32_t *turn, *tried;  // of each node, when it is tried; of each turn, the longest block
    uint64_t *groups;  // of some turns each, how long these may be: bits, modulo their number
    int32_t *last;  // of each buffer, the place of the last reader
    int64_t *live, *steps;  // before each place; in each step
    int32_t *after, *until;  // of places: the last before and the first behind that hold its node
    Room *rooms;  // of places, of the block that was looked at last
    int32_t *scratch, *new_place;  // of places, of nodes
    int64_t *seen;  // of nodes
    int32_t *value;  // of buffers
    int64_t *stamp;
    int64_t *turns, *changes;  // of places: what `look_along` finds there; else 0
    int64_t epoch;  // what is stamped with it is marked
    int64_t peak;
    int64_t questions, moved;  // asked so far; the work when the last move was made
    bool has_levels;  // whether anything but the total can change
    Outcome outcome;
} State;

static inline bool is_less(Gain a, Gain b) {
    if (a.attraction != b.attraction) return a.attraction < b.attraction;
    if (a.stretch != b.stretch) return a.stretch < b.stretch;
    return a.total < b.total;
}

// Finds again which places hold which, when the order has changed from place `first` to `end`.
void find_neighbours(State *s, int64_t first, int64_t end);

// The lowest and the highest place at which a block may begin.
void find_room(State *s, int64_t start, int64_t length, int64_t *low, int64_t *high);

// True if the neighbours on both sides of a block hold it where it is.
static inline bool is_wedged(const State *s, int64_t start, int64_t end) {
    return (start == 0 || s->until[start - 1] < end) &&
           (end == s->shift->nodes || s->after[end] >= start);
}

// The nodes from the first to the last place that a move changes, as they are afterwards, in
// `scratch`; their number.
int64_t write_moved(const State *s, int64_t start, int64_t length, int64_t target);

// Beginning at each place before the start, down to the lowest: `best` becomes the best move.
void look_earlier(State *s, int64_t start, int64_t length, int64_t low, Move *best);

// Beginning at each place after the start, up to the highest.
void look_later(State *s, int64_t start, int64_t length, int64_t high, Move *best);
