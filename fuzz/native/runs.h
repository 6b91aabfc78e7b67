// Runs of programs that a fuzzer makes up, which end after a short while.
#ifndef POPC_FUZZ_RUNS_H
#define POPC_FUZZ_RUNS_H

#include <time.h>

#include "program.h"

static inline int go_on(void *context) {
    (void)context;
    return 0;
}

enum { MOST_SCRATCH = 1 << 26 };

// Prepares the program that words tell of, and runs it for so long at most; nothing if it is refused,
// as the runtime also does where scratch memory is more than a limit.
static inline void run_briefly(
    const int64_t *words, int64_t count, const Kernel *const *families, CallbackFn call_back,
    int64_t nanoseconds) {
    ProgramError error;
    int64_t which;
    Program *program =
        program_new((Words){words, count}, (Words){0}, families, 1, go_on, NULL, &error, &which);
    if (!program) return;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const int64_t deadline = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec + nanoseconds;
    if (program_scratch(program, 1, &which) <= MOST_SCRATCH)
        program_run(program, 1, deadline, call_back, go_on, NULL);
    program_free(program);
}

#endif
