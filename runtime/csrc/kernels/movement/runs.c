// Runs of rows that are copied from where numbers say, or to there.
#include <stdlib.h>
#include <string.h>

#include "../../kernel.h"
#include "../support/simd.h"

static bool are_numbers(const Tensor *tensor, int64_t count) {
    return are_indices(tensor) && element_count(tensor) == count;
}

// -- sequences in reverse -------------------------------------------------------------------------

typedef struct {
    const char *from;
    char *to;
    Tensor lengths;
    int64_t steps, batch, bytes;  // bytes of an element of a sequence
    int64_t step, next;  // bytes from step to step, and from sequence to sequence
} Reversal;

static void *prepare_reversal(Params *params, Needs *needs) {
    const Tensor from = next_tensor(params), lengths = next_tensor(params);
    const Tensor to = next_tensor(params);
    const int batch_axis = (int)next_int(params);
    Reversal *state = calloc(1, sizeof(Reversal));
    if (!state || params->bad || from.rank < 2 || (batch_axis != 0 && batch_axis != 1) ||
        !is_contiguous(&from) || !is_contiguous(&to) || !has_shape_of(&from, &to) ||
        item_size(from.dtype) != item_size(to.dtype) ||
        !are_numbers(&lengths, from.dims[batch_axis]) || !are_apart(&lengths, &to)) {
        free(state);
        return NULL;
    }
    state->from = from.data;
    state->to = to.data;
    reads_anywhere(needs, &state->from);
    writes_anywhere(needs, &state->to);
    state->lengths = lengths;
    state->batch = from.dims[batch_axis];
    state->steps = from.dims[1 - batch_axis];
    state->bytes = item_size(from.dtype);
    for (int axis = 2; axis < from.rank; axis++) state->bytes *= from.dims[axis];
    state->step = batch_axis ? state->batch * state->bytes : state->bytes;
    state->next = batch_axis ? state->bytes : state->steps * state->bytes;
    return state;
}

static void reverse_sequence(void *context, int64_t number, int thread) {
    (void)thread;
    const Reversal *state = context;
    const int64_t length = index_at(&state->lengths, number);
    for (int64_t i = 0; i < state->steps; i++) {
        const int64_t source = i < length ? length - 1 - i : i;
        memcpy(
            state->to + number * state->next + i * state->step,
            state->from + number * state->next + source * state->step, (size_t)state->bytes);
    }
}

static Failure run_reversal(const void *argument, const Run *run) {
    const Reversal *state = argument;
    for (int64_t i = 0; i < state->batch; i++) {
        const int64_t length = index_at(&state->lengths, i);
        if (length < 0 || length > state->steps) return INDEX_OUTSIDE;
    }
    share_chunks(run, state->batch, reverse_sequence, (void *)state);
    return OK;
}

// -- steps of a cache: [batch][lines][length][bytes] ----------------------------------------------

typedef struct {
    char *cache;
    const char *update;
    Tensor starts;  // absent: 0
    int64_t batch, lines, length, count, bytes;
    bool circular;
} Steps;

static int64_t byte_count(const Tensor *tensor) {
    return element_count(tensor) * item_size(tensor->dtype);
}

// Whether a tensor is lines of `count` steps.
static bool has_steps(const Tensor *tensor, const Steps *state, int64_t count) {
    const int64_t line = size_of(state->lines, count, state->bytes);
    return tensor->data && is_contiguous(tensor) && line >= 0 &&
           byte_count(tensor) == size_of(state->batch, line, 1);
}

static void *prepare_steps(Params *params, Needs *needs) {
    Steps *state = calloc(1, sizeof(Steps));
    if (!state) return NULL;
    const Tensor cache = next_tensor(params), update = next_tensor(params);
    state->starts = maybe_tensor(params);
    state->cache = cache.data;
    state->update = update.data;
    reads_anywhere(needs, &state->update);
    state->batch = next_int(params);
    state->lines = next_int(params);
    state->length = next_int(params);
    state->count = next_int(params);
    state->bytes = next_int(params);
    state->circular = next_int(params) != 0;
    const bool placed = !state->starts.data || (are_numbers(&state->starts, state->batch) &&
                                                are_apart(&state->starts, &cache));
    if (!params->bad && placed && (state->length > 0 || !state->circular) &&
        has_steps(&cache, state, state->length) && has_steps(&update, state, state->count))
        return state;
    free(state);
    return NULL;
}

static void store_steps(const Steps *state, int64_t line, int64_t first) {
    char *cache = state->cache + line * state->length * state->bytes;
    const char *update = state->update + line * state->count * state->bytes;
    for (int64_t i = 0; i < state->count; i++) {
        const int64_t step = state->circular ? (first + i) % state->length : first + i;
        memcpy(cache + step * state->bytes, update + i * state->bytes, (size_t)state->bytes);
    }
}

// A start counts from the end where steps go round.
static int64_t start_of(const Steps *state, int64_t i) {
    const int64_t first = state->starts.data ? index_at(&state->starts, i) : 0;
    return state->circular ? (first % state->length + state->length) % state->length : first;
}

// Nothing is written unless all of it can be.
static Failure run_steps(const void *argument, const Run *run) {
    (void)run;
    const Steps *state = argument;
    for (int64_t i = 0; i < state->batch; i++) {
        const int64_t first = start_of(state, i);
        if (first < 0 || (!state->circular && first > state->length - state->count))
            return INDEX_OUTSIDE;
    }
    for (int64_t i = 0; i < state->batch; i++) {
        const int64_t first = start_of(state, i);
        for (int64_t j = 0; j < state->lines; j++) store_steps(state, i * state->lines + j, first);
    }
    return OK;
}

// -- runs of rows ---------------------------------------------------------------------------------

typedef struct {
    const char *from;
    char *to;
    Tensor counts, read, written;
    int64_t runs, from_rows, to_rows, bytes;
} Runs;

static int64_t row_bytes(const Tensor *tensor) {
    int64_t bytes = item_size(tensor->dtype);
    for (int axis = 1; axis < tensor->rank; axis++) bytes *= tensor->dims[axis];
    return bytes;
}

static void *prepare_runs(Params *params, Needs *needs) {
    (void)needs;
    Runs *state = calloc(1, sizeof(Runs));
    if (!state) return NULL;
    const Tensor from = next_tensor(params), to = next_tensor(params);
    state->counts = next_tensor(params);
    state->read = next_tensor(params);
    state->written = next_tensor(params);
    state->from = from.data;
    state->to = to.data;
    state->runs = element_count(&state->counts);
    state->bytes = row_bytes(&from);
    const bool fits = !params->bad && from.rank > 0 && row_bytes(&to) == state->bytes &&
                      to.rank > 0 && is_contiguous(&from) && is_contiguous(&to) &&
                      are_numbers(&state->counts, state->runs) &&
                      are_numbers(&state->read, state->runs) &&
                      are_numbers(&state->written, state->runs);
    if (!fits) {
        free(state);
        return NULL;
    }
    state->from_rows = from.dims[0];
    state->to_rows = to.dims[0];
    return state;
}

static Failure run_runs(const void *argument, const Run *run) {
    (void)run;
    const Runs *state = argument;
    for (int64_t i = 0; i < state->runs; i++) {
        const int64_t count = index_at(&state->counts, i);
        const int64_t read = index_at(&state->read, i), written = index_at(&state->written, i);
        if (count == 0) continue;
        if (count < 0 || read < 0 || written < 0 || read > state->from_rows - count ||
            written > state->to_rows - count)
            return INDEX_OUTSIDE;
        memmove(
            state->to + written * state->bytes, state->from + read * state->bytes,
            (size_t)(count * state->bytes));
    }
    return OK;
}

const Kernel ISA(RUNS)[] = {
    {"ReverseSequence", prepare_reversal, run_reversal, NULL},
    {"StoreSteps", prepare_steps, run_steps, NULL},
    {"CopyRuns", prepare_runs, run_runs, NULL},
    {NULL, NULL, NULL, NULL},
};
