// What moves of blocks gain.
#include <string.h>

#include "search.h"

enum { FEW_READERS = 4 };  // for each place that is looked at

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
        for (int64_t i = s->reads.starts[node]; i < s->reads.starts[node + 1]; i++) {
            const int64_t buffer = s->reads.items[i], last = s->last[buffer];
            if (last < start || last >= start + length || s->stamp[buffer] == s->epoch) continue;
            s->stamp[buffer] = s->epoch;
            bytes += shift->frees[buffer];
        }
    }
    return bytes;
}

// Marks the buffers that a block reads, with the place of the last reader in it.
static void mark_reads(State *s, int64_t start, int64_t length) {
    const ShortLists reads = s->reads;
    s->epoch++;
    for (int64_t place = start; place < start + length; place++) {
        const int64_t node = s->order[place];
        for (int64_t i = reads.starts[node]; i < reads.starts[node + 1]; i++) {
            s->stamp[reads.items[i]] = s->epoch;
            s->value[reads.items[i]] = (int32_t)place;
        }
    }
}

int64_t write_moved(const State *s, int64_t start, int64_t length, int64_t target) {
    const size_t block = (size_t)length * sizeof(int32_t);
    if (target < start) {
        memcpy(s->scratch, s->order + start, block);
        memcpy(s->scratch + length, s->order + target, (size_t)(start - target) * sizeof(int32_t));
        return start - target + length;
    }
    const int64_t between = target - start;
    memcpy(s->scratch, s->order + start + length, (size_t)between * sizeof(int32_t));
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
        s->new_place[s->scratch[i]] = (int32_t)(first + i);
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

static void consider(Move *best, Gain gain, int64_t target) {
    if (is_less(gain, best->gain)) *best = (Move){gain, target};
}

// -- by all that counts ----------------------------------------------------------------------------

static void walk_earlier(State *s, int64_t start, int64_t length, int64_t low, Move *best) {
    Shift *shift = s->shift;
    const ShortLists reads = s->reads;
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
}

static void walk_later(State *s, int64_t start, int64_t length, int64_t high, Move *best) {
    Shift *shift = s->shift;
    const ShortLists reads = s->reads;
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
}

// -- by the total alone ----------------------------------------------------------------------------

// Without moves, what is live before and behind a place tells what dies there.  A move changes more
// only where a buffer that its block reads gets another last reader: few places, noted as turns.

// Turns only make a move worse: one that gains nothing without them is told by these bytes alone.

static bool may_go_earlier(const State *s, int64_t start, int64_t length, int64_t low) {
    const int64_t change = s->live[start + length] - s->live[start];
    for (int64_t place = start - 1; place >= low; place--)
        if ((start - place) * change < length * (s->live[start] - s->live[place])) return true;
    return false;
}

static bool may_go_later(
    const State *s, int64_t start, int64_t length, int64_t high, int64_t most) {
    const int64_t end = start + length, change = s->live[end] - s->live[start];
    for (int64_t steps = 1; steps <= high - start; steps++)
        if (length * (s->live[end + steps] - s->live[end]) - steps * change < most) return true;
    return false;
}

static void note(State *s, int64_t place, int64_t frees, int64_t steps) {
    s->turns[place] += frees;
    s->changes[place] += frees * steps;
}

// The last place before a block at which a buffer is read; -1 if there is none.
static int64_t last_read_before(const State *s, int64_t buffer, int64_t start) {
    int64_t last = -1;
    for (int64_t i = s->readers.starts[buffer]; i < s->readers.starts[buffer + 1]; i++) {
        const int64_t place = s->place[s->readers.items[i]];
        if (place < start && place > last) last = place;
    }
    return last;
}

// True if buffers that die in a block have so many readers that a walk is shorter.
static bool are_readers_many(const State *s, int64_t start, int64_t length, int64_t low) {
    const ShortLists reads = s->reads;
    int64_t left = FEW_READERS * (start - low + length);
    for (int64_t place = start; place < start + length; place++) {
        const int64_t node = s->order[place];
        for (int64_t i = reads.starts[node]; i < reads.starts[node + 1]; i++) {
            const int32_t *first = s->readers.starts + reads.items[i];
            if (s->last[reads.items[i]] == place) left -= first[1] - first[0];
        }
    }
    return left < 0;
}

static void scan_earlier(State *s, int64_t start, int64_t length, int64_t low, Move *best) {
    const ShortLists reads = s->reads;
    const int64_t end = start + length;
    for (int64_t place = start; place < end; place++) {
        const int64_t node = s->order[place];
        for (int64_t i = reads.starts[node]; i < reads.starts[node + 1]; i++) {
            const int64_t buffer = reads.items[i];
            if (s->last[buffer] != place) continue;
            const int64_t turn = last_read_before(s, buffer, start);
            if (turn >= low) note(s, turn, s->shift->frees[buffer], end - place);
        }
    }
    int64_t total = 0, change = s->live[end] - s->live[start];
    int64_t lowest = best->gain.total, target = best->target;
    for (int64_t place = start - 1; place >= low; place--) {
        total += change - length * (s->live[place + 1] - s->live[place]) + s->changes[place];
        change += s->turns[place];
        s->turns[place] = s->changes[place] = 0;
        if (total < lowest) lowest = total, target = place;
    }
    *best = (Move){{0, 0, lowest}, target};
}

static void scan_later(State *s, int64_t start, int64_t length, int64_t high, Move *best) {
    const ShortLists reads = s->reads;
    const int64_t end = start + length;
    mark_reads(s, start, length);
    for (int64_t place = start; place < end; place++) {
        const int64_t node = s->order[place];
        for (int64_t i = reads.starts[node]; i < reads.starts[node + 1]; i++) {
            const int64_t buffer = reads.items[i], turn = s->last[buffer];
            if (s->value[buffer] == place && turn >= end && turn < high + length)
                note(s, turn, s->shift->frees[buffer], place + 1 - start);
        }
    }
    int64_t total = 0, change = s->live[end] - s->live[start];
    int64_t lowest = best->gain.total, target = best->target;
    for (int64_t place = start + 1; place <= high; place++) {
        const int64_t turn = place + length - 1;
        total += length * (s->live[turn + 1] - s->live[turn]) - change + s->changes[turn];
        change -= s->turns[turn];
        s->turns[turn] = s->changes[turn] = 0;
        if (total < lowest) lowest = total, target = place;
    }
    *best = (Move){{0, 0, lowest}, target};
}

// -- either way ------------------------------------------------------------------------------------

void look_earlier(State *s, int64_t start, int64_t length, int64_t low, Move *best) {
    s->shift->work += start - low + length;
    if (s->has_levels)
        walk_earlier(s, start, length, low, best);
    else if (!may_go_earlier(s, start, length, low))
        return;
    else if (are_readers_many(s, start, length, low))
        walk_earlier(s, start, length, low, best);
    else
        scan_earlier(s, start, length, low, best);
}

void look_later(State *s, int64_t start, int64_t length, int64_t high, Move *best) {
    s->shift->work += high - start + length;
    if (s->has_levels)
        walk_later(s, start, length, high, best);
    else if (may_go_later(s, start, length, high, best->gain.total))
        scan_later(s, start, length, high, best);
}
