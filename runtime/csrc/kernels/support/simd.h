// Vectors of floats as wide as the processor has them.  Files that include this are compiled once
// for each kind of processor; ISA gives their symbols different names.
#ifndef POPC_SIMD_H
#define POPC_SIMD_H

#include <stdint.h>
#include <string.h>

#ifndef POPC_ISA
#error "compile with -DPOPC_ISA=..."
#endif
#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define ISA(name) JOIN(name, POPC_ISA)

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX2__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif

// Where parameters are constants whose values decide what code is made.
#define INLINE static inline __attribute__((always_inline))

// A loop that is unrolled: sums stay in registers only if all loops over them are.
#if defined(__clang__)
#define UNROLLED_FOR(...) _Pragma("unroll") for (__VA_ARGS__)
#else
#define UNROLLED_FOR(...) _Pragma("GCC unroll 32") for (__VA_ARGS__)
#endif

// A loop whose steps do not read what others write, though compilers cannot know: it may work in
// place.
#if defined(__clang__)
#define INDEPENDENT_FOR(...) _Pragma("clang loop vectorize(assume_safety)") for (__VA_ARGS__)
#else
#define INDEPENDENT_FOR(...) _Pragma("GCC ivdep") for (__VA_ARGS__)
#endif

enum { LANES = VECTOR_BYTES / 4 };

typedef float Floats __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t Mask __attribute__((vector_size(VECTOR_BYTES)));  // of comparisons: 0 or -1
typedef float LooseFloats __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));

static inline Floats load(const float *from) { return *(const LooseFloats *)from; }
static inline void store(float *to, Floats values) { *(LooseFloats *)to = values; }
// A vector that is used several times, of which gcc would make as many loads.
static inline Floats load_once(const float *from) {
    Floats values = load(from);
#if defined(__AVX2__)
    __asm__("" : "+v"(values));
#endif
    return values;
}

static inline Floats all_of(float value) { return value - (Floats){0}; }

static inline Floats select_of(Mask mask, Floats yes, Floats no) {
    return (Floats)((mask & (Mask)yes) | (~mask & (Mask)no));
}

// Values below `low` become `low`; not a number stays.  gcc does not see that this is one instruction.
static inline Floats all_at_least(Floats low, Floats value) {
#if defined(__clang__) || VECTOR_BYTES == 16
    return select_of(low > value, low, value);
#elif VECTOR_BYTES == 64
    return __builtin_ia32_maxps512_mask(low, value, value, -1, 4);
#else
    return __builtin_ia32_maxps256(low, value);
#endif
}

// The same above `high`.
static inline Floats all_at_most(Floats high, Floats value) {
#if defined(__clang__) || VECTOR_BYTES == 16
    return select_of(high < value, high, value);
#elif VECTOR_BYTES == 64
    return __builtin_ia32_minps512_mask(high, value, value, -1, 4);
#else
    return __builtin_ia32_minps256(high, value);
#endif
}

// The larger one of each pair; NaN of either stays.
static inline Floats larger_of(Floats a, Floats b) {
    return select_of(b != b, b, all_at_least(b, a));
}

static inline Floats relu_of(Floats value) { return all_at_least((Floats){0}, value); }

// Elements 0, 2, 4, ... of two vectors, one behind the other.
static inline Floats even_of(Floats first, Floats second) {
#if defined(__clang__)
#if VECTOR_BYTES == 64
    return __builtin_shufflevector(
        first, second, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
#elif VECTOR_BYTES == 32
    return __builtin_shufflevector(first, second, 0, 2, 4, 6, 8, 10, 12, 14);
#else
    return __builtin_shufflevector(first, second, 0, 2, 4, 6);
#endif
#else
    typedef int32_t Ints __attribute__((vector_size(VECTOR_BYTES)));
    Ints even;
    for (int lane = 0; lane < LANES; lane++) even[lane] = 2 * lane;
    return __builtin_shuffle(first, second, even);
#endif
}

// Elements 1, 3, 5, ...
static inline Floats odd_of(Floats first, Floats second) {
#if VECTOR_BYTES == 64
    return __builtin_shufflevector(
        first, second, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
#elif VECTOR_BYTES == 32
    return __builtin_shufflevector(first, second, 1, 3, 5, 7, 9, 11, 13, 15);
#else
    return __builtin_shufflevector(first, second, 1, 3, 5, 7);
#endif
}

// Elements of two vectors in turn: those of their first halves, and of their second ones.
INLINE Floats woven_low(Floats a, Floats b) {
#if VECTOR_BYTES == 64
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
#elif VECTOR_BYTES == 32
    return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
#else
    return __builtin_shufflevector(a, b, 0, 4, 1, 5);
#endif
}

INLINE Floats woven_high(Floats a, Floats b) {
#if VECTOR_BYTES == 64
    return __builtin_shufflevector(
        a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
#elif VECTOR_BYTES == 32
    return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#else
    return __builtin_shufflevector(a, b, 2, 6, 3, 7);
#endif
}

// Each lane becomes the one that is `by` lanes further, round.
INLINE Floats rotated(Floats values, const int by) {
#if defined(__clang__)
    Floats result;
    for (int lane = 0; lane < LANES; lane++) result[lane] = values[(lane + by) % LANES];
    return result;
#else
    Mask places;
    for (int lane = 0; lane < LANES; lane++) places[lane] = (lane + by) % LANES;
    return __builtin_shuffle(values, places);
#endif
}

// All lanes by one step, such as a sum: halves first.
#define OVER_LANES(VALUES, STEP)                                 \
    ({                                                           \
        Floats lanes = (VALUES);                                 \
        if (LANES >= 16) lanes = STEP(lanes, rotated(lanes, 8)); \
        if (LANES >= 8) lanes = STEP(lanes, rotated(lanes, 4));  \
        lanes = STEP(lanes, rotated(lanes, 2));                  \
        lanes = STEP(lanes, rotated(lanes, 1));                  \
        lanes[0];                                                \
    })

static inline Floats plus_of(Floats a, Floats b) { return a + b; }
static inline float sum_of(Floats values) { return OVER_LANES(values, plus_of); }

// Lanes `first` and behind, of which there may be none; lane 0 belongs at `to`.
static inline void store_from(float *to, Floats values, int64_t first) {
    if (first <= 0) {
        store(to, values);
    } else if (first < LANES) {
        float line[LANES];
        store(line, values);
        memcpy(to + first, line + first, (size_t)(LANES - first) * sizeof(float));
    }
}

// A copy of few floats, mostly; the parts of the last copies overlap.
static inline void copy_floats(float *to, const float *from, int64_t count) {
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) store(to + i, load(from + i));
    if (i == count) return;
    if (count >= LANES) {
        store(to + count - LANES, load(from + count - LANES));
    } else if (LANES == 16 && count >= 8) {
        memcpy(to, from, 8 * sizeof(float));
        memcpy(to + count - 8, from + count - 8, 8 * sizeof(float));
    } else if (LANES >= 8 && count >= 4) {
        memcpy(to, from, 4 * sizeof(float));
        memcpy(to + count - 4, from + count - 4, 4 * sizeof(float));
    } else {
        for (; i < count; i++) to[i] = from[i];
    }
}

#endif
