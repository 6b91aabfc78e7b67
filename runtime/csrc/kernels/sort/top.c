// The first few in order along an axis, [outer][length][inner].
//
// Elements become integers of the same order, and entries of 32 bits of that and an index, so that no two
// are equal.  Of a long line few entries are looked at: cut into shorter ones, it has columns, each with a
// least element, and what lies beyond the last of the first few of these is not wanted.  Of 64 bits those
// 32 are taken in which the line differs; should they not tell all apart, the rest decides.
#include <stdlib.h>
#include <string.h>

#include "../../kernel.h"
#include "../support/sizes.h"
#include "first_few.h"

enum {
    TOP_WORK = 1 << 13,  // elements of the lines of a chunk: see sizes.h
    SPARSE = 4,  // columns for each that is wanted
    COLUMNS = 64,  // at least
    BLOCK = 16,  // elements that are passed over together
    COUNTED = 160,  // entries whose places are found by comparing all of them
};

typedef struct {
    const char *x;
    char *values;  // NULL: not wanted, as `indices`
    int64_t *indices;
    DType dtype;
    int64_t size, outer, length, inner, wanted;
    bool largest;
    int64_t unit;  // lines of a chunk
} Top;

// Numbers of one line, and room for as many twice; of 64 bits the wanted ones, and all, too.
typedef struct {
    int32_t *keys;
    int64_t *entries, *spare;
    Entry *heap;
    int64_t *wide;
} Room;

static int64_t room_bytes(const Top *top) {
    const int64_t count = top->length + COLUMNS;
    const int64_t bytes = count * (int64_t)(2 * sizeof(int64_t) + sizeof(int32_t));
    if (top->size < 8) return bytes;
    return bytes + count * (int64_t)sizeof(int64_t) + top->wanted * (int64_t)sizeof(Entry);
}

static Room room_in(const Top *top, char *own) {
    const int64_t count = top->length + COLUMNS;
    int64_t *entries = (int64_t *)(void *)own, *spare = entries + count, *wide = spare + count;
    if (top->size < 8) return (Room){(int32_t *)(void *)wide, entries, spare, NULL, NULL};
    Entry *heap = (Entry *)(void *)(wide + count);
    return (Room){(int32_t *)(void *)(heap + top->wanted), entries, spare, heap, wide};
}

// x, values, indices {outer, length, inner, wanted, largest}
static void *prepare(Params *params, Needs *needs) {
    const Tensor x = next_tensor(params);
    const Tensor values = maybe_tensor(params), indices = maybe_tensor(params);
    Top *top = calloc(1, sizeof(Top));
    if (!top) return NULL;
    *top = (Top){
        .x = x.data,
        .values = values.data,
        .indices = (int64_t *)(void *)indices.data,
        .dtype = x.dtype,
        .size = item_size(x.dtype)};
    top->outer = next_int(params);
    top->length = next_int(params);
    top->inner = next_int(params);
    top->wanted = next_int(params);
    top->largest = next_int(params) != 0;
    const int64_t chosen = size_of(top->outer, top->wanted, top->inner);
    const bool fits = !params->bad && top->wanted > 0 && top->wanted <= top->length &&
                      top->length < INT32_MAX && x.dtype != F16 && x.dtype != BF16 &&
                      holds(&x, x.dtype, size_of(top->outer, top->length, top->inner)) &&
                      may_hold(&values, x.dtype, chosen) && may_hold(&indices, I64, chosen);
    if (!fits) {
        free(top);
        return NULL;
    }
    top->unit = ceil_div(TOP_WORK, top->length);
    needs->own = room_bytes(top);
    return top;
}

// -- up to 32 bits --------------------------------------------------------------------------------

#define READ_KEYS(TYPE, KEY_TYPE, KEY)              \
    for (int64_t i = 0; i < top->length; i++) {     \
        const TYPE v = ((const TYPE *)x)[i * step]; \
        keys[i] = (KEY_TYPE)(KEY) ^ turned;         \
    }                                               \
    break;

// What comes first has the smallest key.
INLINE void read_keys_of(
    const Top *top, const char *x, int32_t *keys, const int64_t step, const int32_t turned) {
    switch (top->dtype) {
        NARROW_KEYS(READ_KEYS)
        default: READ_KEYS(uint8_t, int32_t, v)
    }
}

static void read_keys(const Top *top, const char *x, int32_t *keys) {
    const int32_t turned = top->largest ? -1 : 0;
    if (top->inner == 1)
        read_keys_of(top, x, keys, 1, turned);
    else
        read_keys_of(top, x, keys, top->inner, turned);
}

static int32_t count_up_to(const int32_t *keys, int64_t count, int32_t most) {
    int32_t found = 0;
    for (int64_t i = 0; i < count; i++) found += keys[i] <= most;
    return found;
}

// The key that `wanted` keys are not beyond.
static int32_t last_of_first(const int32_t *keys, int64_t count, int64_t wanted) {
    int32_t least = keys[0], most = keys[0];
    for (int64_t i = 0; i < count; i++) {
        least = keys[i] < least ? keys[i] : least;
        most = keys[i] > most ? keys[i] : most;
    }
    while (least < most) {
        const int32_t middle = (int32_t)(((int64_t)least + most) >> 1);
        if (count_up_to(keys, count, middle) >= wanted)
            most = middle;
        else
            least = middle + 1;
    }
    return most;
}

// A key that at least as many as are wanted are not beyond, and not many more.
static int32_t bound_of(const Top *top, const int32_t *keys, int32_t *least) {
    const int64_t n = top->length;
    int64_t columns = COLUMNS;
    while (columns < SPARSE * top->wanted) columns *= 2;
    if (2 * columns > n)
        return n > 2 * top->wanted ? last_of_first(keys, n, top->wanted) : INT32_MAX;
    memcpy(least, keys, (size_t)columns * sizeof(int32_t));
    for (int64_t i = columns; i < n; i += columns) {
        const int64_t count = n - i < columns ? n - i : columns;
        const int32_t *line = keys + i;
        for (int64_t j = 0; j < count; j++) least[j] = line[j] < least[j] ? line[j] : least[j];
    }
    return last_of_first(least, columns, top->wanted);
}

static inline int64_t entry_of(int32_t key, int64_t index) {
    return (int64_t)key * (1ll << 32) | index;
}

// The entries that are not beyond `bound`, in the order of their indices.
static int64_t collect(const int32_t *keys, int64_t n, int32_t bound, int64_t *entries) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; i += BLOCK) {
        const int64_t end = n - i < BLOCK ? n : i + BLOCK;
        if (end - i == BLOCK && !count_up_to(keys + i, BLOCK, bound)) continue;
        for (int64_t k = i; k < end; k++) {
            entries[count] = entry_of(keys[k], k);
            count += keys[k] <= bound;
        }
    }
    return count;
}

// Leaves the first `wanted` of them, in the order of their indices.
static void keep_first(int64_t *entries, int64_t count, int64_t wanted, int32_t *keys) {
    for (int64_t i = 0; i < count; i++) keys[i] = (int32_t)(entries[i] >> 32);
    const int32_t last = last_of_first(keys, count, wanted);
    int64_t before = 0, kept = 0;
    for (int64_t i = 0; i < count; i++) before += keys[i] < last;
    int64_t equal = wanted - before;
    for (int64_t i = 0; i < count && kept < wanted; i++) {
        const bool keeps = keys[i] < last || (keys[i] == last && equal-- > 0);
        entries[kept] = entries[i];
        kept += keeps;
    }
}

// Puts each of few entries where it belongs.
static void sort_few(const int64_t *entries, int64_t count, int64_t wanted, int64_t *sorted) {
    for (int64_t i = 0; i < count; i++) {
        const int64_t entry = entries[i];
        int64_t place = 0;
        for (int64_t j = 0; j < count; j++) place += entries[j] < entry;
        if (place < wanted) sorted[place] = entry;
    }
}

// By the bytes of their keys, the last first; they are in the order of their indices.
static void sort_many(int64_t *entries, int64_t *spare, int64_t count) {
    for (int shift = 32; shift < 64; shift += 8) {
        int64_t places[257] = {0};
        const uint64_t flip = shift == 56 ? 128 : 0;
        for (int64_t i = 0; i < count; i++)
            places[1 + (((uint64_t)entries[i] >> shift & 255) ^ flip)]++;
        for (int i = 0; i < 256; i++) places[i + 1] += places[i];
        for (int64_t i = 0; i < count; i++)
            spare[places[((uint64_t)entries[i] >> shift & 255) ^ flip]++] = entries[i];
        int64_t *const other = entries;
        entries = spare;
        spare = other;
    }
}

// The wanted entries in order, by their keys.
static const int64_t *choose(const Top *top, Room room) {
    const int32_t bound = bound_of(top, room.keys, (int32_t *)(void *)room.spare);
    const int64_t count = collect(room.keys, top->length, bound, room.entries);
    if (count <= COUNTED) {
        sort_few(room.entries, count, top->wanted, room.spare);
        return room.spare;
    }
    if (count > top->wanted) keep_first(room.entries, count, top->wanted, room.keys);
    if (top->wanted <= COUNTED) {
        sort_few(room.entries, top->wanted, top->wanted, room.spare);
        return room.spare;
    }
    sort_many(room.entries, room.spare, top->wanted);
    return room.entries;
}

// -- 64 bits --------------------------------------------------------------------------------------

INLINE void read_wide_of(
    const Top *top, const char *x, int64_t *keys, const int64_t step, const int64_t turned) {
    switch (top->dtype) {
        WIDE_KEYS(READ_KEYS)
        default: break;
    }
}

// The bits in which a line differs become its keys.  How many are left out.
static int narrow_keys(const int64_t *wide, int64_t count, int32_t *keys) {
    int64_t least = wide[0], most = wide[0];
    for (int64_t i = 1; i < count; i++) {
        least = wide[i] < least ? wide[i] : least;
        most = wide[i] > most ? wide[i] : most;
    }
    const uint64_t range = (uint64_t)most - (uint64_t)least;
    const int shift = range >> 32 ? 32 - __builtin_clzll(range) : 0;
    for (int64_t i = 0; i < count; i++) {
        const uint64_t above = ((uint64_t)wide[i] - (uint64_t)least) >> shift;
        keys[i] = (int32_t)((uint32_t)above ^ (uint32_t)INT32_MIN);
    }
    return shift;
}

static bool is_after(Entry a, Entry b) {
    return a.key != b.key ? a.key > b.key : a.index > b.index;
}

// A heap whose first entry is the last in order.
static void sink(Entry *heap, int64_t count, int64_t place) {
    const Entry entry = heap[place];
    for (int64_t child; (child = 2 * place + 1) < count; place = child) {
        if (child + 1 < count && is_after(heap[child + 1], heap[child])) child++;
        if (!is_after(heap[child], entry)) break;
        heap[place] = heap[child];
    }
    heap[place] = entry;
}

// The wanted ones among entries, in order, by all of their bits.
static void choose_among(const Top *top, const int64_t *entries, int64_t count, Room room) {
    const int64_t wanted = top->wanted;
    Entry *heap = room.heap;
    for (int64_t i = 0; i < count; i++) {
        const int64_t index = entries[i] & UINT32_MAX;
        const Entry entry = {room.wide[index], index};
        if (i < wanted) {
            heap[i] = entry;
            if (i + 1 == wanted)
                for (int64_t j = wanted / 2; j-- > 0;) sink(heap, wanted, j);
        } else if (entry.key < heap[0].key) {
            heap[0] = entry;
            sink(heap, wanted, 0);
        }
    }
    for (int64_t last = wanted - 1; last > 0; last--) {
        const Entry entry = heap[0];
        heap[0] = heap[last];
        heap[last] = entry;
        sink(heap, last, 0);
    }
}

// The wanted entries in order; their keys need not be those of the elements.
static const int64_t *choose_wide(const Top *top, const char *x, Room room) {
    const int64_t turned = top->largest ? -1 : 0;
    if (top->inner == 1)
        read_wide_of(top, x, room.wide, 1, turned);
    else
        read_wide_of(top, x, room.wide, top->inner, turned);
    if (!narrow_keys(room.wide, top->length, room.keys)) return choose(top, room);
    const int32_t bound = bound_of(top, room.keys, (int32_t *)(void *)room.spare);
    const int64_t count = collect(room.keys, top->length, bound, room.entries);
    choose_among(top, room.entries, count, room);
    for (int64_t i = 0; i < top->wanted; i++) room.entries[i] = room.heap[i].index;
    return room.entries;
}

// -- lines ----------------------------------------------------------------------------------------

static void put(const Top *top, const char *x, int64_t place, int64_t index) {
    if (top->indices) top->indices[place] = index;
    if (!top->values) return;
    if (top->size == 4)
        memcpy(top->values + place * 4, x + index * top->inner * 4, 4);
    else
        memcpy(
            top->values + place * top->size, x + index * top->inner * top->size, (size_t)top->size);
}

static void do_line(const Top *top, int64_t line, char *own) {
    const int64_t step = top->inner, i = step == 1 ? line : line / step, j = line - i * step;
    const char *x = top->x + (i * top->length * step + j) * top->size;
    const int64_t first = i * top->wanted * step + j;
    if (top->wanted <= MOST_FEW) {
        Entry few[MOST_FEW];
        const Line all = {x, top->dtype, top->length, step, top->wanted, top->largest ? -1 : 0};
        find_few(&all, few);
        for (int64_t k = 0; k < top->wanted; k++) put(top, x, first + k * step, few[k].index);
        return;
    }
    const Room room = room_in(top, own);
    if (top->size < 8) read_keys(top, x, room.keys);
    const int64_t *entries = top->size < 8 ? choose(top, room) : choose_wide(top, x, room);
    for (int64_t k = 0; k < top->wanted; k++)
        put(top, x, first + k * step, entries[k] & UINT32_MAX);
}

typedef struct {
    const Top *top;
    const Run *run;
} Job;

static void some_lines(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const int64_t lines = job->top->outer * job->top->inner, end = (chunk + 1) * job->top->unit;
    for (int64_t line = chunk * job->top->unit; line < end && line < lines; line++)
        do_line(job->top, line, job->run->own[thread]);
}

static Failure run_top(const void *state, const Run *run) {
    const Top *top = state;
    Job job = {top, run};
    share_chunks(run, ceil_div(top->outer * top->inner, top->unit), some_lines, &job);
    return OK;
}

const Kernel ISA(TOPS)[] = {
    {"TopK", prepare, run_top, NULL},
    {NULL, NULL, NULL, NULL},
};
