// Where blocks of nodes may go: the places that hold each place, kept up to date.
#include "search.h"

// The place of the last node of a list before a limit; -1 if there is none.
static int64_t last_before(const State *s, ShortLists lists, int64_t node, int64_t limit) {
    int64_t last = -1;
    for (int64_t i = lists.starts[node]; i < lists.starts[node + 1]; i++) {
        const int64_t place = s->place[lists.items[i]];
        if (place < limit && place > last) last = place;
    }
    return last;
}

// The place of the first node of a list at or behind a limit; the number of nodes if none is there.
static int64_t first_from(const State *s, ShortLists lists, int64_t node, int64_t limit) {
    int64_t first = s->shift->nodes;
    for (int64_t i = lists.starts[node]; i < lists.starts[node + 1]; i++) {
        const int64_t place = s->place[lists.items[i]];
        if (place >= limit && place < first) first = place;
    }
    return first;
}

// A place outside is held by another one only if none is nearer, so that lists of nodes outside,
// which may be long, are not looked through.
void find_neighbours(State *s, int64_t first, int64_t end) {
    const ShortLists later = s->later, earlier = s->earlier;
    for (int64_t place = end - 1; place >= first; place--) {
        const int64_t node = s->order[place];
        s->until[place] = (int32_t)first_from(s, later, node, place);
        for (int64_t i = earlier.starts[node]; i < earlier.starts[node + 1]; i++) {
            const int64_t other = s->place[earlier.items[i]];
            if (other < first && s->until[other] >= first) s->until[other] = (int32_t)place;
        }
    }
    for (int64_t place = first; place < end; place++) {
        const int64_t node = s->order[place];
        s->after[place] = (int32_t)last_before(s, earlier, node, place);
        for (int64_t i = later.starts[node]; i < later.starts[node + 1]; i++) {
            const int64_t other = s->place[later.items[i]];
            if (other >= end && s->after[other] < end) s->after[other] = (int32_t)place;
        }
    }
}

// The last place before a block that holds one of its nodes, from one of them on; no further than
// its left neighbour, which is told without looking at lists.
static int64_t last_holder(const State *s, int64_t from, int64_t start, int64_t end, int64_t last) {
    if (start > 0 && s->until[start - 1] < end) return start - 1;
    for (int64_t place = from; place < end; place++) {
        int64_t after = s->after[place];
        if (after >= start) after = last_before(s, s->earlier, s->order[place], start);
        if (after > last) last = after;
    }
    return last;
}

// The first place behind a block that holds one of its nodes; as above.
static int64_t first_holder(
    const State *s, int64_t from, int64_t start, int64_t end, int64_t first) {
    if (end < s->shift->nodes && s->after[end] >= start) return end;
    for (int64_t place = from; place < end; place++) {
        int64_t until = s->until[place];
        if (until < end) until = first_from(s, s->later, s->order[place], end);
        if (until < first) first = until;
    }
    return first;
}

// A block is one node longer than the last one that was looked at from its start, as a rule: if
// nothing has moved since, only that node is new.
void find_room(State *s, int64_t start, int64_t length, int64_t *low, int64_t *high) {
    const int64_t end = start + length, window = s->shift->window, nodes = s->shift->nodes;
    Room *const room = &s->rooms[start];
    const bool grows = length > 1 && room->moves == s->shift->moves && room->end == end - 1;
    const bool holds = grows && room->until > room->end;  // else what held it is inside now
    const int64_t after =
        last_holder(s, grows ? end - 1 : start, start, end, grows ? room->after : -1);
    const int64_t until =
        first_holder(s, holds ? end - 1 : start, start, end, holds ? room->until : nodes);
    *room = (Room){s->shift->moves, (int32_t)end, (int32_t)after, (int32_t)until};
    const int64_t lowest = start > window ? start - window : 0;
    const int64_t highest = nodes - end > window ? end + window : nodes;
    *low = after >= lowest ? after + 1 : lowest;
    *high = (until < highest ? until : highest) - length;
}
