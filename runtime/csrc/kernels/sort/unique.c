// The different elements of a line: sorted by keys of 64 bits, or in the order in which they come.
// What is not a number is one element, and the largest; zeros of both signs are one, too.
#include <stdlib.h>
#include <string.h>

#include "../../kernel.h"
#include "../support/simd.h"
#include "../support/sizes.h"

// So many are sorted by insertion.
enum { FEW = 32 };

typedef struct {
    uint64_t key;
    int64_t index;
} Entry;

typedef struct {
    const char *x;
    const int64_t *used;  // how many elements count; NULL: all
    char *values;
    int64_t *firsts, *inverse, *counts, *found;  // the first three may be NULL
    int64_t length, bound, item;
    DType dtype;
    bool sorted;
} Unique;

static bool are_all_apart(const Tensor *tensors, int count) {
    for (int i = 0; i < count; i++)
        for (int k = 0; k < i; k++)
            if (!are_apart(&tensors[i], &tensors[k])) return false;
    return true;
}

static void *prepare(Params *params, Needs *needs) {
    Tensor all[7];
    for (int i = 0; i < 7; i++)
        all[i] = i == 0 || i == 6 ? next_tensor(params) : maybe_tensor(params);
    const Tensor *x = &all[0], *values = &all[2];
    const int64_t length = element_count(x), bound = next_int(params), sorted = next_int(params);
    Unique *state = malloc(sizeof(Unique));
    if (!state || params->bad || x->dtype == F16 || x->dtype == BF16 || length <= 0 || bound < 0 ||
        bound > length || !holds(x, x->dtype, length) || !may_hold(&all[1], I64, 1) ||
        !may_hold(values, x->dtype, bound) || !may_hold(&all[3], I64, bound) ||
        !may_hold(&all[4], I64, length) || !may_hold(&all[5], I64, bound) ||
        !holds(&all[6], I64, 1) || !are_all_apart(all, 7)) {
        free(state);
        return NULL;
    }
    *state = (Unique){
        .x = x->data,
        .used = (void *)all[1].data,
        .values = values->data,
        .firsts = (void *)all[3].data,
        .inverse = (void *)all[4].data,
        .counts = (void *)all[5].data,
        .found = (void *)all[6].data,
        .length = length,
        .bound = bound,
        .item = item_size(x->dtype),
        .dtype = x->dtype,
        .sorted = sorted != 0};
    needs->shared = length * (int64_t)(2 * sizeof(Entry) + 2 * sizeof(int64_t));
    return state;
}

static uint64_t key_of_float(uint64_t bits, uint64_t sign, uint64_t infinity) {
    if ((bits & ~sign) > infinity) return UINT64_MAX;
    if (bits == sign) bits = 0;
    return bits & sign ? sign - (bits & ~sign) : bits + sign;
}

#define READ_KEYS(T, KEY)                                   \
    for (int64_t i = 0; i < count; i++) {                   \
        const T v = ((const T *)(const void *)state->x)[i]; \
        entries[i] = (Entry){KEY, i};                       \
    }                                                       \
    break;

// Signed integers are moved up, so that the lowest is 0.
static void read_keys(const Unique *state, Entry *entries, int64_t count) {
    const uint64_t sign = UINT64_C(1) << 63;
    switch (state->dtype) {
        case F32: READ_KEYS(uint32_t, key_of_float(v, UINT64_C(1) << 31, UINT64_C(0xff) << 23))
        case F64: READ_KEYS(uint64_t, key_of_float(v, sign, UINT64_C(0x7ff) << 52))
        case I8: READ_KEYS(int8_t, (uint64_t)v + sign)
        case I16: READ_KEYS(int16_t, (uint64_t)v + sign)
        case I32: READ_KEYS(int32_t, (uint64_t)v + sign)
        case I64: READ_KEYS(int64_t, (uint64_t)v + sign)
        case U16: READ_KEYS(uint16_t, v)
        case U32: READ_KEYS(uint32_t, v)
        case U64: READ_KEYS(uint64_t, v)
        default: READ_KEYS(uint8_t, v)
    }
}

static void sort_few(Entry *entries, int64_t count) {
    for (int64_t i = 1; i < count; i++) {
        const Entry entry = entries[i];
        int64_t place = i;
        for (; place > 0 && entries[place - 1].key > entry.key; place--)
            entries[place] = entries[place - 1];
        entries[place] = entry;
    }
}

// By the bytes of how far keys are above the least one, the last first; equal ones stay in order.
static const Entry *sort_entries(Entry *entries, Entry *spare, int64_t count) {
    if (count <= FEW) {
        sort_few(entries, count);
        return entries;
    }
    uint64_t least = UINT64_MAX, most = 0;
    for (int64_t i = 0; i < count; i++) {
        least = entries[i].key < least ? entries[i].key : least;
        most = entries[i].key > most ? entries[i].key : most;
    }
    for (int64_t i = 0; i < count; i++) entries[i].key -= least;
    for (int shift = 0; shift < 64 && (most - least) >> shift && !pool_is_stopped(); shift += 8) {
        int64_t places[257] = {0};
        for (int64_t i = 0; i < count; i++) places[1 + (entries[i].key >> shift & 255)]++;
        for (int i = 0; i < 256; i++) places[i + 1] += places[i];
        for (int64_t i = 0; i < count; i++)
            spare[places[entries[i].key >> shift & 255]++] = entries[i];
        Entry *const other = entries;
        entries = spare;
        spare = other;
    }
    return entries;
}

// The number of the value of each element, and how many values there are.
static int64_t number_values(const Entry *sorted, int64_t count, int64_t *numbers) {
    int64_t found = 0;
    for (int64_t i = 0; i < count; i++) {
        found += i == 0 || sorted[i].key != sorted[i - 1].key;
        numbers[sorted[i].index] = found - 1;
    }
    return found;
}

// Values get other numbers, in the order in which they come.
static void number_again(int64_t *numbers, int64_t count, int64_t found, int64_t *again) {
    for (int64_t i = 0; i < found; i++) again[i] = -1;
    for (int64_t i = 0, next = 0; i < count; i++) {
        if (again[numbers[i]] < 0) again[numbers[i]] = next++;
        numbers[i] = again[numbers[i]];
    }
}

// From the last to the first, so that the first element of a value stays.
static void write_values(const Unique *state, const int64_t *numbers, int64_t count) {
    const size_t item = (size_t)state->item, size = sizeof(int64_t);
    if (state->values) memset(state->values, 0, (size_t)state->bound * item);
    if (state->firsts) memset(state->firsts, 0, (size_t)state->bound * size);
    if (state->counts) memset(state->counts, 0, (size_t)state->bound * size);
    if (state->inverse) {
        memcpy(state->inverse, numbers, (size_t)count * size);
        memset(state->inverse + count, 0, (size_t)(state->length - count) * size);
    }
    for (int64_t i = count - 1; i >= 0; i--) {
        const int64_t to = numbers[i];
        if (state->values)
            memcpy(state->values + (size_t)to * item, state->x + (size_t)i * item, item);
        if (state->firsts) state->firsts[to] = i;
        if (state->counts) state->counts[to]++;
    }
}

typedef struct {
    const Unique *state;
    const Run *run;
    Failure failure;
} Job;

static void find_values(void *context, int64_t chunk, int thread) {
    (void)chunk, (void)thread;
    Job *job = context;
    const Unique *state = job->state;
    Entry *entries = (Entry *)(void *)job->run->shared, *spare = entries + state->length;
    int64_t *numbers = (int64_t *)(void *)(spare + state->length);
    int64_t count = state->used ? lesser(*state->used, state->length) : state->length;
    if (count < 0) count = 0;
    read_keys(state, entries, count);
    const Entry *sorted = sort_entries(entries, spare, count);
    if (pool_is_stopped()) return;
    const int64_t found = number_values(sorted, count, numbers);
    job->failure = found > state->bound ? INDEX_OUTSIDE : OK;
    if (job->failure != OK) return;
    if (!state->sorted) number_again(numbers, count, found, numbers + state->length);
    write_values(state, numbers, count);
    *state->found = found;
}

static Failure run_unique(const void *argument, const Run *run) {
    Job job = {argument, run, OK};
    share_chunks(run, 1, find_values, &job);
    return job.failure;
}

const Kernel ISA(UNIQUES)[] = {
    {"Unique", prepare, run_unique, NULL},
    {NULL, NULL, NULL, NULL},
};
