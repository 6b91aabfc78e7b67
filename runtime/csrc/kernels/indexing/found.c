// What data has to be looked for: elements that are not zero, boxes that no better one overlaps.
// What is found comes first, zeros follow; more than there is room for is INDEX_OUTSIDE.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernel.h"
#include "../support/bits.h"
#include "../support/simd.h"

// -- what is not zero -----------------------------------------------------------------------------

typedef struct {
    Tensor x;
    int64_t *to, *found;  // [rank, bound], and their number
    int64_t count, bound;
} NonZero;

static void *prepare_non_zero(Params *params, Needs *needs) {
    (void)needs;
    const Tensor x = next_tensor(params);
    const Tensor to = maybe_tensor(params);  // without elements it is nowhere
    const Tensor found = next_tensor(params);
    const int64_t bound = next_int(params), size = size_of(bound, x.rank, 1);
    NonZero *state = malloc(sizeof(NonZero));
    if (!state || params->bad || size < 0 || !is_contiguous(&x) ||
        (size > 0 && !holds(&to, I64, size)) || !holds(&found, I64, 1) || !are_apart(&x, &to) ||
        !are_apart(&x, &found) || !are_apart(&to, &found)) {
        free(state);
        return NULL;
    }
    *state = (NonZero){x, (void *)to.data, (void *)found.data, element_count(&x), bound};
    return state;
}

// The bits of element `i` but for the sign of a float: zeros have two.
static inline uint64_t bits_at(const char *data, DType dtype, int64_t i) {
    switch (dtype) {
        case F32: return ((const uint32_t *)(const void *)data)[i] & 0x7fffffffU;
        case F64: return ((const uint64_t *)(const void *)data)[i] & ~(UINT64_C(1) << 63);
        case F16:
        case BF16: return ((const uint16_t *)(const void *)data)[i] & 0x7fffU;
        case I16:
        case U16: return ((const uint16_t *)(const void *)data)[i];
        case I32:
        case U32: return ((const uint32_t *)(const void *)data)[i];
        case I64:
        case U64: return ((const uint64_t *)(const void *)data)[i];
        default: return ((const uint8_t *)data)[i];
    }
}

// The places in `to`, and their number, or -1: each is written, and kept if it is wanted.
static inline int64_t find_all(const NonZero *all, const DType dtype, int64_t *to) {
    int64_t found = 0, i = 0;
    for (const int64_t free = all->bound < all->count ? all->bound : all->count; i < free; i++) {
        to[found] = i;
        found += bits_at(all->x.data, dtype, i) != 0;
    }
    for (; i < all->count; i++) {
        if (bits_at(all->x.data, dtype, i) == 0) continue;
        if (found == all->bound) return -1;
        to[found++] = i;
    }
    return found;
}

static int64_t find_by_type(const NonZero *all, int64_t *to) {
    switch (all->x.dtype) {
        case F32: return find_all(all, F32, to);
        case F64: return find_all(all, F64, to);
        case F16:
        case BF16: return find_all(all, F16, to);
        case I16:
        case U16: return find_all(all, U16, to);
        case I32:
        case U32: return find_all(all, U32, to);
        case I64:
        case U64: return find_all(all, U64, to);
        default: return find_all(all, BOOL, to);
    }
}

// Coordinates take the place of flat places, which the first row of `to` holds.
static void split_places(const NonZero *all, int64_t found) {
    for (int axis = all->x.rank - 1; axis > 0; axis--) {
        const int64_t dim = all->x.dims[axis];
        int64_t *row = all->to + axis * all->bound;
        for (int64_t i = 0; i < found; i++) {
            const int64_t rest = all->to[i] / dim;
            row[i] = all->to[i] - rest * dim;
            all->to[i] = rest;
        }
    }
}

static Failure run_non_zero(const void *argument, const Run *run) {
    (void)run;
    const NonZero *all = argument;
    if (all->x.rank == 0) {  // places have no coordinates
        *all->found = bits_at(all->x.data, all->x.dtype, 0) != 0;
        return *all->found > all->bound ? INDEX_OUTSIDE : OK;
    }
    const int64_t found = find_by_type(all, all->to);
    if (found < 0) return INDEX_OUTSIDE;
    if (all->bound > 0) split_places(all, found);
    const size_t rest = (size_t)(all->bound - found) * sizeof(int64_t);
    for (int axis = 0; axis < all->x.rank; axis++)
        if (rest) memset(all->to + axis * all->bound + found, 0, rest);
    *all->found = found;
    return OK;
}

// -- boxes ----------------------------------------------------------------------------------------

typedef struct {
    const float *boxes, *scores;  // [batches, number, 4], [batches, classes, number]
    const float *overlap, *least;  // `least`: NULL if any score will do
    const int64_t *limit, *number_used;  // `number_used`: NULL if all boxes count
    int64_t *to, *found;
    int64_t batches, classes, number, bound;
    bool centred;
} Selection;

typedef struct { float low[2], high[2], area; } Box;

static bool has_parts(const Tensor *boxes, const Tensor *scores) {
    return boxes->rank == 3 && scores->rank == 3 && boxes->dims[2] == 4 &&
           boxes->dims[0] == scores->dims[0] && boxes->dims[1] == scores->dims[2] &&
           boxes->dims[1] <= UINT32_MAX && boxes->dtype == F32 && scores->dtype == F32 &&
           is_contiguous(boxes) && is_contiguous(scores);
}

static void *prepare_selection(Params *params, Needs *needs) {
    const Tensor boxes = next_tensor(params), scores = next_tensor(params);
    const Tensor limit = next_tensor(params), overlap = next_tensor(params);
    const Tensor least = maybe_tensor(params), used = maybe_tensor(params);
    const Tensor to = next_tensor(params), found = next_tensor(params);
    const int64_t bound = next_int(params), centred = next_int(params);
    Selection *all = malloc(sizeof(Selection));
    if (!all || params->bad || !has_parts(&boxes, &scores) || !holds(&limit, I64, 1) ||
        !holds(&overlap, F32, 1) || !may_hold(&least, F32, 1) || !may_hold(&used, I64, 1) ||
        !holds(&to, I64, size_of(bound, 3, 1)) || !holds(&found, I64, 1) ||
        !are_apart(&boxes, &to) || !are_apart(&scores, &to) || !are_apart(&to, &found)) {
        free(all);
        return NULL;
    }
    *all = (Selection){
        .boxes = (void *)boxes.data,
        .scores = (void *)scores.data,
        .overlap = (void *)overlap.data,
        .least = (void *)least.data,
        .limit = (void *)limit.data,
        .number_used = (void *)used.data,
        .to = (void *)to.data,
        .found = (void *)found.data,
        .batches = boxes.dims[0],
        .classes = scores.dims[1],
        .number = boxes.dims[1],
        .bound = bound,
        .centred = centred != 0};
    needs->shared = all->number * (int64_t)(sizeof(uint64_t) + 2 * sizeof(Box));
    return all;
}

// The larger, and the smaller, of two; a number that is none is passed on.
static inline float larger(float a, float b) { return a > b || a != a ? a : b; }

static inline float smaller(float a, float b) { return a < b || a != a ? a : b; }

static Box box_at(const Selection *all, const float *numbers) {
    Box box;
    for (int axis = 0; axis < 2; axis++) {
        float first = numbers[axis], second = numbers[axis + 2];
        if (all->centred) {
            const float half = second / 2;
            second = first + half;
            first -= half;
        }
        box.low[axis] = smaller(first, second);
        box.high[axis] = larger(first, second);
    }
    box.area = (box.high[0] - box.low[0]) * (box.high[1] - box.low[1]);
    return box;
}

// The length that two boxes have in common along an axis.
static inline float common(const Box *a, const Box *b, int axis) {
    const float end = smaller(a->high[axis], b->high[axis]);
    return larger(end - larger(a->low[axis], b->low[axis]), 0);
}

// Whether intersection by union is more than `overlap`.  The product is rounded by itself, as numpy
// does it: where an overlap is as large as the limit, this decides.
static inline bool overlaps(const Box *a, const Box *b, float overlap) {
    const volatile float product = common(a, b, 0) * common(a, b, 1);
    const float shared = product, ratio = shared > 0 ? shared / (a->area + b->area - shared) : 0;
    return !(ratio <= overlap);
}

// Numbers that grow as scores fall, and with the place where scores are equal; those that are no
// numbers come last.
static inline uint64_t key_of(float score, int64_t place) {
    const uint32_t bits = (uint32_t)as_bits(score + 0.0F);
    const uint32_t rising = bits >> 31 ? ~bits : bits | UINT32_C(1) << 31;
    return (uint64_t)(score != score ? UINT32_MAX : ~rising) << 32 | (uint64_t)place;
}

// Lets `key` sink from the top of a heap of `count` to its place; the least stands on top.
static void sink(uint64_t *heap, int64_t count, int64_t at, uint64_t key) {
    for (int64_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && heap[child + 1] < heap[child]) child++;
        if (key <= heap[child]) break;
        heap[at] = heap[child];
    }
    heap[at] = key;
}

// The boxes of a class that are waiting, as a heap by score; their number.
static int64_t waiting(const Selection *all, const float *scores, int64_t number, uint64_t *heap) {
    const bool some = all->least && *all->least > -INFINITY;
    int64_t count = 0;
    for (int64_t i = 0; i < number; i++)
        if (!some || scores[i] > *all->least) heap[count++] = key_of(scores[i], i);
    for (int64_t i = count / 2; i-- > 0;) sink(heap, count, i, heap[i]);
    return count;
}

typedef struct {
    const Selection *all;
    const Run *run;
    Failure failure;
} Selecting;

// The selected boxes of a class, behind `found` rows; the new number of rows, or -1.
static int64_t select_boxes(
    const Selecting *job, int64_t batch, int64_t class, int64_t number, int64_t found) {
    const Selection *all = job->all;
    Box *boxes = (Box *)job->run->shared, *chosen = boxes + all->number;
    uint64_t *heap = (uint64_t *)(chosen + all->number);
    const float *scores = all->scores + (batch * all->classes + class) * all->number;
    const float overlap = *all->overlap;
    int64_t count = waiting(all, scores, number, heap), taken = 0, done = 0;
    while (count > 0 && taken < *all->limit) {
        const int64_t place = (int64_t)(heap[0] & UINT32_MAX);
        sink(heap, count - 1, 0, heap[count - 1]);
        count--;
        const Box box = boxes[place];
        int64_t other = 0;
        while (other < taken && !overlaps(&chosen[other], &box, overlap)) other++;
        if (is_stopped_after(other + 1, &done)) return -1;
        if (other < taken) continue;
        if (found == all->bound) return -1;
        chosen[taken++] = box;
        int64_t *row = all->to + 3 * found++;
        row[0] = batch;
        row[1] = class;
        row[2] = place;
    }
    return found;
}

static void select_all(void *context, int64_t chunk, int thread) {
    (void)chunk, (void)thread;
    Selecting *job = context;
    const Selection *all = job->all;
    int64_t number = all->number_used ? *all->number_used : all->number, found = 0;
    if (number > all->number) number = all->number;
    for (int64_t batch = 0; batch < all->batches; batch++) {
        const float *numbers = all->boxes + batch * all->number * 4;
        Box *boxes = (Box *)job->run->shared;
        for (int64_t i = 0; i < number; i++) boxes[i] = box_at(all, numbers + 4 * i);
        for (int64_t class = 0; class < all->classes && found >= 0; class++)
            found = select_boxes(job, batch, class, number, found);
        if (found < 0) break;
    }
    job->failure = found < 0 || number < 0 ? INDEX_OUTSIDE : OK;
    if (job->failure != OK) return;
    const size_t rest = (size_t)(all->bound - found) * 3 * sizeof(int64_t);
    if (rest) memset(all->to + 3 * found, 0, rest);
    *all->found = found;
}

static Failure run_selection(const void *argument, const Run *run) {
    Selecting job = {argument, run, OK};
    share_chunks(run, 1, select_all, &job);
    return job.failure;
}

const Kernel ISA(FOUND)[] = {
    {"NonMaxSuppression", prepare_selection, run_selection, NULL},
    {"NonZero", prepare_non_zero, run_non_zero, NULL},
    {NULL, NULL, NULL, NULL},
};
