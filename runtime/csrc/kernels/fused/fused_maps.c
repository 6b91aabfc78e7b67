// Programs of maps: every step runs on a block of elements before the next block begins, so that
// what lies between steps stays in the first-level cache.
#include <stdlib.h>

#include "../support/elements.h"
#include "../elementwise/maps.h"
#include "../support/sizes.h"

// Bounds of a record, which native/encoders/fused.py keeps to; and elements of a block: 4 KiB of floats
// for each slot, so that what a few steps read and write stays in the first cache.
enum { MAX_TENSORS = 24, MAX_SLOTS = 24, MAX_STEPS = 96, BLOCK = 1024 };
enum { CHUNK_COST = 16384 };  // of a chunk, in additions, as in map.c
enum { WORTH_ROW = 256 };  // elements of a row that are a block of their own

// A tensor in the order in which elements of the result lie in memory.
typedef struct {
    char *data;
    int64_t size;  // of an element
    int rank;
    int64_t dims[MAX_RANK], strides[MAX_RANK];
    bool repeats;  // all blocks are the same
    int64_t block;  // where in the memory of a thread a block of its elements is put together
} Walk;

// References are numbers of tensors, and of slots behind them.
typedef struct {
    void *map;
    int operands;
    int references[MAX_OPERANDS + 1];  // the result, then operands
} Step;

typedef struct {
    int64_t count, chunk, block;  // elements
    int64_t row;  // of elements that no block goes beyond the end of; 0: there are none
    int tensors, slots, steps;
    Walk walks[MAX_TENSORS];  // the result is the first
    int64_t sizes[MAX_SLOTS], places[MAX_SLOTS];  // bytes of an element; where its block lies
    Step program[MAX_STEPS];
} State;

static void release(void *argument) {
    State *state = argument;
    for (int i = 0; i < state->steps; i++) free(state->program[i].map);
    free(state);
}

// The dimensions of `out` in the order in which it lies in memory, the innermost last.
static void memory_order(const Tensor *out, int *order) {
    for (int axis = 0; axis < out->rank; axis++) {
        int at = axis;
        for (; at > 0; at--) {
            if (llabs(out->strides[order[at - 1]]) >= llabs(out->strides[axis])) break;
            order[at] = order[at - 1];
        }
        order[at] = axis;
    }
}

// Joins dimensions that are one loop.
static Walk walk_of(const Tensor *tensor, const int *order) {
    Walk walk = {.data = tensor->data, .size = item_size(tensor->dtype)};
    for (int i = 0; i < tensor->rank; i++) {
        const int64_t dim = tensor->dims[order[i]], stride = tensor->strides[order[i]];
        if (dim == 1) continue;
        const int last = walk.rank - 1;
        if (last >= 0 && walk.strides[last] == stride * dim) {
            walk.dims[last] *= dim;
            walk.strides[last] = stride;
        } else {
            walk.dims[walk.rank] = dim;
            walk.strides[walk.rank++] = stride;
        }
    }
    if (walk.rank == 0) walk.dims[walk.rank++] = 1;
    return walk;
}

// Elements after which a tensor that is the same along its first dimension begins again; 0 of others.
static int64_t period_of(const Walk *walk) {
    if (walk->rank < 2 || walk->strides[0] != 0) return 0;
    int64_t period = 1;
    for (int axis = 1; axis < walk->rank; axis++) period *= walk->dims[axis];
    return period;
}

// Rows of `width`, or as many as the longest period has that still fits in a block.
static int64_t block_of_rows(const State *state, int64_t width) {
    int64_t unit = width;
    for (int i = 1; i < state->tensors; i++) {
        const int64_t period = period_of(&state->walks[i]);
        if (period > unit && period <= BLOCK && period % unit == 0) unit = period;
    }
    return BLOCK / unit * unit;
}

// Blocks are parts of the shortest rows, so that operands are read where they lie, or some short
// ones, which are put together; if those are the same in all blocks, once.
static void choose_block(State *state) {
    int64_t width = INT64_MAX;
    for (int i = 0; i < state->tensors; i++) {
        const Walk *walk = &state->walks[i];
        const int64_t inner = walk->dims[walk->rank - 1];
        if (walk->rank > 1 && inner < width) width = inner;
    }
    state->block = BLOCK;
    if (width == INT64_MAX) return;
    if (width < WORTH_ROW) {
        state->block = block_of_rows(state, width);
    } else {
        const int64_t parts = ceil_div(width, BLOCK);
        state->row = width;
        state->block = (width / parts / WHOLE_VECTORS + 1) * WHOLE_VECTORS;
        if (state->block > BLOCK) state->block = BLOCK;
    }
    for (int i = 1; i < state->tensors && !state->row; i++) {
        const int64_t period = period_of(&state->walks[i]);
        state->walks[i].repeats = period > 0 && state->block % period == 0;
    }
}

static bool read_tensors(State *state, Params *params) {
    Tensor out = {0};
    int order[MAX_RANK] = {0};
    state->tensors = (int)next_int(params);
    if (state->tensors < 1 || state->tensors > MAX_TENSORS) return false;
    for (int i = 0; i < state->tensors; i++) {
        const Tensor tensor = next_tensor(params);
        if (i == 0) {
            out = tensor;
            memory_order(&out, order);
        }
        if (params->bad || !tensor.data || tensor.dtype < F32 || tensor.dtype > BOOL ||
            !has_shape_of(&tensor, &out))
            return false;
        state->walks[i] = walk_of(&tensor, order);
    }
    state->count = element_count(&out);
    choose_block(state);
    return state->count > 0;
}

static bool read_slots(State *state, Params *params) {
    state->slots = (int)next_int(params);
    if (state->slots < 0 || state->slots > MAX_SLOTS) return false;
    for (int i = 0; i < state->slots; i++) {
        const int64_t size = state->sizes[i] = next_int(params);
        if (size != 1 && size != 2 && size != 4 && size != 8) return false;
    }
    return true;
}

// The bytes of elements behind a reference; 0 if there is nothing.
static int64_t size_behind(const State *state, int64_t reference) {
    if (reference < 0 || reference >= state->tensors + state->slots) return 0;
    if (reference < state->tensors) return state->walks[reference].size;
    return state->sizes[reference - state->tensors];
}

// A number of a kernel that is a map, and its record, in which references plus one stand for addresses.
// What is written are slots or the result, which nothing reads.
static bool read_step(State *state, Params *params, Step *step) {
    const Kernel *kernel = find_kernel(ISA(FAMILIES), next_int(params));
    if (!kernel || kernel->run != ISA(map_run)) return false;
    Params ahead = *params;
    Needs needs = {0};
    step->map = kernel->prepare(params, &needs);
    if (!step->map) return false;
    state->steps++;
    step->operands = ISA(map_of)(step->map)->operands;
    for (int i = 0; i <= step->operands; i++) {
        const Tensor tensor = next_tensor(&ahead);
        const int64_t reference = (intptr_t)tensor.data - 1;
        if (size_behind(state, reference) != item_size(tensor.dtype)) return false;
        if (i == 0 ? reference > 0 && reference < state->tensors : reference == 0) return false;
        step->references[i] = (int)reference;
    }
    return !params->bad;
}

static bool read_steps(State *state, Params *params) {
    const int64_t steps = next_int(params);
    if (steps < 1 || steps > MAX_STEPS) return false;
    int64_t cost = 0;
    for (int64_t i = 0; i < steps; i++) {
        if (!read_step(state, params, &state->program[i])) return false;
        cost += ISA(map_of)(state->program[i].map)->cost;
    }
    const int64_t unit = state->row ? state->row : state->block;
    const int64_t units = CHUNK_COST / (cost * unit);
    state->chunk = unit * (units > 1 ? units : 1);
    return true;
}

// Gives blocks their places in the memory of a thread; how much that is.
static int64_t place_blocks(State *state) {
    int64_t used = 0;
    for (int i = 0; i < state->slots; i++) {
        state->places[i] = used;
        used += BLOCK * state->sizes[i];
    }
    for (int i = 0; i < state->tensors; i++) {
        state->walks[i].block = used;
        used += BLOCK * state->walks[i].size;
    }
    return used;
}

static void *prepare(Params *params, Needs *needs) {
    State *state = calloc(1, sizeof(State));
    if (!state) return NULL;
    if (read_tensors(state, params) && read_slots(state, params) && read_steps(state, params)) {
        needs->own = place_blocks(state);
        writes_anywhere(needs, &state->walks[0].data);
        for (int i = 1; i < state->tensors; i++) reads_anywhere(needs, &state->walks[i].data);
        return state;
    }
    release(state);
    return NULL;
}

typedef struct { int64_t index[MAX_RANK]; } Position;

// The address of element `begin`, and its indices.
static char *find(const Walk *walk, int64_t begin, Position *position) {
    char *at = walk->data;
    for (int axis = walk->rank - 1; axis > 0; axis--) {
        position->index[axis] = begin % walk->dims[axis];
        begin /= walk->dims[axis];
        at += position->index[axis] * walk->strides[axis];
    }
    position->index[0] = begin;
    return at + begin * walk->strides[0];
}

// The address where the row behind that of `at`, an address in a row at index `index`, begins.
static char *next_row(const Walk *walk, char *at, Position *position) {
    int axis = walk->rank - 1;
    at -= position->index[axis] * walk->strides[axis];
    for (position->index[axis--] = 0; axis >= 0; axis--) {
        at += walk->strides[axis];
        if (++position->index[axis] < walk->dims[axis]) break;
        at -= walk->dims[axis] * walk->strides[axis];
        position->index[axis] = 0;
    }
    return at;
}

static void copy_row(
    char *to, int64_t to_step, const char *from, int64_t from_step, int64_t n, int64_t size) {
    switch (size) {
        case 1: copy_elements(to, to_step, from, from_step, n, 1); break;
        case 2: copy_elements(to, to_step, from, from_step, n, 2); break;
        case 4: copy_elements(to, to_step, from, from_step, n, 4); break;
        default: copy_elements(to, to_step, from, from_step, n, 8);
    }
}

// Elements begin .. begin + n - 1 into `block`, or from it.
static void copy_block(const Walk *walk, char *block, int64_t begin, int64_t n, bool store) {
    const int last = walk->rank - 1;
    const int64_t size = walk->size, step = walk->strides[last];
    Position position;
    char *at = find(walk, begin, &position);
    while (n > 0) {
        const int64_t run = lesser(walk->dims[last] - position.index[last], n);
        if (store)
            copy_row(at, step, block, size, run, size);
        else
            copy_row(block, size, at, step, run, size);
        block += run * size;
        n -= run;
        if (n > 0) at = next_row(walk, at, &position);
    }
}

// Where a block is, if it lies in one row whose elements are side by side, or all the same.
static char *in_place(const Walk *walk, int64_t begin, int64_t n) {
    const int last = walk->rank - 1;
    if (walk->strides[last] != walk->size && walk->strides[last] != 0) return NULL;
    Position position;
    char *at = find(walk, begin, &position);
    return position.index[last] + n <= walk->dims[last] ? at : NULL;
}

static void run_block(const State *state, char *own, int64_t begin, int64_t n, bool first) {
    char *at[MAX_TENSORS + MAX_SLOTS];
    int64_t steps[MAX_TENSORS + MAX_SLOTS];
    for (int i = 0; i < state->tensors; i++) {
        const Walk *walk = &state->walks[i];
        at[i] = in_place(walk, begin, n);
        steps[i] = at[i] ? walk->strides[walk->rank - 1] : walk->size;
        if (at[i]) continue;
        at[i] = own + walk->block;
        if (i > 0 && (first || !walk->repeats)) copy_block(walk, at[i], begin, n, false);
    }
    for (int i = 0; i < state->slots; i++) {
        at[state->tensors + i] = own + state->places[i];
        steps[state->tensors + i] = state->sizes[i];
    }
    for (const Step *step = state->program; step < state->program + state->steps; step++) {
        char *use[MAX_OPERANDS + 1];
        int64_t distances[MAX_OPERANDS + 1];
        for (int i = 0; i <= step->operands; i++) {
            use[i] = at[step->references[i]];
            distances[i] = steps[step->references[i]];
        }
        ISA(map_elements)(step->map, use, distances, n);
    }
    const Walk *out = &state->walks[0];
    if (at[0] == own + out->block) copy_block(out, at[0], begin, n, true);
}

static void run_range(const State *state, char *own, int64_t begin, int64_t end) {
    for (int64_t at = begin, n; at < end; at += n) {
        n = end - at < state->block ? end - at : state->block;
        if (state->row && state->row - at % state->row < n) n = state->row - at % state->row;
        run_block(state, own, at, n, at == begin);
    }
}

typedef struct {
    const State *state;
    const Run *run;
} Task;

static void run_chunk(void *context, int64_t chunk, int thread) {
    const Task *task = context;
    const int64_t begin = chunk * task->state->chunk, end = begin + task->state->chunk;
    const int64_t count = task->state->count;
    run_range(task->state, task->run->own[thread], begin, lesser(end, count));
}

static Failure run_fused(const void *argument, const Run *run) {
    const State *state = argument;
    if (state->count <= 2 * state->chunk) {
        run_range(state, run->own[0], 0, state->count);
        return OK;
    }
    Task task = {state, run};
    share_chunks(run, ceil_div(state->count, state->chunk), run_chunk, &task);
    return OK;
}

const Kernel ISA(FUSED_MAPS)[] = {
    {"FusedMaps", prepare, run_fused, release},
    {NULL, NULL, NULL, NULL},
};
