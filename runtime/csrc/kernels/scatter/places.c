// Elements and rows at places that indices name: taken, put, or combined with what is there.
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernel.h"
#include "../support/extremes.h"
#include "../support/simd.h"
#include "../support/sizes.h"

typedef enum { REPLACE, ADD, MULTIPLY, LEAST, GREATEST } Combination;

typedef void (*CombineFn)(char *to, const char *from, int64_t count);

typedef struct {
    char *table, *values;
    Tensor indices;
    int axis;  // each index replaces the coordinate of this axis; -1: tuples name rows
    int rank;
    int64_t dims[MAX_RANK];  // of the indices
    int64_t sizes[MAX_RANK], steps[MAX_RANK];  // of the table: elements, and bytes between them
    int64_t lines, length;  // of the indices: the last dimension is that of a line
    int64_t per_batch, batch_step;  // tuples, and bytes of the table, of each batch
    int first;  // dimension of the table that the first index of a tuple counts
    int64_t bytes;  // of what is at a place
    int64_t count;  // elements there
    CombineFn combine;  // NULL: replace
} Places;

// Sums and products of integers wrap around: they are computed without signs.
#define TYPE float
#define WORK float
#include "combine.h"
#define TYPE double
#define WORK double
#include "combine.h"
#define TYPE int32_t
#define WORK uint32_t
#include "combine.h"
#define TYPE int64_t
#define WORK uint64_t
#include "combine.h"

#define TYPE int8_t
#define WORK uint32_t
#include "combine.h"
#define TYPE uint8_t
#define WORK uint32_t
#include "combine.h"

#define CHOICES(TYPE) {NULL, sum_##TYPE, product_##TYPE, lesser_##TYPE, larger_##TYPE}

static CombineFn combination(DType dtype, int64_t which) {
    static const CombineFn floats[] = CHOICES(float), doubles[] = CHOICES(double);
    static const CombineFn ints[] = CHOICES(int32_t), longs[] = CHOICES(int64_t);
    static const CombineFn bytes[] = CHOICES(int8_t), small[] = CHOICES(uint8_t);
    if (which < REPLACE || which > GREATEST) return NULL;
    switch (dtype) {
        case F32: return floats[which];
        case F64: return doubles[which];
        case I8: return bytes[which];
        case U8: return small[which];
        case I32: return ints[which];
        case I64: return longs[which];
        default: return NULL;
    }
}

static void describe_elements(Places *places, const Tensor *indices) {
    places->length = indices->rank ? indices->dims[indices->rank - 1] : 1;
    places->lines = places->length ? element_count(indices) / places->length : 0;
}

static void describe_tuples(Places *places, const Tensor *indices, int batch_dims) {
    const int last = indices->rank - 1;
    places->first = batch_dims;
    places->length = indices->dims[last];
    places->lines = places->per_batch = 1;
    for (int axis = 0; axis < last; axis++) {
        places->lines *= indices->dims[axis];
        if (axis >= batch_dims) places->per_batch *= indices->dims[axis];
    }
    const int end = batch_dims + (int)places->length;
    places->bytes = end < 1 ? 0 : places->steps[end - 1];
    places->batch_step = batch_dims < 1 ? 0 : places->steps[batch_dims - 1];
}

// Whether each index has a value, and a place in the table but for `axis`.
static bool elements_fit(
    const Tensor *table, const Tensor *indices, const Tensor *values, int64_t axis) {
    if (indices->rank != table->rank || axis >= table->rank) return false;
    for (int i = 0; i < table->rank; i++)
        if (i != axis && indices->dims[i] > table->dims[i]) return false;
    return element_count(values) == element_count(indices);
}

// Whether tuples are no longer than the table has axes behind `batch_dims`, and have their values.
static bool tuples_fit(
    const Tensor *table, const Tensor *indices, const Tensor *values, int64_t batch_dims) {
    const int last = indices->rank - 1;
    const int64_t length = indices->dims[last];
    if (batch_dims < 0 || batch_dims > last || length > table->rank - batch_dims) return false;
    int64_t count = 1;
    for (int i = 0; i < batch_dims; i++)
        if (indices->dims[i] != table->dims[i]) return false;
    for (int i = 0; i < last; i++) count *= indices->dims[i];
    for (int i = (int)(batch_dims + length); i < table->rank; i++)
        if (__builtin_mul_overflow(count, table->dims[i], &count)) return false;
    return element_count(values) == count;
}

static bool places_fit(
    const Tensor *table, const Tensor *indices, const Tensor *values, int64_t axis,
    int64_t batch_dims) {
    return is_contiguous(table) && are_indices(indices) && is_contiguous(values) &&
           item_size(values->dtype) == item_size(table->dtype) && table->rank > 0 &&
           indices->rank > 0 && element_count(table) > 0 &&
           (axis >= 0 ? elements_fit(table, indices, values, axis)
                      : tuples_fit(table, indices, values, batch_dims));
}

static void *prepare(Params *params, Needs *needs) {
    const Tensor table = next_tensor(params), indices = next_tensor(params);
    const Tensor values = next_tensor(params);
    const int axis = (int)next_int(params), batch_dims = (int)next_int(params);
    const int64_t which = next_int(params);
    Places *places = calloc(1, sizeof(Places));
    if (!places || params->bad || !places_fit(&table, &indices, &values, axis, batch_dims)) {
        free(places);
        return NULL;
    }
    places->table = table.data;
    places->values = values.data;
    reads_anywhere(needs, &places->table);
    writes_anywhere(needs, &places->values);
    places->indices = indices;
    places->axis = axis;
    places->rank = indices.rank;
    places->bytes = item_size(table.dtype);
    memcpy(places->dims, indices.dims, sizeof(places->dims));
    memcpy(places->sizes, table.dims, sizeof(places->sizes));
    int64_t step = places->bytes;
    for (int i = table.rank - 1; i >= 0; i--, step *= table.dims[i + 1]) places->steps[i] = step;
    const int64_t item = places->bytes;
    if (axis >= 0)
        describe_elements(places, &indices);
    else
        describe_tuples(places, &indices, batch_dims);
    places->count = places->bytes / item;
    places->combine = combination(table.dtype, which);
    if (which == REPLACE || places->combine) return places;
    free(places);
    return NULL;
}

// What takes elements reads each index once, and so wherever it is.
static void *prepare_take(Params *params, Needs *needs) {
    Places *places = prepare(params, needs);
    if (places && places->axis >= 0) reads_anywhere(needs, &places->indices.data);
    return places;
}

typedef enum { TAKE, PUT, COMBINE } Way;

// `way` and `bytes` are constants wherever this is called.
INLINE void exchange(
    const Places *places, int64_t offset, int64_t place, const Way way, const int64_t bytes) {
    char *there = places->table + offset, *value = places->values + place * bytes;
    if (way == TAKE)
        memcpy(value, there, (size_t)bytes);
    else if (way == PUT)
        memcpy(there, value, (size_t)bytes);
    else
        places->combine(there, value, places->count);
}

// The place of a line of indices in the table, but for their axis.
static int64_t line_offset(const Places *places, int64_t line) {
    int64_t offset = 0;
    for (int i = places->rank - 2; i >= 0; i--) {
        if (i != places->axis) offset += line % places->dims[i] * places->steps[i];
        line /= places->dims[i];
    }
    return offset;
}

// Lines begin .. end - 1.  `way`, `bytes` and `wide` are constants where that makes it faster.
INLINE Failure visit_lines_of(
    const Places *given, int64_t begin, int64_t end, const Way way, const int64_t bytes,
    const bool wide) {
    const Places places = *given;  // which the bytes that are written do not change
    // Each is read once: callers may change what has been looked at.
    const volatile int64_t *const wide_indices = (const void *)places.indices.data;
    const volatile int32_t *const indices = (const void *)places.indices.data;
    const int axis = places.axis, last = places.rank - 1;
    const int64_t size = places.sizes[axis], step = places.steps[axis];
    const int64_t along = last == axis ? 0 : places.steps[last];
    int64_t place = begin * places.length;
    for (int64_t line = begin; line < end; line++) {
        int64_t offset = line_offset(&places, line);
        for (int64_t j = 0; j < places.length; j++, place++, offset += along) {
            const int64_t given_index = wide ? wide_indices[place] : indices[place];
            const int64_t index = given_index < 0 ? given_index + size : given_index;
            if (index < 0 || index >= size) return INDEX_OUTSIDE;
            exchange(&places, offset + index * step, place, way, bytes);
        }
    }
    return OK;
}

#define VISIT(BYTES)                                            \
    wide ? visit_lines_of(places, begin, end, way, BYTES, true) \
         : visit_lines_of(places, begin, end, way, BYTES, false)
INLINE Failure visit_lines(const Places *places, int64_t begin, int64_t end, const Way way) {
    const bool wide = places->indices.dtype == I64;
    switch (places->bytes) {
        case 1: return VISIT(1);
        case 2: return VISIT(2);
        case 4: return VISIT(4);
        case 8: return VISIT(8);
        default: return VISIT(places->bytes);
    }
}

static Failure put_elements(const Places *places) {
    return places->combine ? visit_lines(places, 0, places->lines, COMBINE)
                           : visit_lines(places, 0, places->lines, PUT);
}

INLINE Failure visit_rows(const Places *places, int64_t begin, int64_t end, const Way way) {
    for (int64_t line = begin; line < end; line++) {
        int64_t offset = line / places->per_batch * places->batch_step;
        for (int64_t j = 0; j < places->length; j++) {
            const int axis = places->first + (int)j;
            const int64_t index =
                place_at(&places->indices, line * places->length + j, places->sizes[axis]);
            if (index < 0) return INDEX_OUTSIDE;
            offset += index * places->steps[axis];
        }
        exchange(places, offset, line, way, places->bytes);
    }
    return OK;
}

static Failure put_rows(const Places *places) {
    return places->combine ? visit_rows(places, 0, places->lines, COMBINE)
                           : visit_rows(places, 0, places->lines, PUT);
}

typedef struct {
    const Places *places;
    int64_t unit;  // lines of a chunk
    atomic_bool failed;
} Taking;

static void take_lines(void *context, int64_t chunk, int thread) {
    (void)thread;
    Taking *taking = context;
    const Places *places = taking->places;
    const int64_t begin = chunk * taking->unit, end = lesser(begin + taking->unit, places->lines);
    const Failure failure = places->axis >= 0 ? visit_lines(places, begin, end, TAKE)
                                              : visit_rows(places, begin, end, TAKE);
    if (failure) atomic_store(&taking->failed, true);
}

static Failure run_take(const void *state, const Run *run) {
    enum { CHUNK_PLACES = 1 << 14, CHUNK_BYTES = 1 << 16 };
    const Places *places = state;
    const int64_t work = places->axis >= 0 ? CHUNK_PLACES / (places->length + 1)
                                           : CHUNK_BYTES / (places->bytes + 8 * places->length);
    Taking taking = {places, work + 1, false};
    share_chunks(run, ceil_div(places->lines, taking.unit), take_lines, &taking);
    return atomic_load(&taking.failed) ? INDEX_OUTSIDE : OK;
}

static Failure run_put(const void *state, const Run *run) {
    (void)run;
    const Places *places = state;
    return places->axis >= 0 ? put_elements(places) : put_rows(places);
}

// -- one of many: [outer][depth][inner] -----------------------------------------------------------

typedef struct {
    const char *values;  // off, on
    char *out;
    Tensor indices;
    int64_t outer, depth, inner, size;
} OneHot;

static void *prepare_one_hot(Params *params, Needs *needs) {
    (void)needs;
    const Tensor indices = next_tensor(params), values = next_tensor(params);
    const Tensor out = next_tensor(params);
    OneHot *state = calloc(1, sizeof(OneHot));
    if (!state) return NULL;
    state->indices = indices;
    state->values = values.data;
    state->out = out.data;
    state->outer = next_int(params);
    state->depth = next_int(params);
    state->inner = next_int(params);
    state->size = item_size(out.dtype);
    const int64_t given = size_of(state->outer, state->inner, 1);
    const int64_t wanted = size_of(state->outer, state->depth, state->inner);
    if (!params->bad && given >= 0 && wanted >= 0 && are_indices(&indices) &&
        element_count(&indices) == given && holds(&out, out.dtype, wanted) &&
        holds(&values, values.dtype, 2) && item_size(values.dtype) == state->size) {
        return state;
    }
    free(state);
    return NULL;
}

// Copies of `size` bytes, by copies of what is there already.
static void fill_all(char *to, const char *value, int64_t size, int64_t bytes) {
    if (bytes <= 0) return;
    memcpy(to, value, (size_t)size);
    for (int64_t done = size; done < bytes; done *= 2)
        memcpy(to + done, to, (size_t)(bytes - done < done ? bytes - done : done));
}

// An index outside of the depth gives no element that is on.
static Failure run_one_hot(const void *argument, const Run *run) {
    (void)run;
    const OneHot *state = argument;
    const int64_t size = state->size, total = state->outer * state->depth * state->inner;
    fill_all(state->out, state->values, size, total * size);
    for (int64_t i = 0; i < state->outer * state->inner; i++) {
        const int64_t index = place_at(&state->indices, i, state->depth);
        if (index < 0) continue;
        const int64_t outer = i / state->inner, inner = i % state->inner;
        const int64_t place = (outer * state->depth + index) * state->inner + inner;
        memcpy(state->out + place * size, state->values + size, (size_t)size);
    }
    return OK;
}

const Kernel ISA(PLACES)[] = {
    {"TakePlaces", prepare_take, run_take, NULL},
    {"PutPlaces", prepare, run_put, NULL},
    {"OneHot", prepare_one_hot, run_one_hot, NULL},
    {NULL, NULL, NULL, NULL},
};
