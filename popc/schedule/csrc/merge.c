#include "merge.h"

#include <stdlib.h>
#include <string.h>

#include "links.h"

// What a node may take over, one after another: bytes, the number of buffers, the buffers.
typedef struct { int64_t count, numbers[]; } Takes;

typedef struct {
    const Merge *merge;
    const Shift *problem;
    Links later, reads, makes;
    Takes **takes;  // of each node
    int64_t *rise, *made;  // of each node
    int64_t *next,
        *last;  // of each node: what is behind it in the list of its members, and its end
    int64_t *numbers;  // of each node that is left
    int64_t *stamp;  // of each buffer
    bool *gone;  // of each node
    Numbers scratch;  // what a node is going to take over
    int64_t epoch;
} Merger;

// -- growing lists --------------------------------------------------------------------------------

static bool append(Numbers *numbers, int64_t number) {
    if (numbers->count == numbers->room) {
        const int64_t room = 2 * numbers->room + 64;
        int64_t *larger = realloc(numbers->items, (size_t)room * sizeof(int64_t));
        if (!larger) return false;
        numbers->items = larger, numbers->room = room;
    }
    numbers->items[numbers->count++] = number;
    return true;
}

// Lets a node take over what stands in `scratch`.
static bool keep_takes(Merger *m, int64_t node) {
    const size_t bytes = (size_t)m->scratch.count * sizeof(int64_t);
    free(m->takes[node]);
    m->takes[node] = NULL;
    if (!bytes) return true;
    Takes *takes = malloc(sizeof(Takes) + bytes);
    if (!takes) return false;
    takes->count = m->scratch.count;
    memcpy(takes->numbers, m->scratch.items, bytes);
    m->takes[node] = takes;
    return true;
}

static const int64_t *begin_takes(const Merger *m, int64_t node) {
    return m->takes[node] ? m->takes[node]->numbers : NULL;
}

static const int64_t *end_takes(const Merger *m, int64_t node) {
    return m->takes[node] ? m->takes[node]->numbers + m->takes[node]->count : NULL;
}

// -- buffers --------------------------------------------------------------------------------------

static bool dies_by_one(const Merger *m, int64_t buffer) {
    return m->reads.incoming[buffer] == 1 && !m->problem->stays[buffer];
}

static bool is_made_by(const Merger *m, int64_t node, int64_t buffer) {
    const int32_t link = m->makes.top[buffer];
    return link >= 0 && m->makes.links[link].source == node;
}

// Marks the buffers that a node reads.
static void mark_reads(Merger *m, int64_t node) {
    m->epoch++;
    for (int32_t i = m->reads.first[node]; i >= 0; i = m->reads.links[i].next)
        m->stamp[m->reads.links[i].target] = m->epoch;
}

// Adds a takeover to `scratch`, with those of its buffers that are not marked, if any is left.
static bool add_unmarked(Merger *m, const int64_t *take) {
    const int64_t start = m->scratch.count;
    if (!append(&m->scratch, take[0]) || !append(&m->scratch, 0)) return false;
    for (int64_t i = 0; i < take[1]; i++)
        if (m->stamp[take[2 + i]] != m->epoch && !append(&m->scratch, take[2 + i])) return false;
    m->scratch.items[start + 1] = m->scratch.count - start - 2;
    if (m->scratch.count == start + 2) m->scratch.count = start;
    return true;
}

// -- whether it is safe ---------------------------------------------------------------------------

static bool can_drop(const Merger *m, int64_t first, int64_t second) {
    int64_t sure = 0, saved = 0;
    for (int32_t i = m->reads.first[second]; i >= 0; i = m->reads.links[i].next)
        if (dies_by_one(m, m->reads.links[i].target))
            sure += m->problem->frees[m->reads.links[i].target];
    if (m->made[second] > sure) return false;
    const int64_t *end = end_takes(m, second);
    for (const int64_t *take = begin_takes(m, second); take < end; take += 2 + take[1])
        for (int64_t i = 0; i < take[1]; i++)
            if (dies_by_one(m, take[2 + i])) {
                saved += take[0];
                break;
            }
    return m->made[first] + m->rise[second] - saved <= m->rise[first];
}

static bool can_delay(const Merger *m, int64_t first, int64_t second) {
    int64_t gain = m->made[first], taken = 0;
    for (int32_t i = m->reads.first[first]; i >= 0; i = m->reads.links[i].next) {
        const int64_t buffer = m->reads.links[i].target;
        if (!m->problem->stays[buffer]) gain -= m->problem->frees[buffer];
    }
    const int64_t *end = end_takes(m, second);
    for (const int64_t *take = begin_takes(m, second); take < end; take += 2 + take[1])
        taken += take[0];
    return gain >= 0 && m->rise[first] <= gain + m->rise[second] - taken;
}

// -- the step of both together --------------------------------------------------------------------

// The needs of both for the first; what the second reads does not die before it.
static bool write_dropped(Merger *m, int64_t first, int64_t second) {
    const int64_t *end = end_takes(m, first);
    mark_reads(m, second);
    for (const int64_t *take = begin_takes(m, first); take < end; take += 2 + take[1])
        if (!add_unmarked(m, take)) return false;
    return true;
}

// True if a takeover of the second node is certain, as the first has made what it takes over.
static bool is_inner(const Merger *m, int64_t first, const int64_t *take) {
    for (int64_t i = 0; i < take[1]; i++)
        if (is_made_by(m, first, take[2 + i]) && dies_by_one(m, take[2 + i])) return true;
    return false;
}

// The needs of the second, on top of what the first has made.
static bool write_delayed(Merger *m, int64_t first, int64_t second) {
    const Shift *problem = m->problem;
    mark_reads(m, second);
    m->rise[first] = m->made[first] + m->rise[second];
    for (int32_t i = m->reads.first[first]; i >= 0; i = m->reads.links[i].next) {
        const int64_t buffer = m->reads.links[i].target, frees = problem->frees[buffer];
        if (frees && m->stamp[buffer] != m->epoch && !problem->stays[buffer])
            if (!append(&m->scratch, frees) || !append(&m->scratch, 1) ||
                !append(&m->scratch, buffer))
                return false;
    }
    const int64_t *end = end_takes(m, second);
    for (const int64_t *take = begin_takes(m, second); take < end; take += 2 + take[1]) {
        if (is_inner(m, first, take)) {
            m->rise[first] -= take[0];
            continue;
        }
        for (int64_t i = 0; i < 2 + take[1]; i++)
            if (!append(&m->scratch, take[i])) return false;
    }
    return true;
}

// -- merging --------------------------------------------------------------------------------------

static void merge_buffers(Merger *m, int64_t first, int64_t second) {
    Links *reads = &m->reads, *makes = &m->makes;
    for (int32_t i = reads->first[second], next; i >= 0; i = next) {
        const int64_t buffer = reads->links[i].target;
        next = reads->links[i].next;
        if (is_made_by(m, first, buffer) &&
            m->merge->weights[buffer] == m->problem->frees[buffer]) {
            remove_link(reads, i);  // what stays inside a node is no buffer
            if (reads->incoming[buffer] || m->problem->stays[buffer]) continue;
            remove_link(makes, makes->top[buffer]);
            m->made[first] -= m->merge->weights[buffer];
        } else if (are_linked(reads, first, buffer)) {
            remove_link(reads, i);
        } else {
            move_source(reads, i, first);
        }
    }
    for (int32_t i = makes->first[second], next; i >= 0; i = next) {
        next = makes->links[i].next;
        move_source(makes, i, first);
    }
    m->made[first] += m->made[second];
}

static void merge_links(Merger *m, int64_t first, int64_t second) {
    Links *later = &m->later;
    for (int32_t i = later->first[second], next; i >= 0; i = next) {
        next = later->links[i].next;
        if (are_linked(later, first, later->links[i].target))
            remove_link(later, i);
        else
            move_source(later, i, first);
    }
    for (int32_t i = later->top[second], below; i >= 0; i = below) {
        const int64_t node = later->links[i].source;
        below = later->links[i].below;
        if (node == first || are_linked(later, node, first))
            remove_link(later, i);
        else
            move_target(later, i, first);
    }
}

// Makes one node of two that were looked at, with what is in `scratch`.
static bool merge_pair(Merger *m, int64_t first, int64_t second) {
    if (!keep_takes(m, first)) return false;
    merge_buffers(m, first, second);
    merge_links(m, first, second);
    m->next[m->last[first]] = second;
    m->last[first] = m->last[second];
    m->gone[second] = true;
    return true;
}

// Merges a successor of a node into it, if there is one that fits.
static bool merge_next(Merger *m, int64_t node, bool *has_memory) {
    const Links *later = &m->later;
    m->scratch.count = 0;
    for (int32_t i = later->first[node]; i >= 0; i = later->links[i].next) {
        const int64_t other = later->links[i].target;
        if (later->incoming[other] != 1 || !can_drop(m, node, other)) continue;
        *has_memory = write_dropped(m, node, other) && merge_pair(m, node, other);
        return *has_memory;
    }
    if (later->outgoing[node] != 1) return false;
    const int64_t other = later->links[later->first[node]].target;
    if (!can_delay(m, node, other)) return false;
    *has_memory = write_delayed(m, node, other) && merge_pair(m, node, other);
    return *has_memory;
}

static bool merge_all(Merger *m) {
    bool has_changed = true, has_memory = true;
    while (has_changed && has_memory) {
        has_changed = false;
        for (int64_t node = 0; node < m->problem->nodes && has_memory; node++)
            while (!m->gone[node] && merge_next(m, node, &has_memory)) has_changed = true;
    }
    return has_memory;
}

// -- before and afterwards ------------------------------------------------------------------------

static void link_all(Links *links, Lists lists, int64_t count) {
    for (int64_t list = 0; list < count; list++)
        for (int64_t i = lists.starts[list]; i < lists.starts[list + 1]; i++)
            add_link(links, list, lists.items[i]);
}

// What a node takes over, but for what never dies.
static bool read_takes(Merger *m, int64_t node) {
    const Shift *problem = m->problem;
    m->scratch.count = 0;
    for (int64_t t = problem->takes.starts[node]; t < problem->takes.starts[node + 1]; t++) {
        const int64_t start = m->scratch.count;
        if (!append(&m->scratch, problem->takes.items[t]) || !append(&m->scratch, 0)) return false;
        for (int64_t c = problem->choices.starts[t]; c < problem->choices.starts[t + 1]; c++) {
            const int64_t buffer = problem->choices.items[c];
            if (!problem->stays[buffer] && !append(&m->scratch, buffer)) return false;
        }
        m->scratch.items[start + 1] = m->scratch.count - start - 2;
        if (m->scratch.count == start + 2) m->scratch.count = start;
    }
    return keep_takes(m, node);
}

static bool set_up(Merger *m) {
    const Shift *problem = m->problem;
    const int64_t nodes = problem->nodes, buffers = problem->buffers;
    const size_t bytes = (size_t)nodes * sizeof(int64_t);
    m->takes = calloc((size_t)nodes + 1, sizeof(Takes *));
    m->gone = calloc((size_t)nodes + 1, sizeof(bool));
    int64_t *memory = calloc((size_t)(buffers + 5 * nodes + 1), sizeof(int64_t));
    m->stamp = memory;
    if (!m->takes || !m->gone || !m->stamp ||
        !make_room(&m->later, nodes, nodes, m->merge->later.starts[nodes]) ||
        !make_room(&m->reads, nodes, buffers, problem->reads.starts[nodes]) ||
        !make_room(&m->makes, nodes, buffers, m->merge->makes.starts[nodes]))
        return false;
    cut(&memory, buffers);
    m->rise = cut(&memory, nodes), m->made = cut(&memory, nodes), m->next = cut(&memory, nodes);
    m->last = cut(&memory, nodes), m->numbers = cut(&memory, nodes);
    memcpy(m->rise, problem->rise, bytes);
    memcpy(m->made, problem->made, bytes);
    memset(m->next, -1, bytes);
    for (int64_t node = 0; node < nodes; node++) {
        m->last[node] = node;
        if (!read_takes(m, node)) return false;
    }
    link_all(&m->later, m->merge->later, nodes);
    link_all(&m->reads, problem->reads, nodes);
    link_all(&m->makes, m->merge->makes, nodes);
    return true;
}

static void clean_up(Merger *m) {
    for (int64_t node = 0; m->takes && node < m->problem->nodes; node++) free(m->takes[node]);
    free(m->takes);
    free(m->gone);
    free(m->stamp);
    free(m->scratch.items);
    free_links(&m->later);
    free_links(&m->reads);
    free_links(&m->makes);
}

static bool write_links(const Links *links, int64_t node, const int64_t *numbers, Numbers *lists) {
    for (int32_t i = links->first[node]; i >= 0; i = links->links[i].next) {
        const int64_t target = links->links[i].target;
        if (!append(&lists[1], numbers ? numbers[target] : target)) return false;
    }
    return append(&lists[0], lists[1].count);
}

static bool write_takes(const Merger *m, int64_t node, Numbers *columns) {
    const int64_t *end = end_takes(m, node);
    for (const int64_t *take = begin_takes(m, node); take < end; take += 2 + take[1]) {
        for (int64_t i = 0; i < take[1]; i++)
            if (!append(&columns[3], take[2 + i])) return false;
        if (!append(&columns[1], take[0]) || !append(&columns[2], columns[3].count)) return false;
    }
    return append(&columns[0], columns[1].count);
}

static bool write_node(const Merger *m, int64_t node, Numbers *columns) {
    for (int64_t member = node; member >= 0; member = m->next[member])
        if (!append(&columns[1], member)) return false;
    return append(&columns[0], columns[1].count) &&
           write_links(&m->later, node, m->numbers, columns + 2) &&
           write_links(&m->reads, node, NULL, columns + 4) &&
           write_links(&m->makes, node, NULL, columns + 6) &&
           append(&columns[8], m->later.incoming[node]) && append(&columns[9], m->rise[node]) &&
           write_takes(m, node, columns + 10);
}

static bool write_all(const Merger *m, Numbers *columns) {
    static const int begin_with_zero[] = {0, 2, 4, 6, 10, 12};
    const int64_t nodes = m->problem->nodes;
    int64_t count = 0;
    bool has_memory = true;
    for (int64_t node = 0; node < nodes; node++)
        if (!m->gone[node]) m->numbers[node] = count++;
    for (int i = 0; i < 6; i++) has_memory = has_memory && append(&columns[begin_with_zero[i]], 0);
    for (int64_t node = 0; has_memory && node < nodes; node++)
        if (!m->gone[node]) has_memory = write_node(m, node, columns);
    return has_memory;
}

Outcome merge_nodes(Merge *merge) {
    Merger merger = {.merge = merge, .problem = merge->problem};
    const bool had_memory = set_up(&merger) && merge_all(&merger) &&
                            write_all(&merger, merge->columns);
    clean_up(&merger);
    return had_memory ? DONE : NO_MEMORY;
}
