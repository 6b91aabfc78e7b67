// A program: kernels, loops, branches and calls back into Python, in one array of nodes.
#ifndef POPC_PROGRAM_H
#define POPC_PROGRAM_H

#include "landings.h"

typedef struct Program Program;

// Runs step number `step` outside of the library; nonzero to stop the program.
typedef int (*CallbackFn)(void *context, int64_t step);

// What a callback is told before the first step, where the program has landings.
enum { RUN_BEGINS = -1 };

// Asks now and then, while a program runs, whether to go on; nonzero to stop.
typedef int (*PollFn)(void *context);

typedef enum {
    PROGRAM_OK,
    PROGRAM_MALFORMED,
    PROGRAM_REFUSED,  // a kernel does not do what its record asks for
    PROGRAM_NO_MEMORY,
    PROGRAM_STOPPED,  // by `poll`
} ProgramError;

typedef struct {
    const int64_t *at;
    int64_t count;
} Words;

// From records (see popc_runtime/native/record.py), and pairs of addresses of where inputs land.
// `which` is the number of the record that could not be taken.
Program *program_new(
    Words words, Words landings, const Kernel *const *families, int threads, PollFn poll,
    void *context, ProgramError *error, int64_t *which);
void program_free(Program *program);

// Bytes of scratch memory that a run on so many threads has, and the number of the record that needs
// most of them.
int64_t program_scratch(const Program *program, int threads, int64_t *which);

// 0, or the number of the record that stopped it plus one; `program_failure` says why, if it was a
// kernel or the time: `deadline` is in nanoseconds of CLOCK_MONOTONIC, 0 for none.
int64_t program_run(
    Program *program, int threads, int64_t deadline, CallbackFn callback, PollFn poll,
    void *context);

Failure program_failure(const Program *program);

Landings *program_landings(Program *program);

// The time that record `index` has taken in the last timed run, in nanoseconds.
int64_t program_time(const Program *program, int64_t index);
void program_measure(Program *program, bool wanted);

#endif
