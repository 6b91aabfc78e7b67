// Fuzzes the structure of programs: records, loops and branches of any lengths
// and counts, around a kernel that counts how often it runs.  Words are small
// numbers, any numbers, or places of scalars.
#include <stdlib.h>

#include "reader.h"
#include "runs.h"

enum { MOST_WORDS = 2048, SCALARS = 8, NANOSECONDS = 2 * 1000 * 1000 };

static int64_t runs;

static void *prepare(Params *params, Needs *needs) {
    needs->own = next_int(params);
    needs->shared = next_int(params);
    const bool fits = !params->bad && needs->own >= 0 && needs->own < 1 << 16 &&
                      needs->shared >= 0 && needs->shared < 1 << 16;
    return fits ? calloc(1, 1) : NULL;
}

static Failure run(const void *state, const Run *given) {
    (void)state, (void)given;
    return runs++ % 1000 == 999 ? INDEX_OUTSIDE : OK;
}

static const Kernel COUNTING[] = {
    {"Counting", prepare, run, NULL},
    {NULL, NULL, NULL, NULL},
};
static const Kernel *const FAMILIES[] = {COUNTING, NULL};

static int64_t next_word(Reader *reader, int64_t *scalars) {
    const uint8_t kind = (uint8_t)read_bytes(reader, 1);
    if (kind < 8) return (int64_t)(intptr_t)&scalars[kind];
    return kind == 8 ? read_bytes(reader, 8) : (int64_t)kind - 64;
}

static int call_back(void *context, int64_t step) {
    (void)context;
    return step == 3 ? -1 : 0;
}

// Addresses of conditions and counters are what the encoder writes, never what
// an archive says: whatever is no place of a scalar is made one.
static void mend_places(int64_t *words, int64_t count, int64_t *scalars) {
    for (int64_t at = 0; at + 1 < count;) {
        const int64_t kind = words[at], first = at + 2;
        const int places = kind == -2 ? 3 : kind == -3 ? 1 : 0;
        for (int i = 0; i < places; i++) {
            const int64_t place = first + i + (kind == -2);
            if (place >= count) return;
            const bool may_be_absent = kind == -2 && words[place] == 0;
            if (!may_be_absent) words[place] = (int64_t)(intptr_t)&scalars[i];
        }
        const int64_t own = kind == -2 ? 4 : kind == -3 ? 2 : words[at + 1];
        if (own < 0 || own > count) return;
        at = first + own;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Reader reader = {data, data + size};
    int64_t words[MOST_WORDS], scalars[SCALARS], count = 0;
    for (int i = 0; i < SCALARS; i++) scalars[i] = (int8_t)read_bytes(&reader, 1);
    while (reader.at < reader.end && count < MOST_WORDS)
        words[count++] = next_word(&reader, scalars);
    mend_places(words, count, scalars);
    run_briefly(words, count, FAMILIES, call_back, NANOSECONDS);
    return 0;
}
