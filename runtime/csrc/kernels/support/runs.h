// Runs of a few bytes that lie apart, copied: the call of memmove would take longer than they do.
#ifndef POPC_RUNS_H
#define POPC_RUNS_H

#include "simd.h"

#include <string.h>

typedef uint16_t Run2 __attribute__((aligned(1), may_alias));
typedef uint32_t Run4 __attribute__((aligned(1), may_alias));
typedef uint64_t Run8 __attribute__((aligned(1), may_alias));
typedef uint8_t Run16 __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint8_t Run32 __attribute__((vector_size(32), aligned(1), may_alias));
typedef uint8_t Run64 __attribute__((vector_size(64), aligned(1), may_alias));

// `n` runs of `run` bytes, at least a PART and at most twice as many, by two copies that overlap.  A run
// is read before it is written.
#define COPY_RUNS(PART)                                                    \
    {                                                                      \
        const int64_t rest = run - (int64_t)sizeof(PART);                  \
        if (rest == 0) {                                                   \
            for (int64_t i = 0; i < n; i++, from += apart, to += to_apart) \
                *(PART *)to = *(const PART *)from;                         \
            return;                                                        \
        }                                                                  \
        for (int64_t i = 0; i < n; i++, from += apart, to += to_apart) {   \
            const PART first = *(const PART *)from;                        \
            const PART last = *(const PART *)(from + rest);                \
            *(PART *)to = first;                                           \
            *(PART *)(to + rest) = last;                                   \
        }                                                                  \
        return;                                                            \
    }

static inline void copy_runs(
    const char *from, int64_t apart, char *to, int64_t to_apart, int64_t n, int64_t run) {
    if (run > 128) {
        for (int64_t i = 0; i < n; i++) memmove(to + i * to_apart, from + i * apart, (size_t)run);
        return;
    }
    if (run >= 64) COPY_RUNS(Run64)
    if (run >= 32) COPY_RUNS(Run32)
    if (run >= 16) COPY_RUNS(Run16)
    if (run >= 8) COPY_RUNS(Run8)
    if (run >= 4) COPY_RUNS(Run4)
    if (run >= 2) COPY_RUNS(Run2)
    if (run == 1) COPY_RUNS(char)
}

#undef COPY_RUNS

#endif
