#include "half_panels.h"

#if defined(__F16C__)
#include <immintrin.h>
#else
typedef _Float16 Float16s __attribute__((vector_size(VECTOR_BYTES / 2)));
#endif

typedef uint16_t Halves __attribute__((vector_size(VECTOR_BYTES / 2)));
typedef uint32_t Words __attribute__((vector_size(VECTOR_BYTES)));

INLINE Floats load_half(const uint16_t *from, const bool brain) {
    Halves bits;
    memcpy(&bits, from, sizeof(bits));
    if (brain) return (Floats)(__builtin_convertvector(bits, Words) << 16);
#if VECTOR_BYTES == 64
    return (Floats)_mm512_cvtph_ps((__m256i)bits);
#elif VECTOR_BYTES == 32
    return (Floats)_mm256_cvtph_ps((__m128i)bits);
#else
    return __builtin_convertvector((Float16s)bits, Floats);
#endif
}

void ISA(widen)(float *to, const uint16_t *from, int64_t count, bool brain) {
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) store(to + i, load_half(from + i, brain));
    if (i == count) return;
    uint16_t rest[LANES] = {0};
    float values[LANES];
    memcpy(rest, from + i, (size_t)(count - i) * sizeof(uint16_t));
    store(values, load_half(rest, brain));
    memcpy(to + i, values, (size_t)(count - i) * sizeof(float));
}

void ISA(pack_half_panels)(
    uint16_t *to, const uint16_t *from, int64_t row, int64_t column, int64_t k, int64_t columns) {
    for (int64_t j = 0; j < columns; j += PANEL_COLUMNS) {
        const int64_t count = lesser(columns - j, PANEL_COLUMNS);
        for (int64_t p = 0; p < k; p++, to += PANEL_COLUMNS) {
            const uint16_t *line = from + p * row + j * column;
            for (int64_t c = 0; c < PANEL_COLUMNS; c++) to[c] = c < count ? line[c * column] : 0;
        }
    }
}

enum { AHEAD = 32, MOST = 8 };  // lines of a panel that are asked for before they are read; vectors

// `brain`, `rows` and `vectors` are constants wherever this is called: sums stay in registers.
INLINE void multiply_some(
    const float *left, int64_t step, const uint16_t *right, int64_t k, float *out, int64_t out_row,
    const bool brain, const int rows, const int vectors) {
    const int64_t panel = k * PANEL_COLUMNS;
    Floats sums[HALF_ROWS][MOST];
    UNROLLED_FOR (int i = 0; i < rows; i++)
        UNROLLED_FOR (int v = 0; v < vectors; v++) sums[i][v] = (Floats){0};
    for (int64_t p = 0; p < k; p++, right += PANEL_COLUMNS, left += step) {
        UNROLLED_FOR (int v = 0; v < vectors; v++) {
            const int column = v * LANES, within = column % PANEL_COLUMNS;
            const uint16_t *from = right + column / PANEL_COLUMNS * panel + within;
            if (within == 0) __builtin_prefetch(from + AHEAD * PANEL_COLUMNS);
            const Floats weights = load_half(from, brain);
            UNROLLED_FOR (int i = 0; i < rows; i++) sums[i][v] += left[i] * weights;
        }
    }
    UNROLLED_FOR (int i = 0; i < rows; i++)
        UNROLLED_FOR (int v = 0; v < vectors; v++) store(out + i * out_row + v * LANES, sums[i][v]);
}

#define ROWS(N, VECTORS)                                                          \
    case N:                                                                       \
        if (brain)                                                                \
            multiply_some(left, step, right, k, out, out_row, true, N, VECTORS);  \
        else                                                                      \
            multiply_some(left, step, right, k, out, out_row, false, N, VECTORS); \
        break;
#define MULTIPLY(NAME, ONE, TWO, MORE)                                                             \
    static __attribute__((noinline)) void NAME(                                                    \
        const float *left, int64_t step, const uint16_t *right, bool brain, int64_t k, float *out, \
        int64_t out_row, int rows) {                                                               \
        switch (rows) {                                                                            \
            ROWS(1, ONE)                                                                           \
            ROWS(2, TWO)                                                                           \
            ROWS(3, TWO)                                                                           \
            ROWS(4, MORE)                                                                          \
            ROWS(5, MORE)                                                                          \
            ROWS(6, MORE)                                                                          \
            default: break;                                                                        \
        }                                                                                          \
    }

// As many vectors at once as there are sums to be in flight, and one, for what is left.
MULTIPLY(multiply_wide, 8, 4, 2)
MULTIPLY(multiply_narrow, 1, 1, 1)

void ISA(multiply_half_panels)(
    const float *left, int64_t step, const uint16_t *right, bool brain, int64_t k, Place out,
    int rows, int64_t columns, const Epilogue *epilogue) {
    const int64_t wide = (rows == 1 ? 8 : rows <= 3 ? 4 : 2) * LANES;
    float part[HALF_ROWS * LANES];
    for (int64_t j = 0; j < columns;) {
        const uint16_t *from = right + j / PANEL_COLUMNS * PANEL_COLUMNS * k + j % PANEL_COLUMNS;
        if (j + wide <= columns) {
            multiply_wide(left, step, from, brain, k, out.data + j, out.row, rows);
            j += wide;
            continue;
        }
        const int64_t count = lesser(columns - j, LANES);
        multiply_narrow(left, step, from, brain, k, part, LANES, rows);
        for (int i = 0; i < rows; i++)
            copy_floats(out.data + i * out.row + j, part + i * LANES, count);
        j += LANES;
    }
    if (epilogue) ISA(finish)(epilogue, out, rows, columns);
}
