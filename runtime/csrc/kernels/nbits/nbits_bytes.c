// Products of bytes with numbers of 2, 4 or 8 bits, which stay in the order in which they are stored: a
// vector of them meets bytes of the left factor in the same order, and sums of a few products become
// floats, with the scales of both factors.
#include "nbits_bytes.h"

#include "../../processor.h"
#include "../support/partial.h"
#include "../support/sizes.h"

#if defined(__AVX2__)
#include <immintrin.h>

// Rows of the left factor and columns of a tile: sums, and numbers of the columns, are in registers.
#if VECTOR_BYTES == 64
enum { ROWS = 3, COLUMNS = 4 };
#else
enum { ROWS = 2, COLUMNS = 2 };
#endif
enum {
    MOST_PLANES = 4,
    PAIR = 2,
    QUAD = 4,  // scales that are loaded at once
    CACHED = 1 << 17,  // bytes of rounded rows that meet columns in turn
};

// Sums of four neighbouring products each, added to `sums`, of all planes of numbers with those of bytes.
typedef Ints (*SumsFn)(Ints sums, const Ints *numbers, const char *left, const int width);

INLINE Ints ints_at(const char *from) {
    Ints ints;
    memcpy(&ints, from, sizeof(ints));
    return ints;
}

INLINE Ints plane_of(Ints words, const int width, const int plane) {
    const uint32_t mask = (1u << width) - 1;
    return (Ints)(words >> (plane * width)) & (int32_t)(mask * 0x01010101);
}

#if VECTOR_BYTES == 64
typedef __mmask16 Few;
INLINE Few first_of(int64_t count) {
    return (Few)_bzhi_u32(0xFFFF, (uint32_t)lesser(count, LANES));
}
INLINE Floats load_few(const float *from, Few few) {
    return (Floats)_mm512_maskz_loadu_ps(few, from);
}
INLINE Floats quad_at(const float *from) {
    return (Floats)_mm512_castps128_ps512(_mm_loadu_ps(from));
}
INLINE Floats pair_at(const float *from) {
    return (Floats)_mm512_castsi128_si512(_mm_loadu_si64(from));
}
INLINE Floats load_quad(const float *from, Few few) {
    return (Floats)_mm512_castps128_ps512(_mm_maskz_loadu_ps((__mmask8)few, from));
}
INLINE Floats spread(Floats values, Ints places) {
    return (Floats)_mm512_permutexvar_ps((__m512i)places, (__m512)values);
}
#define PAIR_SUMS(NUMBERS, BYTES) (Ints) _mm512_maddubs_epi16((__m512i)(NUMBERS), (__m512i)(BYTES))
#define PLUS_WORDS(A, B) (Ints) _mm512_add_epi16((__m512i)(A), (__m512i)(B))
#define WORD_SUMS(WORDS, BY) (Ints) _mm512_madd_epi16((__m512i)(WORDS), _mm512_set1_epi16(BY))
#define HAS_VNNI __attribute__((target("avx512vnni")))
#define FOUR_PRODUCTS(SUM, NUMBERS, BYTES) \
    (Ints) _mm512_dpbusd_epi32((__m512i)(SUM), (__m512i)(NUMBERS), (__m512i)(BYTES))
#define RUNS_VNNI processor_has_avx512_vnni
#else
typedef __m256i Few;
INLINE Few first_of(int64_t count) { return first_lanes(lesser(count, LANES)); }
INLINE Floats load_few(const float *from, Few few) { return (Floats)_mm256_maskload_ps(from, few); }
INLINE Floats quad_at(const float *from) {
    return (Floats)_mm256_castps128_ps256(_mm_loadu_ps(from));
}
INLINE Floats pair_at(const float *from) {
    return (Floats)_mm256_castsi128_si256(_mm_loadu_si64(from));
}
INLINE Floats load_quad(const float *from, Few few) {
    return (Floats)_mm256_castps128_ps256(_mm_maskload_ps(from, _mm256_castsi256_si128(few)));
}
INLINE Floats spread(Floats values, Ints places) {
    return (Floats)_mm256_permutevar8x32_ps((__m256)values, (__m256i)places);
}
#define PAIR_SUMS(NUMBERS, BYTES) (Ints) _mm256_maddubs_epi16((__m256i)(NUMBERS), (__m256i)(BYTES))
#define PLUS_WORDS(A, B) (Ints) _mm256_add_epi16((__m256i)(A), (__m256i)(B))
#define WORD_SUMS(WORDS, BY) (Ints) _mm256_madd_epi16((__m256i)(WORDS), _mm256_set1_epi16(BY))
#if __has_include(<avxvnniintrin.h>)
#define HAS_VNNI __attribute__((target("avxvnni")))
#define FOUR_PRODUCTS(SUM, NUMBERS, BYTES) \
    (Ints) _mm256_dpbusd_avx_epi32((__m256i)(SUM), (__m256i)(NUMBERS), (__m256i)(BYTES))
#define RUNS_VNNI processor_has_avx_vnni
#endif
#endif

// Pairs of products saturate at 16 bits.  Those of up to four bits do not: a byte is two planes here.
INLINE Ints pair_sums(Ints sums, const Ints *numbers, const char *left, const int width) {
    if (width == 8) {
        const Ints bytes = ints_at(left);
        sums += WORD_SUMS(PAIR_SUMS(plane_of(numbers[0], 4, 0), bytes), 1);
        return sums + WORD_SUMS(PAIR_SUMS(plane_of(numbers[0], 4, 1), bytes), 16);
    }
    Ints words = PAIR_SUMS(numbers[0], ints_at(left));
    UNROLLED_FOR (int p = 1; p < 8 / width; p++)
        words = PLUS_WORDS(words, PAIR_SUMS(numbers[p], ints_at(left + p * VECTOR_BYTES)));
    return sums + WORD_SUMS(words, 1);
}

typedef struct {
    const PackedBits *bits;
    const char *left;  // rounded rows
    int64_t row;  // bytes from one to the next
    int64_t column, columns;  // the first one, and how many of COLUMNS there are
    int shift;  // as in `block_shift`
    Ints places;  // of the blocks of lanes
    float *out;
    int64_t out_row;
} Part;

// Zero points of a column less the middle of the range, times scales: those of a vector of blocks.
INLINE Floats shifts_at(const PackedBits *bits, int64_t place, Few few) {
    const Floats scales = load_few(bits->scales + place, few);
    if (bits->float_offsets) return scales * load_few(bits->float_offsets + place, few);
    return scales * floats_of_bytes(bits->offsets + place);
}

// Takes the shifts of all blocks, times their sums, from totals.
INLINE void shift_totals(
    const Part *part, const char *sums, Floats (*totals)[COLUMNS], const int rows) {
    const PackedBits *bits = part->bits;
    for (int64_t block = 0; block < bits->blocks; block += LANES) {
        const Few few = first_of(bits->blocks - block);
        UNROLLED_FOR (int c = 0; c < COLUMNS; c++) {
            const int64_t column = part->column + lesser(c, part->columns - 1);
            const Floats shifts = shifts_at(bits, column * bits->blocks + block, few);
            UNROLLED_FOR (int r = 0; r < rows; r++) {
                const char *from = sums + r * part->row + block * (int64_t)sizeof(float);
                totals[r][c] -= shifts * (Floats)ints_at(from);
            }
        }
    }
}

// Asks for scales and zero points of the columns behind these, which lie behind theirs.
INLINE void expect_scales(const Part *part) {
    enum { LINE = 64 };
    const PackedBits *bits = part->bits;
    const int64_t count = COLUMNS * bits->blocks, place = part->column * bits->blocks + count;
    const int64_t each = LINE / (int64_t)sizeof(float);
    for (int64_t i = 0; i < count; i += each) __builtin_prefetch(bits->scales + place + i);
    for (int64_t i = 0; bits->offsets && i < count; i += LINE)
        __builtin_prefetch(bits->offsets + place + i);
    for (int64_t i = 0; bits->float_offsets && i < count; i += each)
        __builtin_prefetch(bits->float_offsets + place + i);
}

// The sums of vectors, of which there may be fewer than COLUMNS.
INLINE void store_totals(const Floats *totals, float *out, int64_t columns) {
#if VECTOR_BYTES == 64
    enum { EVEN = 0x88, ODD = 0xDD, PAIRS_TURNED = 0xB1, HALVES_TURNED = 0x4E };
    __m512 two[2];
    UNROLLED_FOR (int i = 0; i < 2; i++) {
        const __m512 a = (__m512)totals[2 * i], b = (__m512)totals[2 * i + 1];
        two[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, EVEN), _mm512_shuffle_f32x4(a, b, ODD));
    }
    __m512 all = _mm512_add_ps(
        _mm512_shuffle_f32x4(two[0], two[1], EVEN), _mm512_shuffle_f32x4(two[0], two[1], ODD));
    all = _mm512_add_ps(all, _mm512_permute_ps(all, PAIRS_TURNED));
    all = _mm512_add_ps(all, _mm512_permute_ps(all, HALVES_TURNED));
    const __m512i firsts = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    _mm512_mask_storeu_ps(out, first_of(columns), _mm512_permutexvar_ps(firsts, all));
#else
    for (int64_t c = 0; c < columns; c++) out[c] = sum_of(totals[c]);
#endif
}

// Where columns of a part begin; those that are not there are the last one again.
typedef struct { const float *words[COLUMNS], *scales[COLUMNS]; } Lines;

INLINE Lines lines_of(const Part *part) {
    const PackedBits *bits = part->bits;
    Lines lines;
    UNROLLED_FOR (int c = 0; c < COLUMNS; c++) {
        const int64_t column = part->column + lesser(c, part->columns - 1);
        lines.words[c] = bits->packed + column * bits->words;
        lines.scales[c] = bits->scales + column * bits->blocks;
    }
    return lines;
}

// The scales of lanes.  Loads across lines of the cache, and of parts, take longer.
INLINE void load_scales(
    const Part *part, const Lines *lines, int64_t block, Floats scales[COLUMNS], const bool whole) {
    const int count = LANES >> part->shift;
    if (count <= 1) {
        UNROLLED_FOR (int c = 0; c < COLUMNS; c++) scales[c] = all_of(lines->scales[c][block]);
        return;
    }
    const Few few = first_of(part->bits->blocks - block);
    if (whole && count == QUAD)
        UNROLLED_FOR (int c = 0; c < COLUMNS; c++) scales[c] = quad_at(lines->scales[c] + block);
    else if (whole && count == PAIR)
        UNROLLED_FOR (int c = 0; c < COLUMNS; c++) scales[c] = pair_at(lines->scales[c] + block);
    else if (count <= QUAD)
        UNROLLED_FOR (int c = 0; c < COLUMNS; c++)
            scales[c] = load_quad(lines->scales[c] + block, few);
    else
        UNROLLED_FOR (int c = 0; c < COLUMNS; c++)
            scales[c] = load_few(lines->scales[c] + block, few);
    UNROLLED_FOR (int c = 0; c < COLUMNS; c++) scales[c] = spread(scales[c], part->places);
}

// Adds the products of a vector of numbers of each column, of which the last may not be `whole`.
INLINE void add_vectors(
    const Part *part, const Lines *lines, int64_t word, Floats (*totals)[COLUMNS], const int rows,
    const int width, const SumsFn sums_of, const bool whole) {
    const PackedBits *bits = part->bits;
    const int planes = 8 / width;
    const Few lanes = first_of(bits->words - word);
    const char *left = part->left + word / LANES * (planes + 2) * VECTOR_BYTES;
    Ints numbers[COLUMNS][MOST_PLANES];
    Floats scales[COLUMNS];
    load_scales(part, lines, word >> part->shift, scales, whole);
    UNROLLED_FOR (int c = 0; c < COLUMNS; c++) {
        const float *from = lines->words[c] + word;
        const Ints stored = (Ints)(whole ? load(from) : load_few(from, lanes));
        if (rows == 1) __builtin_prefetch(from + COLUMNS * bits->words);
        UNROLLED_FOR (int p = 0; p < planes; p++) numbers[c][p] = plane_of(stored, width, p);
    }
    UNROLLED_FOR (int r = 0; r < rows; r++) {
        const char *from = left + r * part->row, *behind = from + planes * VECTOR_BYTES;
        const Ints start = ints_at(behind);
        const Floats by = (Floats)ints_at(behind + VECTOR_BYTES);
        UNROLLED_FOR (int c = 0; c < COLUMNS; c++) {
            const Ints sums = sums_of(start, numbers[c], from, width);
            totals[r][c] += __builtin_convertvector(sums, Floats) * (by * scales[c]);
        }
    }
}

INLINE void multiply_part(const Part *part, const int rows, const int width, const SumsFn sums_of) {
    const PackedBits *bits = part->bits;
    const Lines lines = lines_of(part);
    Floats totals[ROWS][COLUMNS] = {{{0}}};
    if (rows == 1) expect_scales(part);
    int64_t word = 0;
    for (; word + LANES <= bits->words; word += LANES)
        add_vectors(part, &lines, word, totals, rows, width, sums_of, true);
    if (word < bits->words) add_vectors(part, &lines, word, totals, rows, width, sums_of, false);
    if (bits->offsets || bits->float_offsets) {
        const int64_t vectors = ceil_div(bits->words, LANES);
        shift_totals(part, part->left + vectors * (8 / width + 2) * VECTOR_BYTES, totals, rows);
    }
    UNROLLED_FOR (int r = 0; r < rows; r++)
        store_totals(totals[r], part->out + r * part->out_row, part->columns);
}

// Functions for each number of bits, of whole tiles and of single rows.
typedef void (*PartFn)(const Part *part);
#define PARTS(ATTRIBUTES, NAME, SUMS)                                                          \
    ATTRIBUTES static void NAME##_2(const Part *part) { multiply_part(part, ROWS, 2, SUMS); }  \
    ATTRIBUTES static void NAME##_4(const Part *part) { multiply_part(part, ROWS, 4, SUMS); }  \
    ATTRIBUTES static void NAME##_8(const Part *part) { multiply_part(part, ROWS, 8, SUMS); }  \
    ATTRIBUTES static void NAME##_row_2(const Part *part) { multiply_part(part, 1, 2, SUMS); } \
    ATTRIBUTES static void NAME##_row_4(const Part *part) { multiply_part(part, 1, 4, SUMS); } \
    ATTRIBUTES static void NAME##_row_8(const Part *part) { multiply_part(part, 1, 8, SUMS); } \
    static const PartFn NAME[2][3] = {                                                         \
        {NAME##_2, NAME##_4, NAME##_8}, {NAME##_row_2, NAME##_row_4, NAME##_row_8}};

PARTS(, pairs, pair_sums)

#if defined(HAS_VNNI)
HAS_VNNI INLINE Ints vnni_sums(Ints sums, const Ints *numbers, const char *left, const int width) {
    UNROLLED_FOR (int p = 0; p < 8 / width; p++)
        sums = FOUR_PRODUCTS(sums, numbers[p], ints_at(left + p * VECTOR_BYTES));
    return sums;
}

PARTS(HAS_VNNI, vnni, vnni_sums)

static bool is_vnni(ByteForm form) { return form != PAIRS && RUNS_VNNI(); }
#else
static const PartFn (*const vnni)[3] = pairs;
static bool is_vnni(ByteForm form) { return (void)form, false; }
#endif

bool ISA(has_byte_form)(ByteForm form) {
    return form == FASTEST || form == PAIRS || (form == VNNI && is_vnni(form));
}

void ISA(multiply_rounded)(
    const PackedBits *bits, ByteForm form, const char *left, int64_t m, Place out,
    int64_t columns) {
    const PartFn(*const parts)[3] = is_vnni(form) ? vnni : pairs;
    const int kind = bits->width == 2 ? 0 : bits->width == 4 ? 1 : 2;
    const int shift = block_shift(bits);
    Ints places;
    for (int lane = 0; lane < LANES; lane++) places[lane] = lane >> shift;
    const int64_t row = ISA(rounded_bytes)(bits), at_once = greater(CACHED / row / ROWS, 1) * ROWS;
    for (int64_t i = 0; i < m; i += at_once) {
        const int64_t end = lesser(i + at_once, m);
        for (int64_t j = 0; j < columns; j += COLUMNS)
            for (int64_t r = i; r < end;) {
                const Part part = {
                    bits,
                    left + r * row,
                    row,
                    out.first_column + j,
                    lesser(COLUMNS, columns - j),
                    shift,
                    places,
                    out.data + r * out.row + j,
                    out.row};
                const bool single = end - r < ROWS;
                parts[single][kind](&part);
                r += single ? 1 : ROWS;
            }
    }
}
#else
bool ISA(has_byte_form)(ByteForm form) { return (void)form, false; }

void ISA(multiply_rounded)(
    const PackedBits *bits, ByteForm form, const char *left, int64_t m, Place out,
    int64_t columns) {
    (void)bits, (void)form, (void)left, (void)m, (void)out, (void)columns;
}
#endif
