// Elements that go from one place to another, as they are: copies between any strides, and fills.
#include <stdlib.h>
#include <string.h>

#include "../../kernel.h"
#include "../support/simd.h"
#include "../support/lines.h"
#include "../support/sizes.h"
#include "turn_words.h"

typedef struct {
    int64_t size;  // bytes of an element
    int rank;
    int64_t dims[MAX_RANK], from_strides[MAX_RANK], to_strides[MAX_RANK];
    const char *from;
    char *to;
    int64_t lines;  // planes of the two innermost dimensions
    int64_t pieces, piece;  // of a plane, and how many rows (of a single one, columns) each has
    int64_t unit;  // pieces of a chunk
} Move;

// Bytes of a chunk, which take a microsecond or two in the second cache.  Pieces are multiples of BLOCK
// rows, so that where they are turned, lines of 64 bytes are written whole.
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

// A few bytes side by side become one element.
static void widen(Move *move) {
    const int last = move->rank - 1;
    const int64_t bytes = move->dims[last] * move->size;
    const bool side_by_side = move->from_strides[last] == move->size &&
                              move->to_strides[last] == move->size;
    const bool known = bytes == 2 || bytes == 4 || bytes == 8 || bytes == 16;
    if (!side_by_side || !known || move->rank == 2) return;
    move->size = bytes;
    move->rank--;
}

// Planes are cut, so that threads can share a large one.
static void cut(Move *move) {
    const int row = move->rank - 2, column = move->rank - 1;
    const bool single = move->dims[row] == 1;
    const int64_t extent = move->dims[single ? column : row];
    const int64_t bytes = (single ? 1 : move->dims[column]) * move->size;
    move->piece = padded(ceil_div(MOVE_BYTES, bytes), BLOCK);
    if (move->piece > extent) move->piece = extent;
    move->pieces = ceil_div(extent, move->piece);
    move->unit = ceil_div(MOVE_BYTES, move->piece * bytes);
    move->lines = 1;
    for (int axis = 0; axis < row; axis++) move->lines *= move->dims[axis];
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
    if (params->bad || !has_shape_of(&from, &to) || element_count(&to) == 0) return false;
    if (item_size(from.dtype) != item_size(to.dtype)) return false;
    move->size = item_size(to.dtype);
    move->rank = to.rank;
    move->from = from.data;
    move->to = to.data;
    memcpy(move->dims, to.dims, sizeof(move->dims));
    memcpy(move->from_strides, from.strides, sizeof(move->from_strides));
    memcpy(move->to_strides, to.strides, sizeof(move->to_strides));
    sort_dims(move);
    collapse(move);
    widen(move);
    prefer_read(move);
    cut(move);
    return true;
}

static void *prepare(Params *params, Needs *needs) {
    Move *move = calloc(1, sizeof(Move));
    if (!move || !read_move(move, params)) {
        free(move);
        return NULL;
    }
    reads_anywhere(needs, &move->from);
    writes_anywhere(needs, &move->to);
    return move;
}

// Elements that were a few smaller ones lie anywhere.
typedef uint16_t Bytes2 __attribute__((aligned(1), may_alias));
typedef uint32_t Bytes4 __attribute__((aligned(1), may_alias));
typedef uint64_t Bytes8 __attribute__((aligned(1), may_alias));
typedef uint8_t Bytes16 __attribute__((vector_size(16), aligned(1), may_alias));

#define TYPE uint8_t
#include "plane.h"
#define TYPE Bytes2
#include "plane.h"
#define TYPE Bytes4
#include "plane.h"
#define TYPE Bytes8
#include "plane.h"
#define TYPE Bytes16
#include "plane.h"

#define TURN(TYPE)                                                   \
    if (columns < 4)                                                 \
        to_lines_##TYPE(from, apart, to, to_apart, rows, columns);   \
    else                                                             \
        to_columns_##TYPE(from, apart, to, to_apart, columns, rows); \
    return true

// Lines whose elements lie side by side become columns, `rows` of them by squares; false if there are no
// squares of such elements.
static bool turn_plane(
    int64_t size, const char *from, int64_t apart, char *to, int64_t to_apart, int64_t rows,
    int64_t columns) {
    if (size == 1 && rows >= 16 && columns >= 16) {
        turn_bytes((const uint8_t *)from, apart, (uint8_t *)to, to_apart, columns, rows);
        return true;
    }
    if (size == 2 && rows >= 8 && columns >= 8) {
        turn_halves(from, apart, to, to_apart, columns, rows);
        return true;
    }
#if defined(__AVX2__)
    if (size == 4 && rows >= WORD_SIDE && columns >= WORD_SIDE) {
        turn_words(from, apart, to, to_apart, columns, rows);
        return true;
    }
#endif
    switch (size) {
        case 1: TURN(uint8_t);
        case 2: TURN(uint16_t);
        case 4: TURN(uint32_t);
        case 8: TURN(uint64_t);
        default: return false;
    }
}

static void move_plane(
    const Move *move, const char *from, char *to, int64_t rows, int64_t columns) {
    const int row = move->rank - 2, column = move->rank - 1;
    const int64_t fr = move->from_strides[row], fc = move->from_strides[column];
    const int64_t tr = move->to_strides[row], tc = move->to_strides[column];
    if (fc == move->size && tc == move->size) {
        copy_runs(from, fr, to, tr, rows, columns * move->size);
        return;
    }
    const bool turns = fr == move->size && tc == move->size;
    const bool pairs = rows == 2 && fr == move->size && fc == 2 * fr;
    if (turns && !pairs && turn_plane(move->size, from, fc, to, tr, rows, columns)) return;
    switch (move->size) {
        case 1: plane_uint8_t(from, to, rows, columns, fr, fc, tr, tc); break;
        case 2: plane_Bytes2(from, to, rows, columns, fr, fc, tr, tc); break;
        case 4: plane_Bytes4(from, to, rows, columns, fr, fc, tr, tc); break;
        case 8: plane_Bytes8(from, to, rows, columns, fr, fc, tr, tc); break;
        default: plane_Bytes16(from, to, rows, columns, fr, fc, tr, tc); break;
    }
}

// The place of a plane: its numbers along the dimensions before, and where it begins.
typedef struct { int64_t numbers[MAX_RANK], from, to; } Place;

static Place place_of(const Move *move, int64_t line) {
    Place place = {{0}, 0, 0};
    for (int axis = move->rank - 3; axis >= 0; axis--) {
        place.numbers[axis] = line % move->dims[axis];
        line /= move->dims[axis];
        place.from += place.numbers[axis] * move->from_strides[axis];
        place.to += place.numbers[axis] * move->to_strides[axis];
    }
    return place;
}

static void go_on(const Move *move, Place *place) {
    for (int axis = move->rank - 3; axis >= 0; axis--) {
        place->from += move->from_strides[axis];
        place->to += move->to_strides[axis];
        if (++place->numbers[axis] < move->dims[axis]) return;
        place->from -= move->dims[axis] * move->from_strides[axis];
        place->to -= move->dims[axis] * move->to_strides[axis];
        place->numbers[axis] = 0;
    }
}

static void move_piece(const Move *move, const Place *place, int64_t piece) {
    const int row = move->rank - 2, column = move->rank - 1;
    const int along = move->dims[row] == 1 ? column : row;
    const int64_t begin = piece * move->piece;
    const int64_t count = lesser(move->dims[along] - begin, move->piece);
    const int64_t from = place->from + begin * move->from_strides[along];
    const int64_t to = place->to + begin * move->to_strides[along];
    move_plane(
        move, move->from + from, move->to + to, along == row ? count : 1,
        along == row ? move->dims[column] : count);
}

static void some_pieces(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Move *move = context;
    const int64_t begin = chunk * move->unit;
    const int64_t end = lesser(begin + move->unit, move->lines * move->pieces);
    int64_t piece = begin % move->pieces;
    Place place = place_of(move, begin / move->pieces);
    for (int64_t i = begin; i < end; i++) {
        move_piece(move, &place, piece);
        if (++piece < move->pieces) continue;
        piece = 0;
        go_on(move, &place);
    }
}

static Failure run_move(const void *argument, const Run *run) {
    const Move *move = argument;
    const int64_t pieces = move->lines * move->pieces;
    share_chunks(run, ceil_div(pieces, move->unit), some_pieces, (void *)move);
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
    int64_t strides[MAX_RANK],
        places[MAX_RANK];  // of each number: bytes, how many places there are
} MoveAt;

static void *prepare_move_at(Params *params, Needs *needs) {
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
    reads_anywhere(needs, &state->move.from);
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
        if (places < 1) return INDEX_OUTSIDE;
        if (state->wrapping == MODULO) number %= places;
        if (state->wrapping != NO_PLACE && number < 0) number += places;
        if (number < 0 || number >= places) return INDEX_OUTSIDE;
        shift += number * state->strides[i];
    }
    Move move = state->move;
    if (state->target)
        move.to += shift;
    else
        move.from += shift;
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
    const uint64_t bits = (uint64_t)next_int(params);
    if (!fill || params->bad || !is_contiguous(&to)) {
        free(fill);
        return NULL;
    }
    *fill = (Fill){to.data, element_count(&to), item_size(to.dtype), bits};
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

const Kernel ISA(MOVES)[] = {
    {"Move", prepare, run_move, NULL},
    {"MoveAt", prepare_move_at, run_move_at, NULL},
    {"Fill", prepare_fill, run_fill, NULL},
    {NULL, NULL, NULL, NULL},
};
