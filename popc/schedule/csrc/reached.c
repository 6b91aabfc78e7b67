// Reached states: a heap of what is next, and a table of sets of nodes.
#include <stdlib.h>
#include <string.h>

#include "lists.h"
#include "reached.h"

enum { FIRST_ROOM = 256 };  // entries of the heap and of the table

static int64_t count_of(const uint64_t *set, int64_t words) {
    int64_t count = 0;
    for (int64_t i = 0; i < words; i++) count += __builtin_popcountll(set[i]);
    return count;
}

static uint64_t hash_of(const uint64_t *set, int64_t words) {
    uint64_t hash = 0;
    for (int64_t i = 0; i < words; i++) {
        hash = (hash ^ set[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    return hash;
}

void copy_state(const Reached *s, State *to, const State *from) {
    memcpy(to->done, from->done, (size_t)s->words * sizeof(uint64_t));
    memcpy(to->ready, from->ready, (size_t)from->ready_count * sizeof(int64_t));
    to->ready_count = from->ready_count;
    to->live = from->live;
}

void adopt(const Reached *s, State *state, const State *trial) {
    copy_state(s, state, trial);
    const size_t bytes = (size_t)trial->added_count * sizeof(int64_t);
    memcpy(state->added + state->added_count, trial->added, bytes);
    state->added_count += trial->added_count;
}

static bool is_before(Entry a, Entry b) {
    if (a.peak != b.peak) return a.peak < b.peak;
    return a.left != b.left ? a.left < b.left : a.number < b.number;
}

static bool push(Reached *s, Entry entry) {
    if (s->heap_count == s->heap_room) {
        const int64_t room = s->heap_room ? 2 * s->heap_room : FIRST_ROOM;
        Entry *larger = realloc(s->heap, (size_t)room * sizeof(Entry));
        if (!larger) return false;
        s->heap = larger, s->heap_room = room;
    }
    int64_t place = s->heap_count++;
    for (; place && is_before(entry, s->heap[(place - 1) / 2]); place = (place - 1) / 2)
        s->heap[place] = s->heap[(place - 1) / 2];
    s->heap[place] = entry;
    return true;
}

Entry pop(Reached *s) {
    const Entry first = s->heap[0], last = s->heap[--s->heap_count];
    int64_t place = 0;
    for (;;) {
        int64_t child = 2 * place + 1;
        if (child >= s->heap_count) break;
        if (child + 1 < s->heap_count && is_before(s->heap[child + 1], s->heap[child])) child++;
        if (!is_before(s->heap[child], last)) break;
        s->heap[place] = s->heap[child];
        place = child;
    }
    s->heap[place] = last;
    return first;
}

// The place of a set in the table, which is empty if it has not been seen.
static Seen *find_seen(const Reached *s, const uint64_t *done) {
    const size_t bytes = (size_t)s->words * sizeof(uint64_t);
    uint64_t place = hash_of(done, s->words);
    for (;; place++) {
        Seen *seen = &s->table[place & (uint64_t)(s->table_room - 1)];
        if (!seen->state || !memcmp(seen->state->done, done, bytes)) return seen;
    }
}

static bool enlarge_table(Reached *s) {
    const int64_t room = s->table_room;
    Seen *old = s->table, *larger = calloc((size_t)(room ? 2 * room : FIRST_ROOM), sizeof(Seen));
    if (!larger) return false;
    s->table = larger, s->table_room = room ? 2 * room : FIRST_ROOM;
    for (int64_t i = 0; i < room; i++)
        if (old[i].state) *find_seen(s, old[i].state->done) = old[i];
    free(old);
    return true;
}

// A state with room for so many nodes that are ready, and that have been added; or NULL.
static State *make_state(Reached *s, int64_t ready, int64_t added) {
    State *state = malloc(sizeof(State) + (size_t)(s->words + ready + added) * sizeof(int64_t));
    if (!state) return NULL;
    int64_t *memory = (int64_t *)(state + 1);
    *state = (State){.previous = s->newest, .done = cut(&memory, s->words)};
    s->newest = state;
    state->ready = cut(&memory, ready);
    state->added = cut(&memory, added);
    return state;
}

bool keep(Reached *s, const State *now, State *before, int64_t peak) {
    if (2 * (s->seen_count + 1) > s->table_room && !enlarge_table(s)) return false;
    Seen *seen = find_seen(s, now->done);
    if (seen->state && seen->peak <= peak) return true;
    State *state = make_state(s, now->ready_count, now->added_count);
    if (!state) return false;
    state->before = before;
    adopt(s, state, now);
    if (!seen->state) s->seen_count++, seen->state = state;
    seen->peak = peak;
    return push(s, (Entry){peak, s->nodes - count_of(state->done, s->words), s->numbers++, state});
}

bool is_outdated(const Reached *s, Entry entry) {
    return find_seen(s, entry.state->done)->peak < entry.peak;
}

void free_reached(Reached *s) {
    for (State *state = s->newest, *previous; state; state = previous) {
        previous = state->previous;
        free(state);
    }
    free(s->heap);
    free(s->table);
}
