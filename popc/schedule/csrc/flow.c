// A network of nodes and buffers: what has run when a node begins is one side of a cut.  A buffer
// counts if its maker has run and one of its readers has not, so the lightest cut is the heaviest
// flow from what has run to what has not, by Dinic's algorithm.
#include "flow.h"

#include <stdlib.h>
#include <string.h>

#define ENDLESS ((int64_t)1 << 62)

typedef struct {
    const Bound *bound;
    int64_t points, arcs;  // points: nodes, buffers, what has always run, what never runs
    int64_t *starts, *ends;  // of each point, its arcs
    int64_t *target, *back, *room, *left;  // of each arc: `back` is the same arc the other way
    int8_t *side;  // of each point: 1 has run, -1 has not, 0 may be either
    int64_t *level, *next, *queue;  // of each point: how far away, the next arc to try; a list
    int64_t *path;  // arcs
    int64_t *fringe;  // points
    int64_t fringe_count, reached_count;  // points that `queue` holds, of which these come first
} Network;

static void connect(Network *n, int64_t from, int64_t to, int64_t room) {
    const int64_t there = n->ends[from]++, back = n->ends[to]++;
    n->target[there] = to, n->back[there] = back, n->room[there] = room;
    n->target[back] = from, n->back[back] = there, n->room[back] = 0;
}

typedef void Visit(Network *network, int64_t from, int64_t to, int64_t room);

static void count_arc(Network *n, int64_t from, int64_t to, int64_t room) {
    (void)room;
    n->ends[from]++, n->ends[to]++;
}

// Visits all arcs: who runs after whom, who reads what, what dies when it has been read.
static void visit_arcs(Network *n, Visit *visit) {
    const Bound *bound = n->bound;
    const Shift *problem = bound->problem;
    const int64_t nodes = problem->nodes, always = nodes + problem->buffers, never = always + 1;
    const Lists later = problem->later, reads = problem->reads, makes = bound->makes;
    for (int64_t node = 0; node < nodes; node++) {
        for (int64_t i = later.starts[node]; i < later.starts[node + 1]; i++)
            visit(n, later.items[i], node, ENDLESS);
        for (int64_t i = reads.starts[node]; i < reads.starts[node + 1]; i++)
            visit(n, nodes + reads.items[i], node, ENDLESS);
        for (int64_t i = makes.starts[node]; i < makes.starts[node + 1]; i++) {
            const int64_t buffer = makes.items[i], leader = bound->freed_with[buffer];
            visit(n, node, problem->stays[leader] ? never : nodes + leader, bound->weights[buffer]);
        }
    }
    for (int64_t i = 0; i < bound->initial_count; i++) {
        const int64_t buffer = bound->initial[i], leader = bound->freed_with[buffer];
        visit(n, always, problem->stays[leader] ? never : nodes + leader, bound->weights[buffer]);
    }
}

// Marks a node and all that wait for it, or all that it waits for.
static void mark(Network *n, int64_t node, Lists lists, int8_t side) {
    int64_t count = 0;
    n->queue[count++] = node;
    n->side[node] = side;
    for (int64_t i = 0; i < count; i++)
        for (int64_t k = lists.starts[n->queue[i]]; k < lists.starts[n->queue[i] + 1]; k++)
            if (!n->side[lists.items[k]]) {
                n->side[lists.items[k]] = side;
                n->queue[count++] = lists.items[k];
            }
}

// Finds what has run and has an arc to what may not have; the others stay out of it.
static void find_fringe(Network *n) {
    n->fringe_count = n->reached_count = 0;
    for (int64_t point = 0; point < n->points; point++) {
        n->level[point] = n->side[point] > 0 ? 0 : -1;
        if (n->side[point] <= 0) continue;
        for (int64_t arc = n->starts[point]; arc < n->ends[point]; arc++)
            if (n->room[arc] && n->side[n->target[arc]] <= 0) {
                n->fringe[n->fringe_count++] = point;
                break;
            }
    }
}

// Finds how far points are from what has run; true if what has not run can be reached.
static bool find_levels(Network *n) {
    int64_t farthest = n->points;  // as soon as it is known, no point farther away matters
    for (int64_t i = n->fringe_count; i < n->reached_count; i++) n->level[n->queue[i]] = -1;
    memcpy(n->queue, n->fringe, (size_t)n->fringe_count * sizeof(int64_t));
    n->reached_count = n->fringe_count;
    for (int64_t i = 0; i < n->reached_count; i++) {
        const int64_t point = n->queue[i];
        if (n->level[point] >= farthest) break;
        for (int64_t arc = n->starts[point]; arc < n->ends[point]; arc++) {
            const int64_t to = n->target[arc];
            if (!n->left[arc] || n->level[to] >= 0) continue;
            n->level[to] = n->level[point] + 1;
            n->queue[n->reached_count++] = to;
            if (n->side[to] < 0) farthest = n->level[to];
        }
    }
    for (int64_t i = 0; i < n->reached_count; i++) n->next[n->queue[i]] = n->starts[n->queue[i]];
    return farthest < n->points;
}

// Sends what a path of so many arcs lets through.
static int64_t send(Network *n, int64_t length) {
    int64_t most = ENDLESS;
    for (int64_t i = 0; i < length; i++)
        if (n->left[n->path[i]] < most) most = n->left[n->path[i]];
    for (int64_t i = 0; i < length; i++) {
        n->left[n->path[i]] -= most;
        n->left[n->back[n->path[i]]] += most;
    }
    return most;
}

// Sends all that can go from a point on shortest ways.
static int64_t send_from(Network *n, int64_t start) {
    int64_t sent = 0, length = 0, point = start;
    while (true) {
        if (n->side[point] < 0) {
            sent += send(n, length);
            length = 0, point = start;
        }
        int64_t *arc = &n->next[point];
        while (*arc < n->ends[point] &&
               !(n->left[*arc] && n->level[n->target[*arc]] == n->level[point] + 1))
            ++*arc;
        if (*arc < n->ends[point]) {
            n->path[length++] = *arc;
            point = n->target[*arc];
        } else if (length) {
            point = n->target[n->back[n->path[--length]]];
            n->next[point]++;
        } else {
            return sent;
        }
    }
}

static int64_t find_flow(Network *n) {
    int64_t flow = 0;
    memcpy(n->left, n->room, (size_t)n->arcs * sizeof(int64_t));
    find_fringe(n);
    while (find_levels(n))
        for (int64_t i = 0; i < n->fringe_count; i++) flow += send_from(n, n->fringe[i]);
    return flow;
}

// The fewest bytes live when a node begins; `earlier` are those that nodes wait for.
static int64_t find_least(Network *n, int64_t node, Lists earlier) {
    memset(n->side, 0, (size_t)n->points);
    mark(n, node, earlier, 1);
    n->side[node] = 0;
    mark(n, node, n->bound->problem->later, -1);
    n->side[n->points - 2] = 1, n->side[n->points - 1] = -1;
    return find_flow(n);
}

// Lays out all arcs in a block of memory; NULL if there is none.
static int64_t *lay_out(Network *n) {
    const Bound *bound = n->bound;
    const Shift *problem = bound->problem;
    const int64_t nodes = problem->nodes;
    n->points = nodes + problem->buffers + 2;
    n->arcs = 2 * (problem->later.starts[nodes] + problem->reads.starts[nodes] +
                   bound->makes.starts[nodes] + bound->initial_count);
    int64_t *memory = calloc((size_t)(7 * n->points + 4 * n->arcs + 1), sizeof(int64_t));
    int64_t *const all = memory;
    if (!all) return NULL;
    n->starts = cut(&memory, n->points + 1), n->ends = cut(&memory, n->points);
    n->level = cut(&memory, n->points), n->next = cut(&memory, n->points);
    n->queue = cut(&memory, n->points), n->path = cut(&memory, n->points);
    n->fringe = cut(&memory, n->points);
    n->target = cut(&memory, n->arcs), n->back = cut(&memory, n->arcs);
    n->room = cut(&memory, n->arcs), n->left = cut(&memory, n->arcs);
    visit_arcs(n, count_arc);
    for (int64_t i = 0; i < n->points; i++) n->starts[i + 1] = n->starts[i] + n->ends[i];
    memcpy(n->ends, n->starts, (size_t)n->points * sizeof(int64_t));
    visit_arcs(n, connect);
    return all;
}

Outcome find_least_bytes(const Bound *bound, const int64_t *nodes, int64_t count, int64_t *bytes) {
    const Lists later = bound->problem->later;
    const int64_t all_nodes = bound->problem->nodes;
    Network network = {.bound = bound};
    int64_t *const memory = lay_out(&network);
    const size_t numbers = (size_t)(all_nodes + 2 + later.starts[all_nodes]);
    int64_t *const starts = malloc(numbers * sizeof(int64_t));
    network.side = malloc((size_t)network.points);
    const bool had_memory = memory && starts && network.side;
    if (had_memory) {
        const Lists earlier = {starts, starts + all_nodes + 2};
        turn_around(later, all_nodes, all_nodes, starts, starts + all_nodes + 2);
        for (int64_t i = 0; i < count; i++) bytes[i] = find_least(&network, nodes[i], earlier);
    }
    free(memory);
    free(starts);
    free(network.side);
    return had_memory ? DONE : NO_MEMORY;
}
