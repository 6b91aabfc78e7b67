// The inverse of maxima over windows: values go back to where indices say, and zeros elsewhere.
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernel.h"
#include "../support/simd.h"
#include "../support/sizes.h"

enum { UNPOOL_WORK = 1 << 14 };  // elements of results that a chunk makes: see sizes.h

// Indices count elements of the whole result, but nearly always name some of the plane that their values
// belong to, of which there are as many on both sides.
typedef struct {
    char *out;
    const char *values;
    const char *indices;  // int64
    int64_t planes, given, made;  // elements of a plane: those of `values`, and of the result
    int64_t size, unit;  // bytes of an element, and planes of a chunk
} Unpool;

// out, indices, values {planes}
static void *prepare(Params *params, Needs *needs) {
    const Tensor out = next_tensor(params), indices = next_tensor(params);
    const Tensor values = next_tensor(params);
    const int64_t planes = next_int(params);
    Unpool *unpool = calloc(1, sizeof(Unpool));
    if (!unpool) return NULL;
    const int64_t given = element_count(&values), made = element_count(&out);
    const bool fits = !params->bad && planes > 0 && made > 0 && given % planes == 0 &&
                      made % planes == 0 && values.dtype == out.dtype &&
                      are_apart(&indices, &out) && holds(&values, values.dtype, given) &&
                      holds(&out, out.dtype, made) && holds(&indices, I64, given);
    if (!fits) {
        free(unpool);
        return NULL;
    }
    *unpool = (Unpool){
        .out = out.data,
        .values = values.data,
        .indices = indices.data,
        .planes = planes,
        .given = given / planes,
        .made = made / planes,
        .size = item_size(out.dtype)};
    unpool->unit = ceil_div(UNPOOL_WORK, unpool->made);
    writes_anywhere(needs, &unpool->out);
    reads_anywhere(needs, &unpool->values);
    reads_anywhere(needs, &unpool->indices);
    return unpool;
}

typedef struct {
    const Unpool *unpool;
    atomic_bool strays;  // whether an index names an element of another plane, or none
} Job;

// Values begin .. end - 1, each to its place if that is one of first .. first + count - 1; whether all
// were.  Each index is read once: callers may change what has been looked at.  `size` is a constant.
INLINE bool put_of(
    const Unpool *unpool, int64_t begin, int64_t end, int64_t first, int64_t count,
    const int64_t size) {
    const volatile int64_t *const indices = (const void *)unpool->indices;
    const int64_t all = unpool->planes * unpool->made;
    const char *const values = unpool->values;
    char *const out = unpool->out + first * size;
    bool fits = true;
    for (int64_t i = begin; i < end; i++) {
        const int64_t index = indices[i], place = (index < 0 ? index + all : index) - first;
        if (place >= 0 && place < count)
            memcpy(out + place * size, values + i * size, (size_t)size);
        else
            fits = false;
    }
    return fits;
}

static bool put(const Unpool *unpool, int64_t begin, int64_t end, int64_t first, int64_t count) {
    switch (unpool->size) {
        case 1: return put_of(unpool, begin, end, first, count, 1);
        case 2: return put_of(unpool, begin, end, first, count, 2);
        case 4: return put_of(unpool, begin, end, first, count, 4);
        default: return put_of(unpool, begin, end, first, count, 8);
    }
}

static void some_planes(void *context, int64_t chunk, int thread) {
    (void)thread;
    Job *job = context;
    const Unpool *unpool = job->unpool;
    const int64_t end = lesser((chunk + 1) * unpool->unit, unpool->planes);
    for (int64_t plane = chunk * unpool->unit; plane < end; plane++) {
        const int64_t first = plane * unpool->made, begin = plane * unpool->given;
        memset(unpool->out + first * unpool->size, 0, (size_t)(unpool->made * unpool->size));
        if (!put(unpool, begin, begin + unpool->given, first, unpool->made))
            atomic_store(&job->strays, true);
    }
}

// Where indices lead to other planes, all values go to their places once more, in order.
static Failure run_unpool(const void *state, const Run *run) {
    const Unpool *unpool = state;
    Job job = {unpool, false};
    share_chunks(run, ceil_div(unpool->planes, unpool->unit), some_planes, &job);
    if (!atomic_load(&job.strays)) return OK;
    const int64_t given = unpool->planes * unpool->given;
    return put(unpool, 0, given, 0, unpool->planes * unpool->made) ? OK : INDEX_OUTSIDE;
}

const Kernel ISA(UNPOOLS)[] = {
    {"Unpool", prepare, run_unpool, NULL},
    {NULL, NULL, NULL, NULL},
};
