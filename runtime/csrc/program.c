#include "program.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "landings.h"
#include "trial.h"
#include "watch.h"

enum { CALLBACK = -1, REPEAT = -2, IF = -3 };  // as in native/program.py

// Nodes of a body follow their parent; `end` is the node after the last one inside.
typedef struct {
    int64_t kind;  // the number of a kernel, or one of the above
    int64_t end;
    int64_t middle;  // of an IF: where the other branch begins
    const Kernel *kernel;
    void *state;  // of the kernel
    int64_t step;  // of a CALLBACK
    int64_t count;  // of a REPEAT: fixed number of iterations, or -1
    const int64_t *limit;  // or where that number stands
    const uint8_t *condition;
    int64_t *counter;
    int64_t nanoseconds;
} Node;

// What is known of a kernel's node while the program is made.
typedef struct {
    const int64_t *words;
    Params params;
    Needs needs;
    ProgramError error;
} Preparation;

struct Program {
    const Kernel *const *families;
    Node *nodes;
    Preparation *preparations;  // of each node
    int64_t count;
    int64_t capacity;
    Needs needs;
    int64_t neediest;  // node
    char *shared;
    char *own;
    int own_threads;
    bool measure;
    Trial trial;
    Landings landings;
    // of the current run
    Run run;
    CallbackFn callback;
    PollFn poll;
    void *context;
    Watch watch;
    int64_t next_poll;
    int64_t deadline;  // 0: none
    Failure failure;
};

enum { POLL_INTERVAL = 50 * 1000 * 1000 };  // nanoseconds

#ifndef CLOCK_MONOTONIC_COARSE  // milliseconds off, and much faster to read
#define CLOCK_MONOTONIC_COARSE CLOCK_MONOTONIC
#endif

static int64_t read_clock(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static int64_t now(void) { return read_clock(CLOCK_MONOTONIC); }

static int64_t now_roughly(void) { return read_clock(CLOCK_MONOTONIC_COARSE); }

// -- whether to go on -----------------------------------------------------------------------------

// Asking for signals takes the interpreter's lock, so it is done now and then only.
static int look(void *context) {
    Program *program = context;
    const int64_t time = now_roughly();
    if (program->deadline && time >= program->deadline) {
        program->failure = TIMED_OUT;
        return 1;
    }
    if (time < program->next_poll) return 0;
    program->next_poll = time + POLL_INTERVAL;
    return program->poll(program->context);
}

// What watched this thread before.
static Watch *begin_watch(Program *program, int64_t deadline) {
    program->watch.look = look;
    program->watch.context = program;
    program->watch.done = 0;
    atomic_store(&program->watch.stopped, false);
    program->next_poll = now_roughly() + POLL_INTERVAL;
    program->deadline = deadline;
    return pool_watch(&program->watch);
}

// -- making a program -----------------------------------------------------------------------------

static Node *add_node(Program *program) {
    if (program->count == program->capacity) {
        int64_t capacity = program->capacity ? 2 * program->capacity : 64;
        Node *nodes = realloc(program->nodes, (size_t)capacity * sizeof(Node));
        if (!nodes) return NULL;
        program->nodes = nodes;
        Preparation *preparations =
            realloc(program->preparations, (size_t)capacity * sizeof(Preparation));
        if (!preparations) return NULL;
        program->preparations = preparations;
        program->capacity = capacity;
    }
    memset(&program->preparations[program->count], 0, sizeof(Preparation));
    Node *node = &program->nodes[program->count++];
    memset(node, 0, sizeof(*node));
    return node;
}

const Kernel *find_kernel(const Kernel *const *families, int64_t number) {
    int64_t family = number >> FAMILY_BITS, index = number & ((1 << FAMILY_BITS) - 1);
    for (; *families; families++, family--)
        for (const Kernel *kernel = *families; family == 0 && kernel->name; kernel++, index--)
            if (index == 0) return kernel;
    return NULL;
}

static ProgramError add_records(Program *program, Params *params);

static ProgramError add_body(Program *program, Params *params, int64_t words) {
    if (words < 0 || words > params->end - params->at) return PROGRAM_MALFORMED;
    Params body = {params->at, params->at + words, false};
    params->at += words;
    return add_records(program, &body);
}

static ProgramError add_record(Program *program, Params *params) {
    Node *node = add_node(program);
    if (!node) return PROGRAM_NO_MEMORY;
    int64_t index = program->count - 1;
    node->kind = next_int(params);
    int64_t words = next_int(params);
    if (params->bad || words < 0 || words > params->end - params->at) return PROGRAM_MALFORMED;
    Params own = {params->at, params->at + words, false};
    params->at += words;
    ProgramError error = PROGRAM_OK;
    if (node->kind >= 0) {
        node->kernel = find_kernel(program->families, node->kind);
        program->preparations[index].params = own;
        program->preparations[index].words = own.at;
        if (!node->kernel) return PROGRAM_MALFORMED;
    } else if (node->kind == CALLBACK) {
        node->step = next_int(&own);
    } else if (node->kind == REPEAT) {
        node->count = next_int(&own);
        node->limit = (const int64_t *)(intptr_t)next_int(&own);
        node->condition = (const uint8_t *)(intptr_t)next_int(&own);
        node->counter = (int64_t *)(intptr_t)next_int(&own);
        landings_hold(&program->landings, node->limit);
        landings_hold(&program->landings, node->condition);
        landings_hold(&program->landings, node->counter);
        error = add_body(program, &own, own.end - own.at);
    } else if (node->kind == IF) {
        node->condition = (const uint8_t *)(intptr_t)next_int(&own);
        landings_hold(&program->landings, node->condition);
        int64_t first = next_int(&own);
        error = add_body(program, &own, first);
        program->nodes[index].middle = program->count;
        if (error == PROGRAM_OK) error = add_body(program, &own, own.end - own.at);
    } else {
        return PROGRAM_MALFORMED;
    }
    program->nodes[index].end = program->count;  // `node` may have moved
    return own.bad ? PROGRAM_MALFORMED : error;
}

static ProgramError add_records(Program *program, Params *params) {
    while (params->at < params->end) {
        ProgramError error = add_record(program, params);
        if (error != PROGRAM_OK) return error;
    }
    return PROGRAM_OK;
}

// Whether no size that is computed of it overflows, however many threads there are.
static bool is_allocatable(int64_t bytes) { return bytes >= 0 && bytes <= MOST_BYTES; }

static void prepare_kernel(void *context, int64_t index, int thread) {
    (void)thread;
    Program *program = context;
    Node *node = &program->nodes[index];
    Preparation *own = &program->preparations[index];
    if (node->kind < 0) return;
    node->state = node->kernel->prepare(&own->params, &own->needs);
    if (own->params.bad)
        own->error = PROGRAM_MALFORMED;
    else if (!node->state || !is_allocatable(own->needs.shared) || !is_allocatable(own->needs.own))
        own->error = PROGRAM_REFUSED;
}

// Kernels are prepared on several threads: some pack what is constant.
static ProgramError prepare_kernels(Program *program, int threads, int64_t *which) {
    Watch *before = begin_watch(program, 0);
    for (int64_t index = 0; index < program->count; index++)
        program->preparations[index].needs.threads = threads < MAX_THREADS ? threads : MAX_THREADS;
    threads = pool_acquire(threads);
    pool_run(threads, program->count, prepare_kernel, program);
    pool_release(threads);
    pool_watch(before);
    *which = 0;
    int64_t most = 0;
    if (atomic_load(&program->watch.stopped)) return PROGRAM_STOPPED;
    for (int64_t index = 0; index < program->count; index++) {
        const Preparation *own = &program->preparations[index];
        *which = index;
        if (own->error != PROGRAM_OK) return own->error;
        if (own->needs.shared > program->needs.shared) program->needs.shared = own->needs.shared;
        if (own->needs.own > program->needs.own) program->needs.own = own->needs.own;
        if (own->needs.shared + own->needs.own <= most) continue;
        most = own->needs.shared + own->needs.own;
        program->neediest = index;
    }
    return PROGRAM_OK;
}

// What kernels have said of the operands that they read.
static ProgramError note_landings(Program *program) {
    Landings *landings = &program->landings;
    for (int64_t index = 0; landings->count && index < program->count; index++) {
        const Preparation *own = &program->preparations[index];
        if (program->nodes[index].kind >= 0 &&
            !landings_note(landings, own->words, own->params.end, &own->needs))
            return PROGRAM_NO_MEMORY;
    }
    landings_end(landings);
    return PROGRAM_OK;
}

static ProgramError fill_program(
    Program *program, Words words, Words landings, int threads, int64_t *which) {
    *which = -1;
    if (!landings_begin(&program->landings, landings.at, landings.count / 2))
        return PROGRAM_NO_MEMORY;
    Params params = {words.at, words.at + words.count, false};
    ProgramError error = add_records(program, &params);
    *which = program->count - 1;
    if (error == PROGRAM_OK) error = prepare_kernels(program, threads, which);
    return error == PROGRAM_OK ? note_landings(program) : error;
}

Program *program_new(
    Words words, Words landings, const Kernel *const *families, int threads, PollFn poll,
    void *context, ProgramError *error, int64_t *which) {
    Program *program = calloc(1, sizeof(Program));
    if (!program) {
        *error = PROGRAM_NO_MEMORY;
        return NULL;
    }
    program->families = families;
    program->poll = poll;
    program->context = context;
    *error = fill_program(program, words, landings, threads, which);
    free(program->preparations);
    program->preparations = NULL;
    if (*error != PROGRAM_OK) {
        program_free(program);
        return NULL;
    }
    return program;
}

void program_free(Program *program) {
    for (int64_t index = 0; index < program->count; index++) {
        Node *node = &program->nodes[index];
        if (!node->state) continue;
        (node->kernel->release ? node->kernel->release : free)(node->state);
    }
    landings_free(&program->landings);
    free(program->nodes);
    free(program->shared);
    free(program->own);
    free(program);
}

// -- running it -----------------------------------------------------------------------------------

static int64_t round_up(int64_t bytes) { return (bytes + 63) / 64 * 64; }

int64_t program_scratch(const Program *program, int threads, int64_t *which) {
    *which = program->neediest;
    return round_up(program->needs.shared) + threads * round_up(program->needs.own);
}

// Scratch is allocated when a program first runs with so many threads.
static bool find_scratch(Program *program, int threads) {
    int64_t own = round_up(program->needs.own);
    if (!program->shared && program->needs.shared) {
        program->shared = aligned_alloc(64, (size_t)round_up(program->needs.shared));
        if (!program->shared) return false;
    }
    if (threads > program->own_threads && own) {
        free(program->own);
        program->own = NULL;  // a child that another thread forks here finds none
        program->own_threads = 0;
        program->own = aligned_alloc(64, (size_t)(own * threads));
        if (!program->own) return false;
        program->own_threads = threads;
    }
    program->run.threads = threads;
    program->run.shared = program->shared;
    for (int thread = 0; thread < threads; thread++)
        program->run.own[thread] = program->own + thread * own;
    return true;
}

static int64_t run_nodes(Program *program, int64_t begin, int64_t end);

static int64_t run_repeat(Program *program, int64_t index) {
    const Node *node = &program->nodes[index];
    // Only a number that is known beforehand may be below zero, which is no limit.
    int64_t limit = node->limit ? *node->limit : node->count;
    if (node->limit && limit < 0) limit = 0;
    for (int64_t iteration = 0; limit < 0 || iteration < limit; iteration++) {
        if (node->condition && !*node->condition) break;
        if (node->counter) *node->counter = iteration;
        int64_t failed = run_nodes(program, index + 1, node->end);
        if (failed) return failed;
        if (watch_looks(&program->watch)) return index + 1;
    }
    return 0;
}

static int64_t run_node(Program *program, int64_t index) {
    Node *node = &program->nodes[index];
    if (node->kind >= 0) {
        const Failure failure = node->kernel->run(node->state, &program->run);
        // What a kernel that was stopped says of its operands means nothing.
        if (failure && !atomic_load_explicit(&program->watch.stopped, memory_order_relaxed))
            program->failure = failure;
        return failure ? index + 1 : 0;
    }
    if (node->kind == CALLBACK)
        return program->callback(program->context, node->step) ? index + 1 : 0;
    if (node->kind == REPEAT) return run_repeat(program, index);
    return *node->condition ? run_nodes(program, index + 1, node->middle)
                            : run_nodes(program, node->middle, node->end);
}

static int64_t run_nodes(Program *program, int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; index = program->nodes[index].end) {
        int64_t start = program->measure ? now() : 0;
        int64_t failed = run_node(program, index);
        if (program->measure) program->nodes[index].nanoseconds += now() - start;
        if (failed) return failed;
        if (watch_looks(&program->watch)) return index + 1;
    }
    return 0;
}

static bool has_helped(PoolCounts before, PoolCounts after) {
    return after.helped != before.helped || after.jobs == before.jobs;
}

int64_t program_run(
    Program *program, int threads, int64_t deadline, CallbackFn callback, PollFn poll,
    void *context) {
    program->callback = callback;
    program->poll = poll;
    program->context = context;
    const int64_t begin = now();
    Watch *before = begin_watch(program, deadline);
    const bool several = threads > 1;
    const PoolCounts counts = pool_counts();
    threads = pool_acquire(several && trial_is_alone(&program->trial) ? 1 : threads);
    program->failure = find_scratch(program, threads) ? OK : NO_MEMORY;
    landings_return(&program->landings);
    if (program->landings.count) callback(context, RUN_BEGINS);
    int64_t failed = program->failure ? 1 : run_nodes(program, 0, program->count);
    pool_release(threads);
    pool_watch(before);
    if (several && !failed)
        trial_note(&program->trial, now() - begin, has_helped(counts, pool_counts()));
    return failed;
}

void program_measure(Program *program, bool wanted) {
    program->measure = wanted;
    for (int64_t index = 0; index < program->count; index++) program->nodes[index].nanoseconds = 0;
}

int64_t program_time(const Program *program, int64_t index) {
    return index >= 0 && index < program->count ? program->nodes[index].nanoseconds : -1;
}

Failure program_failure(const Program *program) { return program->failure; }

Landings *program_landings(Program *program) { return &program->landings; }
