// What a kernel is: prepared once from the numbers of a record, then run again and again.
#ifndef POPC_KERNEL_H
#define POPC_KERNEL_H

#include "pool.h"
#include "tensor.h"

// What a kernel is given when it runs.
typedef struct {
    int threads;
    char *shared;  // as many bytes as the kernel asked for, aligned to 64; contents are undefined
    char *own[MAX_THREADS];  // the same for each thread
} Run;

enum { MOST_PLACES = 10 };

// What a kernel asks for when it is prepared, and what it says of its state.  It is told how many threads
// a run may have: how work is divided may follow from that, but no bit of a result.
typedef struct {
    int64_t shared;  // bytes that all threads see
    int64_t own;  // bytes for each thread
    int count;
    void *places[MOST_PLACES];  // see `reads_anywhere` and `writes_anywhere`
    int threads;
} Needs;

// `place` is that of a pointer in the state, to an operand that is only read: each run may have it
// elsewhere, with elements at multiples of their size, and nothing else in the state follows from
// it.  Memory of callers may change at any time, so what says where to read or to write is no such
// operand, nor what has to be the same when it is read again.
static inline void reads_anywhere(Needs *needs, void *place) {
    if (needs->count < MOST_PLACES) needs->places[needs->count++] = place;
}

// The same of a result, which nobody else writes to while the kernel runs.
static inline void writes_anywhere(Needs *needs, void *place) { reads_anywhere(needs, place); }

// The numbers are known to popc_runtime/native/program.py.
typedef enum { OK = 0, NO_MEMORY = 1, INDEX_OUTSIDE = 2, TIMED_OUT = 3 } Failure;

typedef struct {
    const char *name;
    // The state that `run` is given, from `malloc`; NULL if the kernel does not do what the record
    // asks for, or memory is exhausted.  Other memory of the state belongs to the same block, or to
    // `release`.
    void *(*prepare)(Params *params, Needs *needs);
    // 0, or why the program cannot go on.
    Failure (*run)(const void *state, const Run *run);
    void (*release)(void *state);  // NULL: free
} Kernel;

// The kernels for one kind of processor: families, each ended by a kernel without a name, and NULL.
extern const Kernel *const FAMILIES_BASELINE[];
extern const Kernel *const FAMILIES_V3[];
extern const Kernel *const FAMILIES_V4[];

// The number of a kernel has the number of its family above these bits.
enum { FAMILY_BITS = 10 };

// NULL if there is none.
const Kernel *find_kernel(const Kernel *const *families, int64_t number);

// For loops of a chunk that may be long: whether to leave the rest, asked after `work` steps more.
// `done` counts those since somebody was asked last.
static inline bool is_stopped_after(int64_t work, int64_t *done) {
    enum { BETWEEN = 1 << 18 };  // steps, which take some 100 microseconds at most
    *done += work;
    if (*done < BETWEEN) return false;
    *done = 0;
    return pool_is_stopped();
}

static inline void share_chunks(const Run *run, int64_t count, ChunkFn work, void *context) {
    pool_run(run->threads, count, work, context);
}

#endif
