// A job is published by one word, `state`: number of the job, whether it is open, and how many
// helpers have joined it.  A helper joins by adding itself while the job is open; the caller closes
// the job when no chunk is left and then waits for those that have joined, and for nobody else.
#include "pool.h"

#include <pthread.h>
#include <signal.h>

#include "cores.h"
#include "watch.h"

#if defined(__x86_64__) || defined(__i386__)
#define RELAX() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define RELAX() __asm__ volatile("yield")
#else
#define RELAX() ((void)0)
#endif

#define OPEN ((uint64_t)1 << 16)
#define JOB ((uint64_t)1 << 17)
#define JOINED (OPEN - 1)

// Before helpers sleep they wait for the next job, or for the next run: to wake them takes tens of
// microseconds.  96 microseconds on Zen 3, where a pause takes 24 nanoseconds.
enum { SPINS = 4000 };

static struct {
    pthread_mutex_t owner;  // held for a run of a program; guards `started`
    pthread_mutex_t sleep;  // guards `wake`
    pthread_cond_t wake;
    int started;  // helpers that exist
    atomic_int sleeping;
    atomic_uint runs;  // that have begun: helpers wake up with each, before there is a job
    atomic_int_fast64_t generation;  // of forks
    atomic_uint_fast64_t helped;  // times that a helper has joined a job
    _Atomic uint64_t state;
    atomic_int wanted;  // helpers with a number up to this take part
    // The job: written while it is closed and nobody has joined, so `state` orders all accesses.
    ChunkFn work;
    void *context;
    Watch *watch;
    int threads;
    int core;  // that the caller runs on
    struct {
        _Alignas(64) atomic_int_fast64_t next;
        int64_t end;
    } shares[MAX_THREADS];
} pool = {
    .owner = PTHREAD_MUTEX_INITIALIZER,
    .sleep = PTHREAD_MUTEX_INITIALIZER,
    .wake = PTHREAD_COND_INITIALIZER,
    .generation = 1,
};

// Whether this thread has the pool.
static _Thread_local bool owns_pool;

// What watches the work of this thread, and whether it is the one that looks.
static _Thread_local Watch *watched;
static _Thread_local bool is_helper;

Watch *pool_watch(Watch *watch) {
    Watch *before = watched;
    watched = watch;
    return before;
}

bool watch_looks(Watch *watch) {
    watch->done = 0;
    if (!atomic_load_explicit(&watch->stopped, memory_order_relaxed) && watch->look(watch->context))
        atomic_store_explicit(&watch->stopped, true, memory_order_relaxed);
    return atomic_load_explicit(&watch->stopped, memory_order_relaxed);
}

// A look reads a clock, which takes some nanoseconds.
bool pool_is_stopped(void) {
    enum { BETWEEN_LOOKS = 8 };
    if (!watched) return false;
    if (!is_helper && ++watched->done >= BETWEEN_LOOKS) return watch_looks(watched);
    return atomic_load_explicit(&watched->stopped, memory_order_relaxed);
}

// Before each chunk, which is microseconds long, and may be much longer.
static bool may_go_on(void) {
    if (!watched) return true;
    if (!is_helper) return !watch_looks(watched);
    return !atomic_load_explicit(&watched->stopped, memory_order_relaxed);
}

// Each thread has a share of neighbouring chunks, the same from job to job if their number is, so that
// it finds in its own cache what it wrote before.  It helps the others when it is through.
static void take_chunks(int thread) {
    for (int offset = 0; offset < pool.threads; offset++) {
        int share = (thread + offset) % pool.threads;
        for (;;) {
            int64_t chunk =
                atomic_fetch_add_explicit(&pool.shares[share].next, 1, memory_order_relaxed);
            if (chunk >= pool.shares[share].end) break;
            if (!may_go_on()) return;
            pool.work(pool.context, chunk, thread);
        }
    }
}

static void share_out(int threads, int64_t count) {
    pool.threads = threads;
    for (int64_t share = 0; share < threads; share++) {
        atomic_store_explicit(
            &pool.shares[share].next, share * count / threads, memory_order_relaxed);
        pool.shares[share].end = (share + 1) * count / threads;
    }
}

// A helper that has been woken often runs where its caller does, and takes the core from it, until
// the system moves one of them, which takes milliseconds.
static void make_way(void) {
    if (core_of_thread() == pool.core) leave_core(pool.core);
}

// Joins the open job, if there is one that this helper has not seen; the job's number, or `seen`.
static uint64_t try_join(uint64_t seen, int thread) {
    uint64_t state = atomic_load_explicit(&pool.state, memory_order_acquire);
    while ((state & OPEN) && state / JOB != seen && thread <= atomic_load(&pool.wanted)) {
        if (atomic_compare_exchange_weak(&pool.state, &state, state + 1)) {
            atomic_fetch_add_explicit(&pool.helped, 1, memory_order_relaxed);
            watched = pool.watch;
            make_way();
            take_chunks(thread);
            atomic_fetch_sub_explicit(&pool.state, 1, memory_order_release);
            return state / JOB;
        }
    }
    return seen;
}

static bool has_new_job(uint64_t seen) {
    uint64_t state = atomic_load(&pool.state);  // in one order with `sleeping`
    return (state & OPEN) && state / JOB != seen;
}

// Whether there may be work for a helper that has been up for `runs` runs.
static bool is_called(uint64_t seen, unsigned runs, int thread) {
    return thread <= atomic_load(&pool.wanted) &&
           (has_new_job(seen) || atomic_load(&pool.runs) != runs);
}

static void *help(void *argument) {
    is_helper = true;
    int thread = (int)(intptr_t)argument;
    uint64_t seen = 0;
    unsigned runs = 0;
    for (;;) {
        for (int spin = 0; spin < SPINS && !has_new_job(seen); spin++) RELAX();
        if (!has_new_job(seen) || thread > atomic_load(&pool.wanted)) {
            pthread_mutex_lock(&pool.sleep);
            atomic_fetch_add(&pool.sleeping, 1);
            while (!is_called(seen, runs, thread)) pthread_cond_wait(&pool.wake, &pool.sleep);
            atomic_fetch_sub(&pool.sleeping, 1);
            pthread_mutex_unlock(&pool.sleep);
        }
        runs = atomic_load(&pool.runs);
        seen = try_join(seen, thread);
    }
    return NULL;
}

// A child has none of the threads of its parent, and whatever they held is free.  A run that has
// forked goes on in the child too, alone.
static void forget_threads(void) {
    atomic_fetch_add(&pool.generation, 1);
    pthread_mutex_init(&pool.owner, NULL);
    pthread_mutex_init(&pool.sleep, NULL);
    pthread_cond_init(&pool.wake, NULL);
    pool.started = 0;
    atomic_store(&pool.sleeping, 0);
    atomic_store(&pool.state, atomic_load(&pool.state) / JOB * JOB);
    if (owns_pool) pthread_mutex_lock(&pool.owner);
}

// Signals to the process are for threads of its own: one that they block later, to wait for it, would
// find a helper that does not, and end the process.  What a helper causes itself stays open, and so
// does the clock of profilers.
static void block_signals(sigset_t *before) {
    static const int open[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGPROF};
    sigset_t blocked;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof(open) / sizeof(*open); i++) sigdelset(&blocked, open[i]);
    pthread_sigmask(SIG_BLOCK, &blocked, before);
}

static bool start_helper(int number) {
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    int failed = pthread_create(&thread, &attributes, help, (void *)(intptr_t)number);
    pthread_attr_destroy(&attributes);
    return !failed;
}

static void start_helpers(int helpers) {
    if (pool.started >= helpers) return;
    sigset_t before;
    block_signals(&before);  // a thread begins with the signals of its maker
    while (pool.started < helpers && start_helper(pool.started + 1)) pool.started++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void wake_helpers(void) {
    if (!atomic_load(&pool.sleeping)) return;
    pthread_mutex_lock(&pool.sleep);
    pthread_cond_broadcast(&pool.wake);
    pthread_mutex_unlock(&pool.sleep);
}

static void watch_forks(void) { pthread_atfork(NULL, NULL, forget_threads); }

int pool_acquire(int threads) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    if (threads <= 1 || pthread_mutex_trylock(&pool.owner) != 0) return 1;
    start_helpers(threads - 1);
    if (threads > pool.started + 1) threads = pool.started + 1;
    if (threads == 1) {
        pthread_mutex_unlock(&pool.owner);
        return 1;
    }
    owns_pool = true;
    atomic_store(&pool.wanted, threads - 1);
    atomic_fetch_add(&pool.runs, 1);
    wake_helpers();
    return threads;
}

PoolCounts pool_counts(void) {
    return (PoolCounts){
        .jobs = atomic_load_explicit(&pool.state, memory_order_relaxed) / JOB,
        .helped = atomic_load_explicit(&pool.helped, memory_order_relaxed)};
}

int64_t pool_generation(void) { return atomic_load(&pool.generation); }

void pool_release(int threads) {
    if (threads <= 1) return;
    owns_pool = false;
    pthread_mutex_unlock(&pool.owner);
}

// What helpers have begun may take longer than what the caller has done.
static void wait_for_helpers(void) {
    enum { SPINS_BETWEEN_LOOKS = 1 << 14 };
    int spins = 0;
    while (atomic_load_explicit(&pool.state, memory_order_acquire) & JOINED) {
        RELAX();
        if (watched && ++spins % SPINS_BETWEEN_LOOKS == 0) watch_looks(watched);
    }
}

void pool_run(int threads, int64_t count, ChunkFn work, void *context) {
    if (threads <= 1 || count <= 1) {
        for (int64_t chunk = 0; chunk < count && may_go_on(); chunk++) work(context, chunk, 0);
        return;
    }
    pool.work = work;
    pool.context = context;
    pool.watch = watched;
    pool.core = core_of_thread();
    share_out(threads, count);
    uint64_t job = (atomic_load(&pool.state) / JOB + 1) * JOB;
    atomic_store(&pool.state, job | OPEN);
    wake_helpers();
    take_chunks(0);
    atomic_fetch_and(&pool.state, ~OPEN);
    wait_for_helpers();
}
