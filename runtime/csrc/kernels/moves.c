// Elements that go from one place to another, as they are: copies between any strides, and fills.
#include <stdlib.h>
#include <string.h>

#include "../kernel.h"
#include "simd.h"
#include "squares.h"

typedef struct {
    int64_t size;  // bytes of an element
    int rank;
    int64_t dims[MAX_RANK], from_strides[MAX_RANK], to_strides[MAX_RANK];
    const char *from;
    char *to;
    int64_t lines;  // of the two innermost dimensions: blocks that are copied at once
    int64_t unit;  // blocks of a chunk
} Move;

enum { MOVE_BYTES = 1 << 16, BLOCK = 16 };

// Dimensions by the distance in the target, the largest first: what is written lies side by side.
static void sort_dims(Move *move) {
    for (int i = 1; i < move->rank; i++)
        for (int j = i; j > 0 && move->to_strides[j - 1] < move->to_strides[j]; j--) {
            int64_t *arrays[] = {move->dims, move->from_strides, move->to_strides};
            for (int k = 0; k < 3; k++) {
                const int64_t other = arrays[k][j];
                arrays[k][j] = arrays[k][j - 1];
                arrays[k][j - 1] = other;
            }
        }
}

static void collapse(Move *move) {
    int rank = 0;
    for (int axis = 0; axis < move->rank; axis++) {
        const int64_t dim = move->dims[axis];
        if (dim == 1) continue;
        const bool joins = rank > 0 &&
                           move->from_strides[rank - 1] == move->from_strides[axis] * dim &&
                           move->to_strides[rank - 1] == move->to_strides[axis] * dim;
        if (!joins) rank++;
        move->dims[rank - 1] = joins ? move->dims[rank - 1] * dim : dim;
        move->from_strides[rank - 1] = move->from_strides[axis];
        move->to_strides[rank - 1] = move->to_strides[axis];
    }
    while (rank < 2) {  // there are always two dimensions, of 1 if need be
        for (int axis = rank; axis > 0; axis--) {
            move->dims[axis] = move->dims[axis - 1];
            move->from_strides[axis] = move->from_strides[axis - 1];
            move->to_strides[axis] = move->to_strides[axis - 1];
        }
        move->dims[0] = 1;
        move->from_strides[0] = move->to_strides[0] = 0;
        rank++;
    }
    move->rank = rank;
}

// The dimension before the last one becomes that in which neighbours are read, if there is one.
static void prefer_read(Move *move) {
    const int last = move->rank - 1;
    if (move->from_strides[last] == move->size) return;
    for (int axis = 0; axis < last - 1; axis++)
        if (move->from_strides[axis] == move->size) {
            int64_t *arrays[] = {move->dims, move->from_strides, move->to_strides};
            for (int k = 0; k < 3; k++) {
                const int64_t moved = arrays[k][axis];
                for (int i = axis; i < last - 1; i++) arrays[k][i] = arrays[k][i + 1];
                arrays[k][last - 1] = moved;
            }
            return;
        }
}

// From and to; false if there is nothing to move.
static bool read_move(Move *move, Params *params) {
    const Tensor from = next_tensor(params), to = next_tensor(params);
    if (params->bad || from.rank != to.rank || element_count(&to) == 0) return false;
    move->size = item_size(to.dtype);
    move->rank = to.rank;
    move->from = from.data;
    move->to = to.data;
    memcpy(move->dims, to.dims, sizeof(move->dims));
    memcpy(move->from_strides, from.strides, sizeof(move->from_strides));
    memcpy(move->to_strides, to.strides, sizeof(move->to_strides));
    sort_dims(move);
    collapse(move);
    prefer_read(move);
    move->lines = 1;
    for (int axis = 0; axis < move->rank - 2; axis++) move->lines *= move->dims[axis];
    const int64_t block = move->dims[move->rank - 2] * move->dims[move->rank - 1] * move->size;
    move->unit = (MOVE_BYTES + block - 1) / block;
    return true;
}

static void *prepare(Params *params, Needs *needs) {
    (void)needs;
    Move *move = calloc(1, sizeof(Move));
    if (move && read_move(move, params)) return move;
    free(move);
    return NULL;
}

#define PLANE(TYPE)                                                                              \
    static void plane_##TYPE(                                                                    \
        const char *from, char *to, int64_t rows, int64_t columns, int64_t from_row,             \
        int64_t from_column, int64_t to_row, int64_t to_column) {                                \
        for (int64_t top = 0; top < rows; top += BLOCK)                                          \
            for (int64_t left = 0; left < columns; left += BLOCK) {                              \
                const int64_t bottom = top + BLOCK < rows ? top + BLOCK : rows;                  \
                const int64_t right = left + BLOCK < columns ? left + BLOCK : columns;           \
                for (int64_t i = top; i < bottom; i++)                                           \
                    for (int64_t j = left; j < right; j++)                                       \
                        *(TYPE *)(to + i * to_row + j * to_column) =                             \
                            *(const TYPE *)(from + i * from_row + j * from_column);              \
            }                                                                                    \
    }

PLANE(uint8_t)
PLANE(uint16_t)
PLANE(uint32_t)
PLANE(uint64_t)

static void move_plane(const Move *move, const char *from, char *to) {
    const int row = move->rank - 2, column = move->rank - 1;
    const int64_t rows = move->dims[row], columns = move->dims[column];
    const int64_t fr = move->from_strides[row], fc = move->from_strides[column];
    const int64_t tr = move->to_strides[row], tc = move->to_strides[column];
    if (fc == move->size && tc == move->size) {
        for (int64_t i = 0; i < rows; i++)
            memmove(to + i * tr, from + i * fr, (size_t)(columns * move->size));
        return;
    }
    if (move->size == 4 && fr == 4 && tc == 4 && fc % 4 == 0 && tr % 4 == 0) {
        turn((const float *)from, fc / 4, (float *)to, tr / 4, columns, rows);
        return;
    }
    switch (move->size) {
        case 1: plane_uint8_t(from, to, rows, columns, fr, fc, tr, tc); break;
        case 2: plane_uint16_t(from, to, rows, columns, fr, fc, tr, tc); break;
        case 4: plane_uint32_t(from, to, rows, columns, fr, fc, tr, tc); break;
        default: plane_uint64_t(from, to, rows, columns, fr, fc, tr, tc); break;
    }
}

static void some_planes(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Move *move = context;
    int64_t end = (chunk + 1) * move->unit;
    if (end > move->lines) end = move->lines;
    for (int64_t line = chunk * move->unit; line < end; line++) {
        int64_t rest = line, from = 0, to = 0;
        for (int axis = move->rank - 3; axis >= 0; axis--) {
            const int64_t index = rest % move->dims[axis];
            rest /= move->dims[axis];
            from += index * move->from_strides[axis];
            to += index * move->to_strides[axis];
        }
        move_plane(move, move->from + from, move->to + to);
    }
}

static Failure run_move(const void *argument, const Run *run) {
    const Move *move = argument;
    share_chunks(run, (move->lines + move->unit - 1) / move->unit, some_planes, (void *)move);
    return OK;
}

// -- copies whose place a tensor tells ------------------------------------------------------------

// What a number stands for that is not one of the places.
typedef enum { NO_PLACE, MODULO, FROM_THE_END } Wrapping;

typedef struct {
    Move move;
    Tensor numbers;
    bool target;  // the place is one in the target
    Wrapping wrapping;
    int count;
    int64_t strides[MAX_RANK], places[MAX_RANK];  // of each number: bytes, how many places there are
} MoveAt;

static void *prepare_move_at(Params *params, Needs *needs) {
    (void)needs;
    MoveAt *state = calloc(1, sizeof(MoveAt));
    if (!state || !read_move(&state->move, params)) {
        free(state);
        return NULL;
    }
    state->numbers = next_tensor(params);
    state->target = next_int(params) != 0;
    state->wrapping = (Wrapping)next_int(params);
    state->count = (int)next_int(params);
    const DType dtype = state->numbers.dtype;
    const bool known = (dtype == I32 || dtype == U32 || dtype == I64) && state->count >= 0 &&
                       state->count <= MAX_RANK && is_contiguous(&state->numbers) &&
                       element_count(&state->numbers) == state->count;
    for (int i = 0; known && i < state->count; i++) {
        state->strides[i] = next_int(params);
        state->places[i] = next_int(params);
    }
    if (known && !params->bad) return state;
    free(state);
    return NULL;
}

static int64_t number_at(const Tensor *numbers, int64_t i) {
    switch (numbers->dtype) {
        case I32: return ((const int32_t *)numbers->data)[i];
        case U32: return ((const uint32_t *)numbers->data)[i];
        default: return ((const int64_t *)numbers->data)[i];
    }
}

static Failure run_move_at(const void *argument, const Run *run) {
    const MoveAt *state = argument;
    int64_t shift = 0;
    for (int i = 0; i < state->count; i++) {
        const int64_t places = state->places[i];
        int64_t number = number_at(&state->numbers, i);
        if (state->wrapping == MODULO) number %= places;
        if (state->wrapping != NO_PLACE && number < 0) number += places;
        if (number < 0 || number >= places) return INDEX_OUTSIDE;
        shift += number * state->strides[i];
    }
    Move move = state->move;
    if (state->target) move.to += shift;
    else move.from += shift;
    return run_move(&move, run);
}

// -- fills ----------------------------------------------------------------------------------------

typedef struct {
    char *to;
    int64_t count, size;
    uint64_t bits;
} Fill;

static void *prepare_fill(Params *params, Needs *needs) {
    (void)needs;
    const Tensor to = next_tensor(params);
    Fill *fill = calloc(1, sizeof(Fill));
    if (!fill || params->bad || !is_contiguous(&to)) {
        free(fill);
        return NULL;
    }
    *fill = (Fill){to.data, element_count(&to), item_size(to.dtype), (uint64_t)next_int(params)};
    return fill;
}

static Failure run_fill(const void *argument, const Run *run) {
    (void)run;
    const Fill *fill = argument;
    if (fill->bits == 0 || fill->size == 1) {
        memset(fill->to, (int)(fill->bits & 0xff), (size_t)(fill->count * fill->size));
    } else if (fill->size == 2) {
        for (int64_t i = 0; i < fill->count; i++) ((uint16_t *)fill->to)[i] = (uint16_t)fill->bits;
    } else if (fill->size == 4) {
        for (int64_t i = 0; i < fill->count; i++) ((uint32_t *)fill->to)[i] = (uint32_t)fill->bits;
    } else {
        for (int64_t i = 0; i < fill->count; i++) ((uint64_t *)fill->to)[i] = fill->bits;
    }
    return OK;
}

// -- rows by their numbers ------------------------------------------------------------------------

typedef struct {
    const char *data;
    const char *indices;
    char *to;
    int64_t outer, rows, bytes, count;  // [outer][rows][bytes] and `count` indices
    bool wide;  // indices are int64, else int32
} Gather;

static void *prepare_gather(Params *params, Needs *needs) {
    (void)needs;
    const Tensor data = next_tensor(params), indices = next_tensor(params);
    const Tensor to = next_tensor(params);
    const int axis = (int)next_int(params);
    Gather *gather = calloc(1, sizeof(Gather));
    if (!gather || params->bad || axis < 0 || axis >= data.rank) {
        free(gather);
        return NULL;
    }
    gather->data = data.data;
    gather->indices = indices.data;
    gather->to = to.data;
    gather->outer = 1;
    gather->rows = data.dims[axis];
    gather->bytes = item_size(data.dtype);
    for (int i = 0; i < axis; i++) gather->outer *= data.dims[i];
    for (int i = axis + 1; i < data.rank; i++) gather->bytes *= data.dims[i];
    gather->count = element_count(&indices);
    gather->wide = indices.dtype == I64;
    return gather;
}

// Indices below zero count from the end.
static Failure run_gather(const void *argument, const Run *run) {
    (void)run;
    const Gather *gather = argument;
    char *to = gather->to;
    for (int64_t i = 0; i < gather->outer; i++) {
        const char *block = gather->data + i * gather->rows * gather->bytes;
        for (int64_t j = 0; j < gather->count; j++, to += gather->bytes) {
            int64_t row = gather->wide ? ((const int64_t *)gather->indices)[j]
                                       : ((const int32_t *)gather->indices)[j];
            if (row < 0) row += gather->rows;
            if (row < 0 || row >= gather->rows) return INDEX_OUTSIDE;
            memcpy(to, block + row * gather->bytes, (size_t)gather->bytes);
        }
    }
    return OK;
}

const Kernel ISA(MOVES)[] = {
    {"Move", prepare, run_move, NULL},
    {"MoveAt", prepare_move_at, run_move_at, NULL},
    {"Fill", prepare_fill, run_fill, NULL},
    {"Gather", prepare_gather, run_gather, NULL},
    {NULL, NULL, NULL, NULL},
};
