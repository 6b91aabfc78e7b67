#include "shift.h"

#include <stdlib.h>
#include <string.h>

enum { BETWEEN_QUESTIONS = 64 };  // blocks that are tried until the caller is asked again

typedef struct { int64_t attraction, stretch, total; } Gain;

typedef struct {
    Shift *shift;
    int64_t *order;
    int64_t *place, *tried;  // of each node
    int64_t *last;  // of each buffer, the place of the last reader
    int64_t *live;  // before each place
    int64_t *starts, *earlier;  // of each node, those that it waits for
    int64_t *scratch, *new_place, *seen;  // of places, of nodes, of nodes
    int64_t *value, *stamp;  // of buffers
    int64_t epoch;  // what is stamped with it is marked
    int64_t peak;
    int questions;
    Outcome outcome;
} State;

// -- what moves gain ------------------------------------------------------------------------------

static bool is_less(Gain a, Gain b) {
    if (a.attraction != b.attraction) return a.attraction < b.attraction;
    if (a.stretch != b.stretch) return a.stretch < b.stretch;
    return a.total < b.total;
}

static int64_t sum_block(const State *s, const int64_t *values, int64_t start, int64_t length) {
    int64_t sum = 0;
    for (int64_t place = start; place < start + length; place++) sum += values[s->order[place]];
    return sum;
}

// Marks the buffers that die in a block; their bytes.
static int64_t mark_dying(State *s, int64_t start, int64_t length) {
    const Shift *shift = s->shift;
    int64_t bytes = 0;
    s->epoch++;
    for (int64_t place = start; place < start + length; place++) {
        const int64_t node = s->order[place];
        for (int64_t i = shift->reads.starts[node]; i < shift->reads.starts[node + 1]; i++) {
            const int64_t buffer = shift->reads.items[i], last = s->last[buffer];
            if (last < start || last >= start + length || s->stamp[buffer] == s->epoch) continue;
            s->stamp[buffer] = s->epoch;
            bytes += shift->frees[buffer];
        }
    }
    return bytes;
}

// Marks the buffers that a block reads, with the place of the last reader in it.
static void mark_reads(State *s, int64_t start, int64_t length) {
    const Lists reads = s->shift->reads;
    s->epoch++;
    for (int64_t place = start; place < start + length; place++) {
        const int64_t node = s->order[place];
        for (int64_t i = reads.starts[node]; i < reads.starts[node + 1]; i++) {
            s->stamp[reads.items[i]] = s->epoch;
            s->value[reads.items[i]] = place;
        }
    }
}

// The nodes from the first to the last place that a move changes, as they are afterwards.
static int64_t write_moved(const State *s, int64_t start, int64_t length, int64_t target) {
    const size_t block = (size_t)length * sizeof(int64_t);
    if (target < start) {
        memcpy(s->scratch, s->order + start, block);
        memcpy(s->scratch + length, s->order + target, (size_t)(start - target) * sizeof(int64_t));
        return start - target + length;
    }
    const int64_t between = target - start;
    memcpy(s->scratch, s->order + start + length, (size_t)between * sizeof(int64_t));
    memcpy(s->scratch + between, s->order + start, block);
    return between + length;
}

static int64_t distance(int64_t a, int64_t b) { return a < b ? b - a : a - b; }

// By how much a move changes the distance of tied nodes.
static int64_t stretch(State *s, int64_t start, int64_t length, int64_t target) {
    const Lists ties = s->shift->ties;
    if (ties.starts[s->shift->nodes] == 0) return 0;
    const int64_t first = start < target ? start : target;
    const int64_t count = write_moved(s, start, length, target);
    s->epoch++;
    for (int64_t i = 0; i < count; i++) {
        s->new_place[s->scratch[i]] = first + i;
        s->seen[s->scratch[i]] = s->epoch;
    }
    int64_t change = 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t node = s->scratch[i];
        for (int64_t t = ties.starts[node]; t < ties.starts[node + 1]; t++) {
            const int64_t other = ties.items[t];
            const bool moves = s->seen[other] == s->epoch;
            if (moves && other < node) continue;  // seen from the other side
            const int64_t goal = moves ? s->new_place[other] : s->place[other];
            change += distance(s->new_place[node], goal);
            change -= distance(s->place[node], s->place[other]);
        }
    }
    s->shift->work += count;
    return change;
}

typedef struct {
    Gain gain;
    int64_t target;
} Move;

static void consider(Move *best, Gain gain, int64_t target) {
    if (is_less(gain, best->gain)) *best = (Move){gain, target};
}

// Beginning at each place before the start, down to the lowest.
static void look_earlier(State *s, int64_t start, int64_t length, int64_t low, Move *best) {
    Shift *shift = s->shift;
    const Lists reads = shift->reads;
    const int64_t rank = sum_block(s, shift->ranks, start, length);
    const int64_t made = sum_block(s, shift->made, start, length);
    int64_t loose = mark_dying(s, start, length), mark = s->epoch;
    Gain gain = {0, 0, 0};
    for (int64_t place = start - 1; place >= low; place--) {
        const int64_t node = s->order[place];
        gain.attraction += length * shift->ranks[node] - rank;
        gain.total += made - loose - length * shift->made[node];
        for (int64_t i = reads.starts[node]; i < reads.starts[node + 1]; i++) {
            const int64_t buffer = reads.items[i], frees = shift->frees[buffer];
            if (s->stamp[buffer] == mark) {  // from now on it is this node after which it dies
                s->stamp[buffer] = 0;
                loose -= frees;
                gain.total += frees * (start + length - s->last[buffer]);
            } else if (s->last[buffer] == place) {
                gain.total += length * frees;
            }
        }
        gain.stretch = stretch(s, start, length, place);
        consider(best, gain, place);
    }
    shift->work += start - low + length;
}

// Beginning at each place after the start, up to the highest.
static void look_later(State *s, int64_t start, int64_t length, int64_t high, Move *best) {
    Shift *shift = s->shift;
    const Lists reads = shift->reads;
    const int64_t rank = sum_block(s, shift->ranks, start, length);
    const int64_t made = sum_block(s, shift->made, start, length);
    int64_t loose = mark_dying(s, start, length);
    mark_reads(s, start, length);
    const int64_t mark = s->epoch;
    Gain gain = {0, 0, 0};
    for (int64_t place = start + 1; place <= high; place++) {
        const int64_t end = place + length - 1, node = s->order[end];
        gain.attraction += rank - length * shift->ranks[node];
        gain.total += loose - made + length * shift->made[node];
        for (int64_t i = reads.starts[node]; i < reads.starts[node + 1]; i++) {
            const int64_t buffer = reads.items[i], frees = shift->frees[buffer];
            if (s->last[buffer] != end) continue;
            if (s->stamp[buffer] == mark) {  // from now on it is the block after which it dies
                loose += frees;
                gain.total += frees * (s->value[buffer] + 1 - start - length);
            } else {
                gain.total -= length * frees;
            }
        }
        gain.stretch = stretch(s, start, length, place);
        consider(best, gain, place);
    }
    shift->work += high - start + length;
}

// -- making moves ---------------------------------------------------------------------------------

// Finds again what depends on the order from place `first` to `end`.
static void refresh(State *s, int64_t first, int64_t end) {
    const Shift *shift = s->shift;
    const Lists reads = shift->reads;
    s->epoch++;
    for (int64_t place = end - 1; place >= first; place--) {
        const int64_t node = s->order[place];
        int64_t change = shift->made[node];
        s->place[node] = place;
        for (int64_t i = reads.starts[node]; i < reads.starts[node + 1]; i++) {
            const int64_t buffer = reads.items[i];
            if (s->last[buffer] >= end || s->stamp[buffer] == s->epoch || shift->stays[buffer])
                continue;
            s->stamp[buffer] = s->epoch;
            s->last[buffer] = place;
            change -= shift->frees[buffer];
        }
        s->live[place + 1] = change;
    }
    for (int64_t place = first; place < end; place++) s->live[place + 1] += s->live[place];
}

// Of the steps from place `first` to `end`, the sum and the highest; what takes no time is nothing.
static int64_t sum_steps(const State *s, int64_t first, int64_t end, int64_t *highest) {
    const Shift *shift = s->shift;
    int64_t sum = 0;
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
        sum += step;
        if (step > *highest) *highest = step;
    }
    return sum;
}

// Makes a move if it gains when all is counted, and the peak allows it.
static bool accept(State *s, int64_t start, int64_t length, Move move) {
    const int64_t first = start < move.target ? start : move.target;
    const int64_t end = (start < move.target ? move.target : start) + length;
    const size_t bytes = (size_t)(end - first) * sizeof(int64_t);
    int64_t highest, *old = s->new_place;  // which has room for all nodes, and is free now
    const int64_t before = sum_steps(s, first, end, &highest);
    write_moved(s, start, length, move.target);
    memcpy(old, s->order + first, bytes);
    memcpy(s->order + first, s->scratch, bytes);
    refresh(s, first, end);
    move.gain.total = sum_steps(s, first, end, &highest) - before;
    s->shift->work += 2 * (end - first);
    const int64_t most = s->peak > 0 ? s->peak : 0;
    if (is_less(move.gain, (Gain){0, 0, 0}) && (!s->shift->keeps_peak || highest <= most))
        return true;
    memcpy(s->order + first, old, bytes);
    refresh(s, first, end);
    return false;
}

// -- the search -----------------------------------------------------------------------------------

// The lowest and the highest place at which a block may begin.
static void find_room(const State *s, int64_t start, int64_t length, int64_t *low, int64_t *high) {
    const Shift *shift = s->shift;
    const int64_t end = start + length, window = shift->window;
    *low = start > window ? start - window : 0;
    *high = shift->nodes - end > window ? end + window : shift->nodes;
    for (int64_t place = start; place < end; place++) {
        const int64_t node = s->order[place];
        for (int64_t i = s->starts[node]; i < s->starts[node + 1]; i++) {
            const int64_t other = s->place[s->earlier[i]];
            if (other >= *low && other < start) *low = other + 1;
        }
        for (int64_t i = shift->later.starts[node]; i < shift->later.starts[node + 1]; i++) {
            const int64_t other = s->place[shift->later.items[i]];
            if (other >= end && other < *high) *high = other;
        }
    }
    *high -= length;
}

static bool is_any_within(const State *s, Lists lists, int64_t node, int64_t low, int64_t high) {
    for (int64_t i = lists.starts[node]; i < lists.starts[node + 1]; i++)
        if (s->place[lists.items[i]] >= low && s->place[lists.items[i]] < high) return true;
    return false;
}

// True if the neighbours on both sides of a block hold it where it is.
static bool is_wedged(const State *s, int64_t start, int64_t end) {
    const Lists later = s->shift->later, earlier = {s->starts, s->earlier};
    return (start == 0 || is_any_within(s, later, s->order[start - 1], start, end)) &&
           (end == s->shift->nodes || is_any_within(s, earlier, s->order[end], start, end));
}

static void try_block(State *s, int64_t node, int64_t length) {
    const int64_t start = s->place[node], nodes = s->shift->nodes;
    s->tried[node] = length;
    if (start + length > nodes) return;
    s->shift->work++;
    if (is_wedged(s, start, start + length)) return;
    int64_t low, high;
    find_room(s, start, length, &low, &high);
    Move best = {{0, 0, 0}, start};
    if (low < start) look_earlier(s, start, length, low, &best);
    if (high > start) look_later(s, start, length, high, &best);
    if (best.target == start || !accept(s, start, length, best)) return;
    s->shift->moves++;
    int64_t first = (start < best.target ? start : best.target) - length;
    int64_t end = (start < best.target ? best.target : start) + 2 * length;
    if (end > nodes) end = nodes;
    for (int64_t place = first > 0 ? first : 0; place < end; place++) s->tried[s->order[place]] = 0;
}

static bool is_over(State *s) {
    const Shift *shift = s->shift;
    if (shift->moves >= shift->most_moves || shift->work > shift->most_work) return true;
    if (s->questions++ % BETWEEN_QUESTIONS) return false;
    const int answer = shift->is_over(shift->caller);
    if (answer < 0) s->outcome = INTERRUPTED;
    return answer != 0;
}

static bool can_any_move(State *s, int64_t length) {
    if (length >= s->shift->window) return false;
    for (int64_t place = 0; place < s->shift->nodes - length; place++) {
        s->shift->work++;
        if (!is_wedged(s, place, place + length + 1)) return true;
    }
    return false;
}

static void search(State *s) {
    Shift *shift = s->shift;
    int64_t length = 1, settled = 0;
    while (!is_over(s)) {
        const int64_t moves = shift->moves;
        for (int64_t i = 0; i < shift->nodes; i++) {
            if (s->tried[shift->shuffled[i]] != length - 1) continue;
            try_block(s, shift->shuffled[i], length);
            if (is_over(s)) return;
        }
        if (shift->moves > moves) {
            length = 1;
        } else if (can_any_move(s, length)) {
            length++;
        } else if (shift->moves > settled) {
            length = 1, settled = shift->moves;
            memset(s->tried, 0, (size_t)shift->nodes * sizeof(int64_t));
        } else {
            return;
        }
    }
}

static void find_earlier(State *s) {
    const Lists later = s->shift->later;
    const int64_t nodes = s->shift->nodes, edges = later.starts[nodes];
    for (int64_t i = 0; i < edges; i++) s->starts[later.items[i] + 2]++;
    for (int64_t node = 0; node < nodes; node++) s->starts[node + 2] += s->starts[node + 1];
    for (int64_t node = 0; node < nodes; node++)  // each start moves to the end of its list
        for (int64_t i = later.starts[node]; i < later.starts[node + 1]; i++)
            s->earlier[s->starts[later.items[i] + 1]++] = node;
}

static int64_t *cut(int64_t **memory, int64_t count) {
    *memory += count;
    return *memory - count;
}

Outcome shift_blocks(Shift *shift) {
    const int64_t nodes = shift->nodes, buffers = shift->buffers;
    const int64_t edges = shift->later.starts[nodes];
    int64_t *const all = calloc((size_t)(7 * nodes + 3 * buffers + edges + 4), sizeof(int64_t));
    int64_t *memory = all;
    if (!all) return NO_MEMORY;
    State s = {.shift = shift, .order = shift->order};
    s.place = cut(&memory, nodes), s.tried = cut(&memory, nodes);
    s.live = cut(&memory, nodes + 1), s.starts = cut(&memory, nodes + 2);
    s.scratch = cut(&memory, nodes), s.new_place = cut(&memory, nodes),
    s.seen = cut(&memory, nodes);
    s.last = cut(&memory, buffers), s.value = cut(&memory, buffers),
    s.stamp = cut(&memory, buffers);
    s.earlier = cut(&memory, edges);
    for (int64_t buffer = 0; buffer < buffers; buffer++) s.last[buffer] = -1;
    s.live[0] = shift->first_live;
    find_earlier(&s);
    refresh(&s, 0, nodes);
    sum_steps(&s, 0, nodes, &s.peak);
    search(&s);
    free(all);
    return s.outcome;
}
