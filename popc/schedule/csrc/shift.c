#include <stdlib.h>
#include <string.h>

#include "search.h"

enum {
    BETWEEN_QUESTIONS = 512,  // blocks or states until the caller is asked again
    GROUP = 32,  // turns
};

// -- making moves ---------------------------------------------------------------------------------

// Finds again what depends on the order from place `first` to `end`.
static void refresh(State *s, int64_t first, int64_t end) {
    const Shift *shift = s->shift;
    const ShortLists reads = s->reads;
    s->epoch++;
    for (int64_t place = end - 1; place >= first; place--) {
        const int64_t node = s->order[place];
        int64_t change = shift->made[node];
        s->place[node] = (int32_t)place;
        for (int64_t i = reads.starts[node]; i < reads.starts[node + 1]; i++) {
            const int64_t buffer = reads.items[i];
            if (s->last[buffer] >= end || s->stamp[buffer] == s->epoch || shift->stays[buffer])
                continue;
            s->stamp[buffer] = s->epoch;
            s->last[buffer] = (int32_t)place;
            change -= shift->frees[buffer];
        }
        s->live[place + 1] = change;
    }
    for (int64_t place = first; place < end; place++) s->live[place + 1] += s->live[place];
}

// Finds the steps from place `first` to `end` again; by how much their sum has changed, and the
// highest.  What takes no time is nothing.
static int64_t find_steps(State *s, int64_t first, int64_t end, int64_t *highest) {
    const Shift *shift = s->shift;
    int64_t change = 0;
    *highest = INT64_MIN;
    for (int64_t place = first; place < end; place++) {
        const int64_t node = s->order[place];
        int64_t step = shift->counted[node] ? s->live[place] + shift->rise[node] : 0;
        const int64_t none = shift->takes.starts[node + 1];
        for (int64_t t = shift->counted[node] ? shift->takes.starts[node] : none; t < none; t++)
            for (int64_t c = shift->choices.starts[t]; c < shift->choices.starts[t + 1]; c++)
                if (s->last[shift->choices.items[c]] == place) {
                    step -= shift->takes.items[t];
                    break;
                }
        change += step - s->steps[place];
        s->steps[place] = step;
        if (step > *highest) *highest = step;
    }
    return change;
}

// Makes a move if it gains when all is counted, and the peak allows it.
static bool accept(State *s, int64_t start, int64_t length, Move move) {
    const int64_t first = start < move.target ? start : move.target;
    const int64_t end = (start < move.target ? move.target : start) + length;
    const size_t bytes = (size_t)(end - first) * sizeof(int32_t);
    int64_t highest;
    int32_t *const old = s->new_place;  // which has room for all nodes, and is free now
    write_moved(s, start, length, move.target);
    memcpy(old, s->order + first, bytes);
    memcpy(s->order + first, s->scratch, bytes);
    refresh(s, first, end);
    move.gain.total = find_steps(s, first, end, &highest);
    s->shift->work += 2 * (end - first);
    const int64_t most = s->peak > 0 ? s->peak : 0;
    if (is_less(move.gain, (Gain){0, 0, 0}) && (!s->shift->keeps_peak || highest <= most))
        return true;
    memcpy(s->order + first, old, bytes);
    refresh(s, first, end);
    find_steps(s, first, end, &highest);
    return false;
}

// -- the search -----------------------------------------------------------------------------------

static uint64_t bit_of(int64_t length) { return UINT64_C(1) << (length & 63); }

static void note_tried(State *s, int64_t turn, int64_t length) {
    s->tried[turn] = (int32_t)length;
    s->groups[turn / GROUP] |= bit_of(length);
}

static void try_block(State *s, int64_t node, int64_t length) {
    const int64_t start = s->place[node], nodes = s->shift->nodes;
    if (start + length > nodes) return;
    s->shift->work++;
    if (is_wedged(s, start, start + length)) return;
    int64_t low, high;
    find_room(s, start, length, &low, &high);
    Move best = {{0, 0, 0}, start};
    if (low < start) look_earlier(s, start, length, low, &best);
    if (high > start) look_later(s, start, length, high, &best);
    if (best.target == start || !accept(s, start, length, best)) return;
    s->shift->moves++, s->moved = s->shift->work;
    int64_t first = start < best.target ? start : best.target;
    int64_t end = (start < best.target ? best.target : start) + length;
    find_neighbours(s, first, end);
    first = first > length ? first - length : 0, end = end + length < nodes ? end + length : nodes;
    for (int64_t place = first; place < end; place++) note_tried(s, s->turn[s->order[place]], 0);
}

bool is_over(const Shift *shift, int64_t *questions, Outcome *outcome) {
    if (shift->work > shift->most_work) return true;
    if ((*questions)++ % BETWEEN_QUESTIONS) return false;
    const int answer = shift->is_over(shift->caller);
    if (answer < 0) *outcome = INTERRUPTED;
    return answer != 0;
}

static bool has_ended(State *s) {
    const Shift *shift = s->shift;
    if (shift->moves >= shift->most_moves || shift->work - s->moved > shift->most_idle) return true;
    return is_over(shift, &s->questions, &s->outcome);
}

static bool can_any_move(State *s, int64_t length) {
    if (length >= s->shift->window) return false;
    for (int64_t place = 0; place < s->shift->nodes - length; place++) {
        s->shift->work++;
        if (!is_wedged(s, place, place + length + 1)) return true;
    }
    return false;
}

// The first turn from this one on at which blocks up to a length have been tried, but no longer
// ones; the number of nodes if there is none.  Most rounds have few: groups without are told by
// their bits.  A bit goes when its group is entered, and comes back for what has to come back.
static int64_t next_turn(State *s, int64_t turn, int64_t length) {
    const int64_t nodes = s->shift->nodes;
    const uint64_t bit = bit_of(length);
    while (turn < nodes) {
        uint64_t *const group = &s->groups[turn / GROUP];
        if (turn % GROUP == 0) {
            if (!(*group & bit)) {
                turn += GROUP;
                continue;
            }
            *group &= ~bit;
        }
        if (s->tried[turn] == length) return turn;
        if (bit_of(s->tried[turn]) == bit) *group |= bit;
        turn++;
    }
    return nodes;
}

static void search(State *s) {
    Shift *shift = s->shift;
    int64_t length = 1, settled = 0;
    while (!has_ended(s)) {
        const int64_t moves = shift->moves;
        int64_t i = next_turn(s, 0, length - 1);
        for (; i < shift->nodes; i = next_turn(s, i + 1, length - 1)) {
            note_tried(s, i, length);
            try_block(s, shift->shuffled[i], length);
            if (has_ended(s)) return;
        }
        if (shift->moves > moves) {
            length = 1;
        } else if (can_any_move(s, length)) {
            length++;
        } else if (shift->moves > settled) {
            length = 1, settled = shift->moves;
            for (int64_t turn = 0; turn < shift->nodes; turn++) note_tried(s, turn, 0);
        } else {
            return;
        }
    }
}

// True if nodes have ranks or ties.
static bool has_levels(const Shift *shift) {
    if (shift->ties.starts[shift->nodes] > 0) return true;
    for (int64_t node = 1; node < shift->nodes; node++)
        if (shift->ranks[node] != shift->ranks[0]) return true;
    return false;
}

// So many short numbers of a block of memory, which begins behind them afterwards.
static int32_t *cut_short(int64_t **memory, int64_t count) { return cut(memory, (count + 1) / 2); }

static ShortLists shortened(Lists lists, int64_t count, int64_t **memory) {
    const int64_t all = lists.starts[count];
    const ShortLists made = {cut_short(memory, count + 1), cut_short(memory, all)};
    for (int64_t i = 0; i <= count; i++) made.starts[i] = (int32_t)lists.starts[i];
    for (int64_t i = 0; i < all; i++) made.items[i] = (int32_t)lists.items[i];
    return made;
}

// For each number below a limit the lists in which it is, of so many.
static ShortLists turned(ShortLists lists, int64_t count, int64_t limit, int64_t **memory) {
    const int64_t all = lists.starts[count];
    const ShortLists made = {cut_short(memory, limit + 2), cut_short(memory, all)};
    for (int64_t i = 0; i < all; i++) made.starts[lists.items[i] + 2]++;
    for (int64_t i = 2; i < limit + 2; i++) made.starts[i] += made.starts[i - 1];
    for (int64_t list = 0; list < count; list++)  // each start moves to the end of its list
        for (int64_t i = lists.starts[list]; i < lists.starts[list + 1]; i++)
            made.items[made.starts[lists.items[i] + 1]++] = (int32_t)list;
    return made;
}

static void begin(State *s, int64_t *memory) {
    const Shift *shift = s->shift;
    const int64_t nodes = shift->nodes, buffers = shift->buffers;
    s->later = shortened(shift->later, nodes, &memory);
    s->reads = shortened(shift->reads, nodes, &memory);
    s->earlier = turned(s->later, nodes, nodes, &memory);
    s->readers = turned(s->reads, nodes, buffers, &memory);
    s->order = cut_short(&memory, nodes), s->place = cut_short(&memory, nodes);
    s->turn = cut_short(&memory, nodes), s->tried = cut_short(&memory, nodes);
    s->after = cut_short(&memory, nodes), s->until = cut_short(&memory, nodes);
    s->scratch = cut_short(&memory, nodes), s->new_place = cut_short(&memory, nodes);
    s->last = cut_short(&memory, buffers), s->value = cut_short(&memory, buffers);
    s->live = cut(&memory, nodes + 1), s->steps = cut(&memory, nodes);
    s->seen = cut(&memory, nodes);
    s->stamp = cut(&memory, buffers);
    s->turns = cut(&memory, nodes), s->changes = cut(&memory, nodes);
    s->groups = (uint64_t *)cut(&memory, nodes / GROUP + 1);
    s->rooms = (Room *)cut(&memory, 3 * nodes);
    for (int64_t buffer = 0; buffer < buffers; buffer++) s->last[buffer] = -1;
    for (int64_t i = 0; i < nodes; i++) s->turn[shift->shuffled[i]] = (int32_t)i;
    for (int64_t place = 0; place < nodes; place++) s->order[place] = (int32_t)shift->order[place];
    s->live[0] = shift->first_live;
    refresh(s, 0, nodes);
    find_neighbours(s, 0, nodes);
    for (int64_t turn = 0; turn < nodes; turn++) note_tried(s, turn, 0);
    find_steps(s, 0, nodes, &s->peak);
}

Outcome shift_blocks(Shift *shift) {
    const int64_t nodes = shift->nodes, buffers = shift->buffers;
    const int64_t links = shift->later.starts[nodes] + shift->reads.starts[nodes];
    const int64_t count = 15 * nodes + 3 * buffers + links + 32;
    if (nodes >= INT32_MAX || buffers >= INT32_MAX || links >= INT32_MAX) return DONE;
    int64_t *const memory = calloc((size_t)count, sizeof(int64_t));
    if (!memory) return NO_MEMORY;
    State s = {.shift = shift, .has_levels = has_levels(shift)};
    begin(&s, memory);
    search(&s);
    for (int64_t place = 0; place < nodes; place++) shift->order[place] = s.order[place];
    free(memory);
    return s.outcome;
}
