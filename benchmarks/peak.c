// What one core can do at most: FLOP/s of fused products and sums, and bytes/s that are read.
//
//     peak BYTES: prints both; the bytes are read again and again, from the cache that holds them.
#define _POSIX_C_SOURCE 199309L

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#if defined(__AVX512F__)
enum { VECTOR = 64 };
#elif defined(__AVX__)
enum { VECTOR = 32 };
#else
enum { VECTOR = 16 };
#endif
enum { SUMS = 12, ROUNDS = 30, STEPS = 100 * 1000, STREAMS = 4, LEAST = 1 << 26 };

typedef float Floats __attribute__((vector_size(VECTOR)));
typedef int64_t Words __attribute__((vector_size(VECTOR)));

#define KEEP(x) __asm__ volatile("" : "+" REGISTER(x))
#if defined(__AVX512F__)
#define REGISTER "v"
#elif defined(__x86_64__)
#define REGISTER "x"
#else
#define REGISTER "w"
#endif

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

// An array of them would lie in memory.
#define EACH(_) _(0) _(1) _(2) _(3) _(4) _(5) _(6) _(7) _(8) _(9) _(10) _(11)
#define BEGIN(i) Floats sum##i = y;
#define ADD(i)             \
    sum##i = sum##i * x + y; \
    KEEP(sum##i);

static double seconds_of_sums(void) {
    Floats x, y;
    for (int lane = 0; lane < (int)(VECTOR / sizeof(float)); lane++) x[lane] = 0.5f, y[lane] = 1;
    KEEP(x);
    KEEP(y);
    EACH(BEGIN)
    const double begin = now();
    for (int step = 0; step < STEPS; step++) {
        EACH(ADD)
    }
    return now() - begin;
}

// Reads all of `bytes` so often that it is at least LEAST.
static double seconds_of_reads(const Words *memory, size_t bytes, size_t *read) {
    const size_t count = bytes / VECTOR / STREAMS * STREAMS, repeats = LEAST / bytes + 1;
    *read = count * VECTOR * repeats;
    const double begin = now();
    for (size_t repeat = 0; repeat < repeats; repeat++)
        for (size_t i = 0; i < count; i += STREAMS)
#pragma GCC unroll 4
            for (size_t stream = 0; stream < STREAMS; stream++) {
                Words word = memory[i + stream];
                KEEP(word);
            }
    return now() - begin;
}

int main(int count, char **words) {
    const size_t asked = count > 1 ? (size_t)strtoull(words[1], NULL, 10) : 0;
    const size_t unit = (size_t)VECTOR * STREAMS, bytes = (asked / unit + 1) * unit;
    Words *memory = aligned_alloc(VECTOR, bytes);
    if (!memory) return 1;
    for (size_t i = 0; i < bytes / sizeof(int64_t); i++) ((int64_t *)memory)[i] = (int64_t)i;
    double sums = 1e9, reads = 1e9;
    size_t read = 0;
    for (int round = 0; round < ROUNDS; round++) {
        const double a = seconds_of_sums(), b = seconds_of_reads(memory, bytes, &read);
        if (a < sums) sums = a;
        if (b < reads) reads = b;
    }
    const double lanes = VECTOR / sizeof(float);
    printf("%g %g\n", 2 * lanes * SUMS * STEPS / sums, (double)read / reads);
    free(memory);
    return 0;
}
