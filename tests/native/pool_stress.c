// Several threads take the pool by turns, with different numbers of threads, for jobs of different
// sizes: every chunk is done once, and no two threads with one number work at the same time.
#include "pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CALLERS = 4, RUNS = 60, JOBS = 40, MOST_CHUNKS = 200, MOST_THREADS = 6 };

typedef struct {
    int64_t count;
    int threads;
    unsigned char done[MOST_CHUNKS];  // plain: TSan sees two threads with one chunk
    atomic_int inside[MAX_THREADS];
    int64_t sums[MAX_THREADS];  // plain: TSan sees two threads with one number
} Job;

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    abort();
}

static void work(void *context, int64_t chunk, int thread) {
    Job *job = context;
    if (chunk < 0 || chunk >= job->count) fail("a chunk that there is not");
    if (thread < 0 || thread >= job->threads) fail("a thread that was not asked for");
    if (atomic_fetch_add(&job->inside[thread], 1)) fail("two threads have one number");
    job->done[chunk]++;
    job->sums[thread] += chunk;
    for (volatile int spin = 0; spin < (int)(chunk % 7) * 50; spin++) {
    }
    atomic_fetch_sub(&job->inside[thread], 1);
}

static void run_job(int threads, int64_t count) {
    Job *job = calloc(1, sizeof(Job));
    if (!job) fail("no memory");
    job->count = count;
    job->threads = threads;
    pool_run(threads, count, work, job);
    int64_t sum = 0;
    for (int64_t chunk = 0; chunk < count; chunk++)
        if (job->done[chunk] != 1) fail("a chunk was not done once");
    for (int thread = 0; thread < threads; thread++) sum += job->sums[thread];
    if (sum != count * (count - 1) / 2) fail("a sum is wrong");
    free(job);  // a thread that joins late reads freed memory
}

static void run_program(unsigned *seed) {
    int threads = pool_acquire(1 + (int)(rand_r(seed) % MOST_THREADS));
    for (int job = 0; job < JOBS; job++) {
        run_job(threads, rand_r(seed) % MOST_CHUNKS);
        if (rand_r(seed) % 16 == 0) usleep(200);  // helpers fall asleep
    }
    pool_release(threads);
}

static void *call(void *argument) {
    unsigned seed = (unsigned)(intptr_t)argument;
    for (int run = 0; run < RUNS; run++) run_program(&seed);
    return NULL;
}

static void wait_for(pid_t child) {
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) fail("a child has failed");
}

// Forks while others run, in the middle of a run of its own, which goes on in both; the child has
// another thread that wants the pool meanwhile.
static void run_and_fork(void) {
    for (int round = 0; round < 8; round++) {
        int threads = pool_acquire(3);
        run_job(threads, 50);
        pid_t child = fork();
        pthread_t other;
        if (child == 0) pthread_create(&other, NULL, call, (void *)(intptr_t)99);
        for (int job = 0; job < 4000; job++) run_job(threads, 50);
        pool_release(threads);
        if (child == 0) {
            pthread_join(other, NULL);
            _exit(0);
        }
        wait_for(child);
    }
}

int main(int count, char **arguments) {
    (void)arguments;
    pthread_t callers[CALLERS];
    for (int i = 0; i < CALLERS; i++) pthread_create(&callers[i], NULL, call, (void *)(intptr_t)(i + 1));
    if (count > 1) run_and_fork();
    for (int i = 0; i < CALLERS; i++) pthread_join(callers[i], NULL);
    return 0;
}
