// Tiles of products of bytes.  All forms are exact.
#include "../../processor.h"
#include "products_i8.h"

#include <stddef.h>

static inline Ints load_ints(const int8_t *from) { return *(const LooseInts *)from; }

// Products of few rows wait for the right panel, not for products: AHEAD bytes of it are asked for.
enum { FEW_ROWS = BYTE_ROWS / 4 + 1, AHEAD = 3072 };

// Sums of constant rows, which are `packed` or lie in lines.
typedef void (*RowsFn)(
    const uint8_t *const *lines, const bool packed, BytePanel right, int32_t *out, const int rows);

// A tile from one that has constant rows.  Rows that are not there are the last one again.
INLINE void tile_by(
    ByteLines left, BytePanel right, int32_t *out, int64_t rows, const RowsFn sums_of) {
    const uint8_t *lines[BYTE_ROWS];
    for (int64_t i = 0; i < BYTE_ROWS; i++)
        lines[i] = left.data + (left.line ? (i < rows ? i : rows - 1) * left.line : 4 * i);
    if (left.line && rows <= FEW_ROWS)
        sums_of(lines, false, right, out, FEW_ROWS);
    else if (left.line)
        sums_of(lines, false, right, out, BYTE_ROWS);
    else if (rows <= FEW_ROWS)
        sums_of(lines, true, right, out, FEW_ROWS);
    else
        sums_of(lines, true, right, out, BYTE_ROWS);
}

// Group number p of a row.
INLINE const uint8_t *group_of(const uint8_t *const *lines, int i, int64_t p, const bool packed) {
    return packed ? lines[0] + 4 * (p * BYTE_ROWS + i) : lines[i] + 4 * p;
}

INLINE void store_sums(int32_t *out, const Ints (*sums)[2], const int rows) {
    UNROLLED_FOR (int i = 0; i < rows; i++)
        for (int half = 0; half < 2; half++)
            *(LooseInts *)(out + i * BYTE_COLUMNS + half * LANES) = sums[i][half];
}

// One number of each group, with its sign.
static inline Ints number_of(Ints groups, int which) { return (groups << (24 - 8 * which)) >> 24; }

INLINE void portable_rows(
    const uint8_t *const *lines, const bool packed, BytePanel panel, int32_t *out, const int rows) {
    Ints sums[BYTE_ROWS][2] = {{{0}}};
    const int8_t *right = panel.data;
    for (int64_t p = 0; p < panel.groups; p++, right += 4 * BYTE_COLUMNS) {
        for (int half = 0; half < 2; half++) {
            const Ints group = load_ints(right + half * VECTOR_BYTES);
            for (int which = 0; which < 4; which++) {
                const Ints numbers = number_of(group, which);
                UNROLLED_FOR (int i = 0; i < rows; i++)
                    sums[i][half] += numbers * (int32_t)group_of(lines, i, p, packed)[which];
            }
        }
    }
    store_sums(out, sums, rows);
}

static void portable(ByteLines left, BytePanel right, int32_t *out, int64_t rows) {
    tile_by(left, right, out, rows, portable_rows);
}

#if defined(__AVX2__)
#include <immintrin.h>

static inline int32_t group_at(const uint8_t *from) {
    int32_t group;
    memcpy(&group, from, sizeof(group));
    return group;
}

// Bytes are widened to 16 bits before they are multiplied: the processor's product of bytes, without
// VNNI, saturates at 16 bits.  PAIR_SUMS is for groups of which it does not.
#if defined(__AVX512BW__)
#define PAIR_SUMS(GROUP, RIGHT) \
    _mm512_madd_epi16(          \
        _mm512_maddubs_epi16((__m512i)(GROUP), (__m512i)(RIGHT)), _mm512_set1_epi16(1))
#define WIDE_SUMS(GROUP, EVEN, ODD)                                                          \
    _mm512_add_epi32(                                                                        \
        _mm512_madd_epi16(_mm512_and_si512((__m512i)(GROUP), _mm512_set1_epi16(255)), EVEN), \
        _mm512_madd_epi16(_mm512_srli_epi16((__m512i)(GROUP), 8), ODD))
#define EVEN_OF(V) _mm512_srai_epi16(_mm512_slli_epi16(V, 8), 8)
#define ODD_OF(V) _mm512_srai_epi16(V, 8)
typedef __m512i Wide;
#else
#define PAIR_SUMS(GROUP, RIGHT) \
    _mm256_madd_epi16(          \
        _mm256_maddubs_epi16((__m256i)(GROUP), (__m256i)(RIGHT)), _mm256_set1_epi16(1))
#define WIDE_SUMS(GROUP, EVEN, ODD)                                                          \
    _mm256_add_epi32(                                                                        \
        _mm256_madd_epi16(_mm256_and_si256((__m256i)(GROUP), _mm256_set1_epi16(255)), EVEN), \
        _mm256_madd_epi16(_mm256_srli_epi16((__m256i)(GROUP), 8), ODD))
#define EVEN_OF(V) _mm256_srai_epi16(_mm256_slli_epi16(V, 8), 8)
#define ODD_OF(V) _mm256_srai_epi16(V, 8)
typedef __m256i Wide;
#endif

// Adds the products of group number p.
INLINE void add_wide(
    const uint8_t *const *lines, const bool packed, const int8_t *right, int64_t p, Ints (*sums)[2],
    const int rows) {
    right += p * 4 * BYTE_COLUMNS;
    const Wide first = (Wide)load_ints(right), second = (Wide)load_ints(right + VECTOR_BYTES);
    const Wide even[] = {EVEN_OF(first), EVEN_OF(second)};
    const Wide odd[] = {ODD_OF(first), ODD_OF(second)};
    UNROLLED_FOR (int i = 0; i < rows; i++) {
        const Ints group = group_at(group_of(lines, i, p, packed)) - (Ints){0};
        for (int half = 0; half < 2; half++)
            sums[i][half] += (Ints)WIDE_SUMS(group, even[half], odd[half]);
    }
}

INLINE void wide_rows(
    const uint8_t *const *lines, const bool packed, BytePanel right, int32_t *out, const int rows) {
    Ints sums[BYTE_ROWS][2] = {{{0}}};
    for (int64_t p = 0; p < right.groups; p++) add_wide(lines, packed, right.data, p, sums, rows);
    store_sums(out, sums, rows);
}

static void wide(ByteLines left, BytePanel right, int32_t *out, int64_t rows) {
    tile_by(left, right, out, rows, wide_rows);
}

INLINE void add_pairs(
    const uint8_t *const *lines, const bool packed, const int8_t *right, int64_t p, Ints (*sums)[2],
    const int rows) {
    right += p * 4 * BYTE_COLUMNS;
    const Ints first = load_ints(right), second = load_ints(right + VECTOR_BYTES);
    UNROLLED_FOR (int i = 0; i < rows; i++) {
        const Ints group = group_at(group_of(lines, i, p, packed)) - (Ints){0};
        sums[i][0] += (Ints)PAIR_SUMS(group, first);
        sums[i][1] += (Ints)PAIR_SUMS(group, second);
    }
}

INLINE void pair_rows(
    const uint8_t *const *lines, const bool packed, BytePanel right, int32_t *out, const int rows) {
    Ints sums[BYTE_ROWS][2] = {{{0}}};
    const int32_t *next = right.order->groups, *others = next + right.order->in_pairs;
    const int32_t *end = next + right.groups;
    for (; next < others; next++) add_pairs(lines, packed, right.data, *next, sums, rows);
    for (; next < end; next++) add_wide(lines, packed, right.data, *next, sums, rows);
    store_sums(out, sums, rows);
}

static void pairs(ByteLines left, BytePanel right, int32_t *out, int64_t rows) {
    tile_by(left, right, out, rows, pair_rows);
}
#endif

// Products of four bytes with sums of 32 bits: part of AVX-512, and, later, of AVX.
#if defined(__AVX512F__)
#define HAS_VNNI __attribute__((target("avx512vnni")))
#define FOUR_PRODUCTS(SUM, LEFT, RIGHT) \
    _mm512_dpbusd_epi32((__m512i)(SUM), (__m512i)(LEFT), (__m512i)(RIGHT))
#define RUNS_VNNI processor_has_avx512_vnni
#elif defined(__AVX2__) && __has_include(<avxvnniintrin.h>)
#define HAS_VNNI __attribute__((target("avxvnni")))
#define FOUR_PRODUCTS(SUM, LEFT, RIGHT) \
    _mm256_dpbusd_avx_epi32((__m256i)(SUM), (__m256i)(LEFT), (__m256i)(RIGHT))
#define RUNS_VNNI processor_has_avx_vnni
#endif

#if defined(HAS_VNNI)
HAS_VNNI INLINE void vnni_vectors(
    const uint8_t *const *lines, const bool packed, BytePanel panel, int32_t *out, const int rows,
    const int vectors) {
    Ints sums[BYTE_ROWS][2] = {{{0}}};
    const int8_t *right = panel.data;
    for (int64_t p = 0; p < panel.groups; p++, right += 4 * BYTE_COLUMNS) {
        const Ints first = load_ints(right), second = load_ints(right + VECTOR_BYTES);
        if (rows < BYTE_ROWS)
            for (int64_t line = 0; line < 4 * BYTE_COLUMNS; line += 64)
                __builtin_prefetch(right + AHEAD + line);
        UNROLLED_FOR (int i = 0; i < rows; i++) {
            const Ints group = group_at(group_of(lines, i, p, packed)) - (Ints){0};
            sums[i][0] = (Ints)FOUR_PRODUCTS(sums[i][0], group, first);
            if (vectors == 2) sums[i][1] = (Ints)FOUR_PRODUCTS(sums[i][1], group, second);
        }
    }
    store_sums(out, sums, rows);
}

HAS_VNNI INLINE void vnni_rows(
    const uint8_t *const *lines, const bool packed, BytePanel panel, int32_t *out, const int rows) {
    vnni_vectors(lines, packed, panel, out, rows, 2);
}

HAS_VNNI INLINE void vnni_narrow_rows(
    const uint8_t *const *lines, const bool packed, BytePanel panel, int32_t *out, const int rows) {
    vnni_vectors(lines, packed, panel, out, rows, 1);
}

// A single row: as many sums as are under way at once, of groups that follow each other.
HAS_VNNI static void vnni_row(const uint8_t *line, int64_t along, BytePanel panel, int32_t *out) {
    enum { SIDE_BY_SIDE = 4 };
    Ints sums[SIDE_BY_SIDE][2] = {{{0}}};
    const int8_t *right = panel.data;
    int64_t p = 0;
    for (; p + SIDE_BY_SIDE <= panel.groups; p += SIDE_BY_SIDE)
        UNROLLED_FOR (int k = 0; k < SIDE_BY_SIDE; k++, right += 4 * BYTE_COLUMNS) {
            const Ints group = group_at(line + (p + k) * along) - (Ints){0};
            for (int half = 0; half < 2; half++) {
                __builtin_prefetch(right + AHEAD + half * VECTOR_BYTES);
                sums[k][half] = (Ints)FOUR_PRODUCTS(
                    sums[k][half], group, load_ints(right + half * VECTOR_BYTES));
            }
        }
    for (; p < panel.groups; p++, right += 4 * BYTE_COLUMNS) {
        const Ints group = group_at(line + p * along) - (Ints){0};
        for (int half = 0; half < 2; half++)
            sums[0][half] =
                (Ints)FOUR_PRODUCTS(sums[0][half], group, load_ints(right + half * VECTOR_BYTES));
    }
    for (int k = 1; k < SIDE_BY_SIDE; k++)
        for (int half = 0; half < 2; half++) sums[0][half] += sums[k][half];
    store_sums(out, (const Ints(*)[2])sums, 1);
}

HAS_VNNI static void vnni(ByteLines left, BytePanel right, int32_t *out, int64_t rows) {
    if (rows == 1)
        vnni_row(left.data, left.line ? 4 : 4 * BYTE_ROWS, right, out);
    else if (right.is_narrow)
        tile_by(left, right, out, rows, vnni_narrow_rows);
    else
        tile_by(left, right, out, rows, vnni_rows);
}

static ByteTile vnni_tile(void) { return RUNS_VNNI() ? vnni : NULL; }
#else
static ByteTile vnni_tile(void) { return NULL; }
#endif

#if defined(__AVX2__)
static ByteTile wide_tile(void) { return wide; }
static ByteTile pair_tile(void) { return pairs; }
#else
static ByteTile wide_tile(void) { return NULL; }
static ByteTile pair_tile(void) { return NULL; }
#endif

ByteTile ISA(byte_tile)(ByteForm form) {
    if (form == PORTABLE) return portable;
    if (form == WIDE) return wide_tile();
    if (form == PAIRS) return pair_tile();
    if (form == VNNI) return vnni_tile();
    if (vnni_tile()) return vnni_tile();
    return pair_tile() ? pair_tile() : portable;
}

bool ISA(is_of_pairs)(ByteTile tile) { return tile == pair_tile(); }

bool ISA(is_vnni)(ByteTile tile) { return tile == vnni_tile(); }
