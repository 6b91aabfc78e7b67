// Ensembles of decision trees; popc_runtime/kernels/trees.py says what the operands are.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../support/simd.h"
#include "../support/sizes.h"
#include "trees.h"

#define REAL float
#define BITS uint32_t
#define SIGN UINT32_C(0x80000000)
#include "trees_in.h"
#undef REAL
#undef BITS
#undef SIGN
#define REAL double
#define BITS uint64_t
#define SIGN UINT64_C(0x8000000000000000)
#include "trees_in.h"
#undef REAL
#undef BITS
#undef SIGN

typedef struct {
    Tensor x, features, thresholds, children, roots, starts, targets, weights, out;
} Operands;

static inline const int32_t *numbers_of(const Tensor *tensor) {
    return (const int32_t *)(const void *)tensor->data;
}

static inline int64_t feature_of(const Operands *given, int64_t node) {
    return numbers_of(&given->features)[node] >> QUESTION_BITS;
}

static bool is_list(const Tensor *tensor, DType dtype) {
    return tensor->rank == 1 && tensor->dtype == dtype && tensor->constant &&
           is_contiguous(tensor) && tensor->dims[0] < INT32_MAX;
}

static bool types_fit(const Operands *given) {
    const Tensor *x = &given->x, *out = &given->out;
    const DType dtype = x->dtype;
    return (dtype == F32 || dtype == F64) && x->rank == 2 && out->rank == 2 &&
           out->dtype == dtype && is_contiguous(x) && is_contiguous(out) &&
           x->dims[0] == out->dims[0] && out->dims[1] >= 1 && x->dims[1] < INT32_MAX &&
           out->dims[1] < INT32_MAX && are_apart(x, out) && is_list(&given->features, I32) &&
           is_list(&given->thresholds, dtype) && is_list(&given->children, I32) &&
           is_list(&given->roots, I32) && is_list(&given->starts, I32) &&
           is_list(&given->targets, I32) && is_list(&given->weights, dtype);
}

// Whether every number that names something names what is there, and ways end.
static bool nodes_fit(const Operands *given) {
    const int64_t nodes = given->children.dims[0], leaves = given->starts.dims[0] - 1;
    const int32_t *child = numbers_of(&given->children);
    if (given->features.dims[0] != nodes || given->thresholds.dims[0] != nodes) return false;
    for (int64_t i = 0; i < nodes; i++) {
        const bool inner = child[i] >= 0;
        if (!inner && -1 - (int64_t)child[i] >= leaves) return false;
        if (inner && (child[i] - 1 <= i || child[i] >= nodes)) return false;
        const int64_t feature = feature_of(given, i);
        if (inner && (feature < 0 || feature >= given->x.dims[1])) return false;
    }
    for (int64_t i = 0; i < given->roots.dims[0]; i++) {
        const int32_t root = numbers_of(&given->roots)[i];
        if (root < 0 || root >= nodes) return false;
    }
    return true;
}

static bool leaves_fit(const Operands *given) {
    const int64_t leaves = given->starts.dims[0] - 1, entries = given->targets.dims[0];
    const int32_t *start = numbers_of(&given->starts);
    if (leaves < 0 || given->weights.dims[0] != entries || start[0] < 0) return false;
    for (int64_t i = 0; i < leaves; i++)
        if (start[i + 1] < start[i]) return false;
    if (start[leaves] > entries) return false;
    for (int64_t i = 0; i < entries; i++) {
        const int32_t target = numbers_of(&given->targets)[i];
        if (target < 0 || target >= given->out.dims[1]) return false;
    }
    return true;
}

static int bits_of(int64_t number) {
    int bits = 0;
    while (number >> bits) bits++;
    return bits;
}

// Narrow nodes, if features and steps have room in 31 bits and thresholds are floats.
static void choose_nodes(Forest *forest, const Operands *given) {
    const int32_t *child = numbers_of(&given->children);
    int64_t widest = 0, last = 0;
    for (int64_t i = 0; i < forest->nodes; i++) {
        if (child[i] < 0) continue;
        widest = greater(widest, child[i] - i);
        last = greater(last, feature_of(given, i));
        forest->signs |= numbers_of(&given->features)[i] & NEGATED;
        forest->others |= numbers_of(&given->features)[i] & (EQUAL | MISSING);
    }
    forest->shift = bits_of(widest);
    forest->wide = forest->doubles || forest->others || forest->shift + bits_of(last) > 31;
    if (forest->wide) forest->shift = 0;
}

static double threshold_of(const Forest *forest, const Operands *given, int64_t node) {
    const void *data = given->thresholds.data;
    return forest->doubles ? ((const double *)data)[node] : (double)((const float *)data)[node];
}

static void write_node(const Forest *forest, const Operands *given, int64_t i) {
    const int64_t child = numbers_of(&given->children)[i];
    const bool inner = child >= 0;
    const int32_t feature = inner ? numbers_of(&given->features)[i] : 0;
    const int32_t step = inner ? (int32_t)(child - i) : 0;
    const double threshold = inner ? threshold_of(forest, given, i) : (double)NAN;
    if (forest->wide) {
        ((WideNode *)forest->node)[i] = (WideNode){threshold, feature, step};
        return;
    }
    const uint32_t place = (uint32_t)(feature >> QUESTION_BITS) << forest->shift;
    const uint32_t word = (feature & NEGATED ? UINT32_C(1) << 31 : 0) | place | (uint32_t)step;
    ((NarrowNode *)forest->node)[i] = (NarrowNode){(float)threshold, word};
}

static void write_nodes(Forest *forest, const Operands *given) {
    const size_t item = forest->doubles ? sizeof(double) : sizeof(float);
    const int32_t *child = numbers_of(&given->children);
    for (int64_t i = 0; i < forest->nodes; i++) {
        write_node(forest, given, i);
        forest->leaf[i] = child[i] < 0 ? -1 - child[i] : -1;
        if (child[i] < 0 && forest->single) {
            const int64_t entry = forest->start[forest->leaf[i]];
            memcpy(forest->value + (size_t)i * item, forest->weight + (size_t)entry * item, item);
        }
    }
}

// How many steps the longest way through each tree has.
static void measure(Forest *forest, const Operands *given, int32_t *height) {
    const int32_t *child = numbers_of(&given->children);
    for (int64_t i = forest->nodes - 1; i >= 0; i--) {
        const int32_t one = child[i] < 0 ? -1 : height[child[i]];
        const int32_t other = child[i] < 0 ? -1 : height[child[i] - 1];
        height[i] = 1 + (one > other ? one : other);
    }
    int64_t sum = 0;
    for (int64_t i = 0; i < forest->trees; i++) {
        forest->depth[i] = height[forest->root[i]];
        sum += forest->depth[i];
    }
    forest->height = forest->trees ? ceil_div(sum, forest->trees) : 0;
}

static char *place(char **free_, int64_t count, int64_t item) {
    char *here = *free_;
    *free_ += padded(count * item, 64);
    return here;
}

static void copy_list(void *to, const Tensor *from) {
    memcpy(to, from->data, (size_t)(from->dims[0] * item_size(from->dtype)));
}

// The forest and all that belongs to it in one block.
static Forest *allocate(const Operands *given) {
    const int64_t nodes = given->children.dims[0], trees = given->roots.dims[0];
    const int64_t starts = given->starts.dims[0], entries = given->targets.dims[0];
    const int64_t item = item_size(given->x.dtype), head = padded(sizeof(Forest), 64);
    const int64_t bytes = head + 8 * 64 + nodes * ((int64_t)sizeof(WideNode) + 4 + item) +
                          4 * (2 * trees + starts + entries) + entries * item;
    Forest *forest = calloc(1, (size_t)bytes);
    if (!forest) return NULL;
    char *at = (char *)forest + head;
    forest->node = place(&at, nodes, sizeof(WideNode));
    forest->leaf = (int32_t *)(void *)place(&at, nodes, 4);
    forest->value = place(&at, nodes, item);
    forest->root = (int32_t *)(void *)place(&at, trees, 4);
    forest->depth = (int32_t *)(void *)place(&at, trees, 4);
    forest->start = (int32_t *)(void *)place(&at, starts, 4);
    forest->target = (int32_t *)(void *)place(&at, entries, 4);
    forest->weight = place(&at, entries, item);
    return forest;
}

static bool fill(Forest *forest, const Operands *given) {
    forest->x = given->x.data;
    forest->out = given->out.data;
    forest->rows = given->x.dims[0];
    forest->columns = given->x.dims[1];
    forest->targets = given->out.dims[1];
    forest->trees = given->roots.dims[0];
    forest->nodes = given->children.dims[0];
    forest->leaves = given->starts.dims[0] - 1;
    forest->doubles = given->x.dtype == F64;
    copy_list(forest->root, &given->roots);
    copy_list(forest->start, &given->starts);
    copy_list(forest->target, &given->targets);
    copy_list(forest->weight, &given->weights);
    forest->single = forest->targets == 1;
    for (int64_t i = 0; i < forest->leaves && forest->single; i++)
        forest->single = forest->start[i + 1] - forest->start[i] == 1;
    choose_nodes(forest, given);
    write_nodes(forest, given);
    int32_t *height = calloc((size_t)forest->nodes + 1, sizeof(int32_t));
    if (!height) return false;
    measure(forest, given, height);
    free(height);
    const int64_t steps = greater(forest->trees * greater(forest->height, 1), 1);
    const int64_t rows = greater(STEPS_OF_CHUNK / steps, ceil_div(forest->rows, 16));
    forest->unit = lesser(padded(greater(rows, 1), WAYS), MOST_ROWS);
    return true;
}

// A few rows of long work are shared tree by tree.
static bool is_by_trees(const Forest *forest) {
    return forest->rows < 2 * WAYS && forest->trees > TREES_OF_CHUNK &&
           forest->rows * forest->trees * forest->height >= 2 * STEPS_OF_CHUNK;
}

static void *prepare_trees(Params *params, Needs *needs) {
    Operands given;
    Tensor *all[] = {&given.x,        &given.features, &given.thresholds,
                     &given.children, &given.roots,    &given.starts,
                     &given.targets,  &given.weights,  &given.out};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) *all[i] = next_tensor(params);
    const int64_t aggregate = next_int(params);
    if (params->bad || aggregate < SUM_OF || aggregate > LARGEST_OF || !types_fit(&given) ||
        !nodes_fit(&given) || !leaves_fit(&given)) {
        return NULL;
    }
    Forest *forest = allocate(&given);
    if (!forest) return NULL;
    forest->aggregate = (Aggregate)aggregate;
    if (!fill(forest, &given)) {
        free(forest);
        return NULL;
    }
    needs->own = forest->unit * forest->targets;
    if (is_by_trees(forest))
        needs->shared = forest->rows * (padded(forest->trees * 4, 64) + forest->targets);
    return forest;
}

typedef struct {
    const Forest *forest;
    const Run *run;
} Job;

static void do_rows(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const Forest *forest = job->forest;
    const int64_t begin = chunk * forest->unit, end = lesser(begin + forest->unit, forest->rows);
    bool *met = (bool *)job->run->own[thread];
    if (forest->doubles)
        some_rows_double(forest, begin, end, met);
    else
        some_rows_float(forest, begin, end, met);
}

static void do_trees(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    int32_t *ends = (int32_t *)(void *)job->run->shared;
    if (job->forest->doubles)
        some_trees_double(job->forest, chunk, ends);
    else
        some_trees_float(job->forest, chunk, ends);
}

static Failure run_trees(const void *state, const Run *run) {
    const Forest *forest = state;
    Job job = {forest, run};
    if (!is_by_trees(forest)) {
        share_chunks(run, ceil_div(forest->rows, forest->unit), do_rows, &job);
        return OK;
    }
    share_chunks(run, forest->rows * ceil_div(forest->trees, TREES_OF_CHUNK), do_trees, &job);
    if (pool_is_stopped()) return OK;  // not all ends are known: those that are not lead anywhere
    const int32_t *ends = (const int32_t *)(const void *)run->shared;
    bool *met = (bool *)run->shared + forest->rows * forest->trees * 4;
    if (forest->doubles)
        take_all_ends_double(forest, ends, met);
    else
        take_all_ends_float(forest, ends, met);
    return OK;
}

const Kernel ISA(TREES)[] = {
    {"Trees", prepare_trees, run_trees, NULL},
    {NULL, NULL, NULL, NULL},
};
