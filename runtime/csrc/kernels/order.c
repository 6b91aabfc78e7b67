// Along an axis, [outer][length][inner]: the first few in order, running sums and products.
#include <stdlib.h>
#include <string.h>

#include "../kernel.h"
#include "simd.h"

enum { ORDER_WORK = 1 << 13 };

typedef struct {
    uint64_t key;
    int64_t index;
} Entry;

typedef struct Order Order;

// Does one line; `entries` are `wanted` entries of the thread.
typedef void (*LineFn)(const Order *order, int64_t line, Entry *entries);

struct Order {
    const char *x;
    char *values, *indices;  // results; NULL: not wanted
    DType dtype;
    int64_t size, outer, length, inner;
    int64_t wanted;  // how many come first
    bool largest, backwards, exclusive, product;
    LineFn along;
    int64_t unit;  // lines of a chunk
    Tensor shape, axis;  // of running sums: an axis that is read on every run, or absent
};

// -- line by line ---------------------------------------------------------------------------------

typedef struct {
    const Order *order;
    const Run *run;
} Work;

static int64_t count_lines(const Order *order) { return order->outer * order->inner; }

static void some_lines(void *context, int64_t chunk, int thread) {
    const Work *work = context;
    const Order *order = work->order;
    const int64_t lines = count_lines(order), end = (chunk + 1) * order->unit;
    for (int64_t line = chunk * order->unit; line < end && line < lines; line++)
        order->along(order, line, (Entry *)(void *)work->run->own[thread]);
}

static Failure run_lines(const void *state, const Run *run) {
    Work work = {state, run};
    const Order *order = state;
    share_chunks(run, (count_lines(order) + order->unit - 1) / order->unit, some_lines, &work);
    return OK;
}

// What all of these kernels are given: the operand, then `count` results, then {outer, length, inner}.
static Order *read_order(Params *params, Tensor *x, Tensor *results, int count) {
    *x = next_tensor(params);
    bool plain = is_contiguous(x);
    for (int i = 0; i < count; i++) {
        results[i] = next_tensor(params);
        plain = plain && is_contiguous(&results[i]);
    }
    Order *order = calloc(1, sizeof(Order));
    if (!order) return NULL;
    order->x = x->data;
    order->dtype = x->dtype;
    order->size = item_size(x->dtype);
    order->outer = next_int(params);
    order->length = next_int(params);
    order->inner = next_int(params);
    order->unit = order->length > 0 ? (ORDER_WORK + order->length - 1) / order->length : 1;
    if (params->bad || !plain || x->dtype == F16 || x->dtype == BF16) {
        free(order);
        return NULL;
    }
    return order;
}

// Whether there are `along` elements in each line of an operand.
static bool has_lines(const Tensor *tensor, const Order *order, int64_t along) {
    return element_count(tensor) == size_of(order->outer, along, order->inner);
}

static void *unless(bool bad, Order *order) {
    if (!bad) return order;
    free(order);
    return NULL;
}

// -- the order of elements, as that of unsigned numbers -------------------------------------------

// Positive and negative zero are equal.  `size` bytes of a float by their bits.
static uint64_t float_key(uint64_t bits, uint64_t sign) {
    if (bits == sign) bits = 0;
    return bits & sign ? ~bits & (sign | (sign - 1)) : bits | sign;
}

static uint64_t double_key(uint64_t bits, bool largest) {
    const uint64_t sign = (uint64_t)1 << 63, infinity = (uint64_t)0x7ff << 52;
    if ((bits & ~sign) > infinity) return UINT64_MAX;  // NaN comes last
    const uint64_t key = float_key(bits, sign);
    return largest ? ~key : key;
}

// What comes first has the smallest key.
static uint64_t key_of(const char *at, DType dtype, bool largest) {
    uint64_t key = 0;
    if (dtype == F64) {
        memcpy(&key, at, 8);
        return double_key(key, largest);
    }
    switch (dtype) {
        case F32: {
            uint32_t bits;
            memcpy(&bits, at, 4);
            key = float_key(bits, (uint64_t)1 << 31);
            break;
        }
        case I8: key = (uint64_t)(*(const int8_t *)at + 128); break;
        case I16: key = (uint64_t)(*(const int16_t *)at + 32768); break;
        case I32: key = (uint64_t)((int64_t)*(const int32_t *)at + ((int64_t)1 << 31)); break;
        case I64: key = *(const uint64_t *)at ^ ((uint64_t)1 << 63); break;
        case U16: key = *(const uint16_t *)at; break;
        case U32: key = *(const uint32_t *)at; break;
        case U64: key = *(const uint64_t *)at; break;
        default: key = *(const uint8_t *)at; break;
    }
    return largest ? ~key : key;
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

static void choose(const Order *order, const char *x, int64_t step, Entry *heap) {
    const int64_t wanted = order->wanted;
    for (int64_t i = 0; i < order->length; i++) {
        const Entry entry = {key_of(x + i * step, order->dtype, order->largest), i};
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

static void top_line(const Order *order, int64_t line, Entry *heap) {
    const int64_t i = line / order->inner, j = line % order->inner, step = order->inner;
    const char *x = order->x + (i * order->length * step + j) * order->size;
    choose(order, x, step * order->size, heap);
    int64_t place = i * order->wanted * step + j;
    for (int64_t k = 0; k < order->wanted; k++, place += step) {
        const int64_t index = heap[k].index;
        if (order->indices) ((int64_t *)order->indices)[place] = index;
        if (order->values)
            memcpy(order->values + place * order->size, x + index * step * order->size,
                   (size_t)order->size);
    }
}

// x, values, indices {outer, length, inner, wanted, largest}
static void *prepare_top(Params *params, Needs *needs) {
    Tensor x, results[2];
    Order *order = read_order(params, &x, results, 2);
    if (!order) return NULL;
    order->along = top_line;
    order->values = results[0].data;
    order->indices = results[1].data;
    order->wanted = next_int(params);
    order->largest = next_int(params) != 0;
    bool fits = !params->bad && order->wanted > 0 && order->wanted <= order->length &&
                has_lines(&x, order, order->length) && results[1].dtype == I64;
    for (int i = 0; i < 2; i++)
        fits = fits && (!results[i].data || has_lines(&results[i], order, order->wanted));
    if (fits) needs->own = order->wanted * (int64_t)sizeof(Entry);
    return unless(!fits || (order->values && results[0].dtype != x.dtype), order);
}

// -- running sums and products --------------------------------------------------------------------

// Sums and products of integers wrap around: they are computed without signs.
#define ACCUMULATE(TYPE, WORK)                                                                   \
    static void accumulate_##TYPE(const Order *order, int64_t line, Entry *entries) {            \
        (void)entries;                                                                           \
        const int64_t i = line / order->inner, j = line % order->inner;                          \
        const int64_t n = order->length, first = order->backwards ? n - 1 : 0;                   \
        const int64_t step = order->backwards ? -order->inner : order->inner;                    \
        const int64_t start = (i * n + first) * order->inner + j;                                \
        const TYPE *x = (const TYPE *)order->x + start;                                          \
        TYPE *out = (TYPE *)order->values + start;                                               \
        WORK total = order->product ? 1 : 0;                                                     \
        for (int64_t k = 0; k < n; k++, x += k < n ? step : 0, out += k < n ? step : 0) {        \
            const WORK value = (WORK)*x, before = total;                                         \
            if (order->product) total = total * value;                                           \
            else total = k ? total + value : value;                                              \
            *out = (TYPE)(order->exclusive ? before : total);                                    \
        }                                                                                        \
    }

ACCUMULATE(float, float)
ACCUMULATE(double, double)
ACCUMULATE(int32_t, uint32_t)
ACCUMULATE(int64_t, uint64_t)

static LineFn accumulation(DType dtype) {
    switch (dtype) {
        case F32: return accumulate_float;
        case F64: return accumulate_double;
        case I32: return accumulate_int32_t;
        case I64: return accumulate_int64_t;
        default: return NULL;
    }
}

// The sizes before, along and behind the axis that is chosen now; false if there is no such axis.
static bool choose_axis(Order *order) {
    const Tensor *axis = &order->axis, *shape = &order->shape;
    int64_t chosen =
        axis->dtype == I64 ? *(const int64_t *)axis->data : *(const int32_t *)axis->data;
    if (chosen < 0) chosen += shape->rank;
    if (chosen < 0 || chosen >= shape->rank) return false;
    order->outer = order->inner = 1;
    for (int i = 0; i < shape->rank; i++) {
        if (i < chosen) order->outer *= shape->dims[i];
        if (i > chosen) order->inner *= shape->dims[i];
    }
    order->length = shape->dims[chosen];
    return true;
}

static Failure run_accumulate(const void *state, const Run *run) {
    const Order *order = state;
    if (!order->axis.data) return run_lines(order, run);
    Order chosen = *order;
    return choose_axis(&chosen) ? run_lines(&chosen, run) : INDEX_OUTSIDE;
}

// x, out {outer, length, inner, backwards, exclusive, product}, axis?
static void *prepare_accumulate(Params *params, Needs *needs) {
    (void)needs;
    Tensor x, out;
    Order *order = read_order(params, &x, &out, 1);
    if (!order) return NULL;
    order->along = accumulation(x.dtype);
    order->values = out.data;
    order->backwards = next_int(params) != 0;
    order->exclusive = next_int(params) != 0;
    order->product = next_int(params) != 0;
    order->shape = x;
    order->axis = maybe_tensor(params);
    const bool known = !order->axis.data || holds(&order->axis, I32, 1) || holds(&order->axis, I64, 1);
    const bool fits = !params->bad && known && order->along && has_lines(&x, order, order->length) &&
                      has_lines(&out, order, order->length) && x.dtype == out.dtype;
    return unless(!fits, order);
}

const Kernel ISA(ORDERS)[] = {
    {"TopK", prepare_top, run_lines, NULL},
    {"Accumulate", prepare_accumulate, run_accumulate, NULL},
    {NULL, NULL, NULL, NULL},
};
