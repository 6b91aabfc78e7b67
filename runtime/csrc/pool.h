// The threads that share the work of a kernel.  One pool serves the whole process.
#ifndef POPC_POOL_H
#define POPC_POOL_H

#include <stdbool.h>
#include <stdint.h>

#define MAX_THREADS 64  // a guess: few kernels make chunks for more

// Does chunk number `chunk`; `thread` is 0 for the caller, and differs between those that run at
// the same time.
typedef void (*ChunkFn)(void *context, int64_t chunk, int thread);

typedef struct Watch Watch;  // see watch.h

// Work that this thread hands out from now on is watched (NULL: it is not); what watched it before.
// Once it is stopped no chunk begins any more, also of later calls: results are undefined then.
Watch *pool_watch(Watch *watch);

// For chunks that may take long: asked after each part of some microseconds; whether to leave the rest.
bool pool_is_stopped(void);

// Takes the pool for one run of a program, with `threads` threads at most, the caller included.
// The number of threads that `pool_run` uses from now on: 1 if another thread has the pool.
int pool_acquire(int threads);

// Gives the pool back; its threads go to sleep if there is no other run within 0.1 ms.
void pool_release(int threads);

// Jobs that there have been for several threads, and how often one has helped with one.
typedef struct { uint64_t jobs, helped; } PoolCounts;

PoolCounts pool_counts(void);

// A number above 0 that differs between this process, as long as it knows the pool, and its parent.
int64_t pool_generation(void);

// Calls `work` for the chunks 0 .. count - 1, on up to `threads` threads, in any order.  The caller
// takes chunks too and never waits for a thread that has not begun.  Handing out a job takes 0.04
// microseconds on Zen 3 if nobody joins, and about 0.6 with a helper: kernels make chunks of 2**14
// elements or so of cheap work, which are some microseconds.
void pool_run(int threads, int64_t count, ChunkFn work, void *context);

#endif
