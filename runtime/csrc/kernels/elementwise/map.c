// How a map goes through tensors of any shape: dimensions that lie one behind the other become one,
// the innermost one is a loop of its own, and threads take contiguous parts of all elements.
#include <stdlib.h>
#include <string.h>

#include "maps.h"
#include "../support/elements.h"
#include "../support/lines.h"

typedef struct {
    Map map;
    double parameters[MAX_PARAMETERS];
    char *data[MAX_OPERANDS + 1];
    int rank;
    int64_t dims[MAX_RANK];
    int64_t strides[MAX_OPERANDS + 1][MAX_RANK];
    int64_t inner[MAX_OPERANDS + 1];  // strides of the innermost dimension
    int64_t sizes[MAX_OPERANDS + 1];  // bytes of an element in memory
    int64_t count;
    int64_t chunk;  // elements that are worth the while of another thread
    bool converts;
    MapLoop convert[MAX_OPERANDS + 1];  // to the types of the loop, or of the result from it
} State;

// What a chunk costs, in additions.  What is converted goes by blocks of 4 KiB at most for each operand,
// and is still in the first cache when the loop reads it.
enum { CHUNK_COST = 16384, BLOCK = 512, WIDEST = 8 };

// Elements of a row: fewer are put together with those of other rows, so that loops are worth their call.
enum { NARROW = 64 };

// Strides of `tensor` when it is broadcast to the shape of `out`; false if it cannot be.
static bool broadcast(const Tensor *tensor, const Tensor *out, int64_t *strides) {
    int shift = out->rank - tensor->rank;
    if (shift < 0) return false;
    for (int axis = 0; axis < out->rank; axis++) {
        int64_t dim = axis < shift ? 1 : tensor->dims[axis - shift];
        if (dim != 1 && dim != out->dims[axis]) return false;
        strides[axis] = dim == 1 ? 0 : tensor->strides[axis - shift];
    }
    return true;
}

static bool can_merge(const State *state, int outer, int inner, int64_t inner_dim) {
    for (int i = 0; i <= state->map.operands; i++)
        if (state->strides[i][outer] != state->strides[i][inner] * inner_dim) return false;
    return true;
}

// Dimensions in the order in which the result lies in memory, the innermost last.
static void memory_order(State *state, Tensor *out) {
    for (int end = 1; end < out->rank; end++) {
        for (int axis = end; axis > 0; axis--) {
            const int64_t *strides = state->strides[0];
            if (llabs(strides[axis - 1]) >= llabs(strides[axis])) break;
            int64_t dim = out->dims[axis];
            out->dims[axis] = out->dims[axis - 1];
            out->dims[axis - 1] = dim;
            for (int i = 0; i <= state->map.operands; i++) {
                int64_t stride = state->strides[i][axis];
                state->strides[i][axis] = state->strides[i][axis - 1];
                state->strides[i][axis - 1] = stride;
            }
        }
    }
}

// Orders dimensions, leaves out those of 1 and joins those that are one loop for all tensors.
static void collapse(State *state, Tensor *out) {
    memory_order(state, out);
    int rank = 0;
    for (int axis = 0; axis < out->rank; axis++) {
        if (out->dims[axis] == 1) continue;
        if (rank > 0 && can_merge(state, rank - 1, axis, out->dims[axis])) {
            state->dims[rank - 1] *= out->dims[axis];
        } else {
            state->dims[rank++] = out->dims[axis];
        }
        for (int i = 0; i <= state->map.operands; i++)
            state->strides[i][rank - 1] = state->strides[i][axis];
    }
    if (rank == 0) {
        state->dims[rank++] = 1;
        for (int i = 0; i <= state->map.operands; i++) state->strides[i][0] = 0;
    }
    state->rank = rank;
    for (int i = 0; i <= state->map.operands; i++) state->inner[i] = state->strides[i][rank - 1];
}

// Integers of one size are the same to those who ask for them, but booleans need to be 0 or 1.
static bool is_same(int dtype, int wanted) {
    if (dtype == wanted) return true;
    const bool integers = dtype > BF16 && wanted > BF16;
    return integers && item_size((DType)dtype) == item_size((DType)wanted);
}

// Finds the conversion of operand `i`, or of the result if that is 0; false if there is none.
static bool convert(State *state, int i, DType dtype) {
    const int wanted = i ? state->map.from : state->map.to;
    if (wanted < 0) return item_size(dtype) == (i == 1 ? 1 : -wanted);
    if (is_same(dtype, wanted)) return true;
    state->convert[i] = i ? ISA(conversion_loop)(dtype, (DType)wanted)
                          : ISA(conversion_loop)((DType)wanted, dtype);
    state->converts = true;
    return state->convert[i] != NULL;
}

// Chunks end where rows do, or behind whole vectors.
static void choose_chunk(State *state) {
    const int64_t wanted = CHUNK_COST / state->map.cost, width = state->dims[state->rank - 1];
    const int64_t unit = state->rank > 1 ? width : WHOLE_VECTORS;
    state->chunk = wanted > unit ? wanted / unit * unit : unit;
}

void *ISA(map_prepare)(Params *params, Needs *needs, const Map *map) {
    State *state = calloc(1, sizeof(State));
    if (!state) return NULL;
    state->map = *map;
    Tensor tensors[MAX_OPERANDS + 1] = {0};
    for (int i = 0; i <= map->operands; i++) {
        tensors[i] = next_tensor(params);
        state->data[i] = tensors[i].data;
        state->sizes[i] = item_size(tensors[i].dtype);
        if (params->bad || !broadcast(&tensors[i], &tensors[0], state->strides[i]) ||
            !convert(state, i, tensors[i].dtype)) {
            free(state);
            return NULL;
        }
    }
    for (int i = 0; i < MAX_PARAMETERS; i++) state->parameters[i] = next_float(params);
    state->count = element_count(&tensors[0]);
    collapse(state, &tensors[0]);
    if (state->count) choose_chunk(state);
    writes_anywhere(needs, &state->data[0]);
    for (int i = 1; i <= map->operands; i++) reads_anywhere(needs, &state->data[i]);
    return state;
}

// As the loop of the map, with conversions: blocks stay in the first-level cache.
static void map_converted(const State *state, char *const *at, const int64_t *inner, int64_t n) {
    char blocks[MAX_OPERANDS + 1][BLOCK * WIDEST] __attribute__((aligned(64)));
    for (int64_t begin = 0; begin < n; begin += BLOCK) {
        const int64_t count = n - begin < BLOCK ? n - begin : BLOCK;
        char *use[MAX_OPERANDS + 1];
        int64_t steps[MAX_OPERANDS + 1];
        for (int i = 0; i <= state->map.operands; i++) {
            char *const data = at[i] + begin * inner[i];
            use[i] = state->convert[i] ? blocks[i] : data;
            steps[i] = inner[i];
            if (!state->convert[i]) continue;
            const int64_t size = item_size((DType)(i ? state->map.from : state->map.to));
            const bool single = i > 0 && steps[i] == 0;
            const int64_t both[] = {size, steps[i]};
            if (i) state->convert[i](blocks[i], &data, both, single ? 1 : count, state->parameters);
            steps[i] = single ? 0 : size;
        }
        state->map.loop(use[0], use + 1, steps, count, state->parameters);
        if (!state->convert[0]) continue;
        const int64_t both[] = {inner[0], steps[0]};
        state->convert[0](at[0] + begin * inner[0], use, both, count, state->parameters);
    }
}

const Map *ISA(map_of)(const void *state) { return &((const State *)state)->map; }

void ISA(map_elements)(const void *argument, char *const *at, const int64_t *steps, int64_t n) {
    const State *state = argument;
    if (state->converts)
        map_converted(state, at, steps, n);
    else
        state->map.loop(at[0], at + 1, steps, n, state->parameters);
}

// -- narrow rows ----------------------------------------------------------------------------------

// Rows of elements of `size` bytes, a constant, one behind the other and `apart` bytes from each other.
INLINE void join_rows(
    char *to, const char *from, int64_t apart, int64_t step, int64_t rows, int64_t width,
    const int64_t size) {
    const int64_t run = width * size;
    if (step == size && run < FULL_BESIDE)
        copy_runs(from, apart, to, run, rows, run);
    else
        for (int64_t row = 0; row < rows; row++)
            copy_elements(to + row * run, size, from + row * apart, step, width, size);
}

INLINE void part_rows(
    char *to, const char *from, int64_t apart, int64_t step, int64_t rows, int64_t width,
    const int64_t size) {
    const int64_t run = width * size;
    if (step == size && run < FULL_BESIDE)
        copy_runs(from, run, to, apart, rows, run);
    else
        for (int64_t row = 0; row < rows; row++)
            copy_elements(to + row * apart, step, from + row * run, size, width, size);
}

// Between rows of tensor `i` from `at` on and a block in which they are joined.
static void move_rows(const State *state, int i, char *at, char *block, int64_t rows, bool joins) {
    const int last = state->rank - 1;
    const int64_t apart = state->strides[i][last - 1], step = state->inner[i];
    const int64_t width = state->dims[last];
#define MOVE(SIZE)                                            \
    if (joins)                                                \
        join_rows(block, at, apart, step, rows, width, SIZE); \
    else                                                      \
        part_rows(at, block, apart, step, rows, width, SIZE); \
    break
    switch (state->sizes[i]) {
        case 1: MOVE(1);
        case 2: MOVE(2);
        case 4: MOVE(4);
        default: MOVE(8);
    }
#undef MOVE
}

// As the loop of the map, over rows that are read where they lie only if they go on in each other.
static void map_narrow(const State *state, char *const *at, int64_t rows) {
    char blocks[MAX_OPERANDS + 1][BLOCK * WIDEST] __attribute__((aligned(64)));
    const int last = state->rank - 1;
    const int64_t width = state->dims[last];
    char *use[MAX_OPERANDS + 1];
    int64_t steps[MAX_OPERANDS + 1];
    bool goes_on[MAX_OPERANDS + 1];
    for (int i = 0; i <= state->map.operands; i++) {
        goes_on[i] = state->strides[i][last - 1] == state->inner[i] * width;
        use[i] = goes_on[i] ? at[i] : blocks[i];
        steps[i] = goes_on[i] ? state->inner[i] : state->sizes[i];
        if (i && !goes_on[i]) move_rows(state, i, at[i], blocks[i], rows, true);
    }
    ISA(map_elements)(state, use, steps, rows * width);
    if (!goes_on[0]) move_rows(state, 0, at[0], blocks[0], rows, false);
}

// -- all elements ---------------------------------------------------------------------------------

// Moves `index` on by `count` of the dimension before the last, within it.
static void go_on(const State *state, int64_t *index, int64_t count) {
    int axis = state->rank - 2;
    if (axis < 0) return;
    index[axis] += count;
    for (; axis > 0 && index[axis] == state->dims[axis]; axis--) {
        index[axis] = 0;
        index[axis - 1]++;
    }
}

// Elements begin .. end - 1 in order of the collapsed dimensions, whole rows of several.
static void map_range(const State *state, int64_t begin, int64_t end) {
    const int last = state->rank - 1;
    const int64_t width = state->dims[last];
    const bool narrow = last > 0 && width < NARROW;
    int64_t index[MAX_RANK];
    int64_t rest = begin / width;
    for (int axis = last - 1; axis >= 0; axis--) {
        index[axis] = rest % state->dims[axis];
        rest /= state->dims[axis];
    }
    const int64_t offset = last > 0 ? 0 : begin;
    while (begin < end) {
        char *at[MAX_OPERANDS + 1];
        for (int i = 0; i <= state->map.operands; i++) {
            at[i] = state->data[i] + offset * state->inner[i];
            for (int axis = 0; axis < last; axis++) at[i] += index[axis] * state->strides[i][axis];
        }
        int64_t rows = 1;
        if (narrow) {
            rows = lesser(state->dims[last - 1] - index[last - 1], (end - begin) / width);
            rows = lesser(rows, BLOCK / width);
            map_narrow(state, at, rows);
        } else {
            ISA(map_elements)(state, at, state->inner, last > 0 ? width : end - begin);
        }
        begin = last > 0 ? begin + rows * width : end;
        go_on(state, index, rows);
    }
}

static void map_chunk(void *context, int64_t chunk, int thread) {
    (void)thread;
    const State *state = context;
    int64_t begin = chunk * state->chunk, end = begin + state->chunk;
    map_range(state, begin, lesser(end, state->count));
}

Failure ISA(map_run)(const void *argument, const Run *run) {
    State *state = (State *)argument;
    if (state->count == 0) return OK;
    if (state->count <= 2 * state->chunk) {
        map_range(state, 0, state->count);
        return OK;
    }
    share_chunks(run, ceil_div(state->count, state->chunk), map_chunk, state);
    return OK;
}
