// Sums of bytes become results.  Every step is rounded as in numpy.
#include <math.h>

#include "byte_epilogue.h"

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

enum { HALVES = BYTE_COLUMNS / LANES };

// Quotients up to MOST_STEPS, of two terms of up to twice that, are off by less than DOUBT after six
// roundings.  A float that is added to WHOLE becomes an integer, which the low bits of the sum hold.
#define MOST_STEPS 256.0f
#define DOUBT 0x1p-12f
#define WHOLE 0x1.8p23f

enum { LARGER_SIZE = 0xB };  // of two numbers without their signs

// Products with scales between this and its reciprocal, or with their reciprocals, are rounded once.
#define MOST_SCALE 0x1p60f

typedef int8_t Bytes __attribute__((vector_size(LANES)));
typedef float LooseFloat __attribute__((may_alias));  // where integers were

static inline Ints load_ints(const int32_t *from) { return *(const LooseInts *)from; }

// A number that is rounded before it goes into a sum: compilers make one operation of both.
static inline Floats rounded(Floats values) {
#if defined(__AVX512F__)
    __asm__("" : "+v"(values));
#elif defined(__AVX2__)
    __asm__("" : "+x"(values));
#elif defined(__aarch64__)
    __asm__("" : "+w"(values));
#endif
    return values;
}

// NaN becomes the lower limit.  Compilers do not see that it is one instruction for each limit.
static inline Floats clipped(Floats values, float low, float high) {
#if defined(__AVX512F__)
    const __m512 above = _mm512_max_ps((__m512)values, _mm512_set1_ps(low));
    return (Floats)_mm512_min_ps(_mm512_set1_ps(high), above);
#elif defined(__AVX2__)
    const __m256 above = _mm256_max_ps((__m256)values, _mm256_set1_ps(low));
    return (Floats)_mm256_min_ps(_mm256_set1_ps(high), above);
#else
    const Ints kept = values >= low;
    const Floats above = (Floats)(((Ints)all_of(low) & ~kept) | ((Ints)values & kept));
    const Ints beyond = above > high;
    return (Floats)(((Ints)all_of(high) & beyond) | ((Ints)above & ~beyond));
#endif
}

static inline Floats whole(Floats values) {
#if defined(__clang__)
    return __builtin_elementwise_roundeven(values);
#else
    Floats result;
    for (int lane = 0; lane < LANES; lane++) result[lane] = __builtin_rintf(values[lane]);
    return result;
#endif
}

// a + b * c, rounded once: what is missing to a quotient would be lost otherwise.
static inline Floats plus_product(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__)
    return (Floats)_mm512_fmadd_ps((__m512)b, (__m512)c, (__m512)a);
#elif defined(__FMA__)
    return (Floats)_mm256_fmadd_ps((__m256)b, (__m256)c, (__m256)a);
#elif defined(__aarch64__)
    return (Floats)vfmaq_f32((float32x4_t)a, (float32x4_t)b, (float32x4_t)c);
#else
#error "there is no product and sum in one"
#endif
}

// The low bytes of integers.  gcc moves them one by one where the processor has no such conversion.
static inline Bytes low_bytes(Ints values) {
#if defined(__AVX2__) && !defined(__AVX512F__)
    const __m256i first_bytes = _mm256_setr_epi64x(0x0C080400, 0, 0x0C080400, 0);
    const __m256i low = _mm256_shuffle_epi8((__m256i)values, first_bytes);
    return (Bytes)_mm_cvtsi128_si64(
        _mm_unpacklo_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1)));
#else
    return __builtin_convertvector(values, Bytes);
#endif
}

static inline bool all_true(Mask mask) {
#if defined(__AVX512F__)
    return _mm512_movepi32_mask((__m512i)mask) == 0xFFFF;
#elif defined(__AVX2__)
    return _mm256_movemask_ps((__m256)mask) == 0xFF;
#else
    return (mask[0] & mask[1] & mask[2] & mask[3]) != 0;
#endif
}

// Numbers whose size is less than a limit.
static inline Mask within(Floats values, float limit) {
    return (values < limit) & (values > -limit);
}

// The quotient as a division would round it, to an integer: a product with the reciprocal, and twice
// what is missing.  Operands are clipped rather than quotients; what that changes is rounded away.
static inline Floats steps_of(const Quantizer *by, Floats values) {
    if (by->scale == 1) return whole(clipped(values, by->low, by->high));
    if (by->inverse == 0) return whole(clipped(values / by->scale, by->low, by->high));
    const Floats kept = clipped(values, by->low * by->scale, by->high * by->scale);
    const Floats less = all_of(-by->scale), inverse = all_of(by->inverse);
    Floats quotient = kept * inverse;
    for (int i = 0; i < 2; i++)
        quotient = plus_product(quotient, plus_product(kept, quotient, less), inverse);
    return whole(quotient);
}

// round(clip(scaled / scale, low, high)) + WHOLE, from a quotient that is nearly the exact one.
// `known` loses those that lie so close between two integers that they may be rounded to the other.
static inline Floats near_steps(const Quantizer *by, Floats quotients, Mask *known) {
    const Floats kept = clipped(quotients, by->low, by->high), shifted = kept + WHOLE;
    *known &= within(kept - (shifted - WHOLE), 0.5f - DOUBT);
    return shifted;
}

// -- preparing ------------------------------------------------------------------------------------

// Floats of all columns, or of each.
static bool read_floats(Params *params, int64_t columns, const float **data, int64_t *step) {
    const Tensor tensor = maybe_tensor(params);
    *data = (const float *)tensor.data;
    if (!tensor.data) return true;
    const int64_t count = element_count(&tensor);
    *step = count > 1;
    return tensor.dtype == F32 && is_contiguous(&tensor) && (count == 1 || count == columns);
}

// The reciprocal of a scale; 0 where what is missing to a quotient might not be a float.
static float inverse_of(float scale) {
    return scale > 1 / MOST_SCALE && scale < MOST_SCALE ? 1 / scale : 0;
}

static Quantizer read_quantizer(Params *params) {
    Quantizer by = {.scale = (float)next_float(params)};
    by.low = (float)next_float(params);
    by.high = (float)next_float(params);
    by.inverse = inverse_of(by.scale);
    return by;
}

static const Quantizer *quantizer_of(const ByteEpilogue *epilogue, FirstRounding first) {
    return first == MULTIPLES ? &epilogue->rounding : &epilogue->quantizer;
}

static FirstRounding first_rounding(const ByteEpilogue *epilogue) {
    const bool between = epilogue->activation || epilogue->quantizer.factor != 1;
    FirstRounding first = MULTIPLES;
    if (epilogue->rounding.scale == 0) first = between ? NO_ROUNDING : BYTES;
    const Quantizer *by = quantizer_of(epilogue, first);
    const bool small = fabsf(by->low) <= MOST_STEPS && fabsf(by->high) <= MOST_STEPS;
    const bool usual = first == MULTIPLES || by->high - by->low == 255;
    return epilogue->scale && by->inverse != 0 && small && usual ? first : NO_ROUNDING;
}

bool ISA(read_byte_epilogue)(ByteEpilogue *epilogue, Params *params, DType type, int64_t columns) {
    epilogue->type = type;
    const bool known = read_floats(params, columns, &epilogue->scale, &epilogue->scale_step) &&
                       read_floats(params, columns, &epilogue->bias, &epilogue->bias_step);
    epilogue->rounding = read_quantizer(params);
    const int64_t number = next_int(params);
    epilogue->activation = ISA(activation_loop)(number);
    for (int i = 0; i < MAX_PARAMETERS; i++) epilogue->parameters[i] = next_float(params);
    epilogue->quantizer = read_quantizer(params);
    epilogue->quantizer.factor = (float)next_float(params);
    epilogue->quantizer.zero = (type == I8 ? -128.0f : 0.0f) - epilogue->quantizer.low;
    epilogue->first = first_rounding(epilogue);
    if (params->bad || (number && !epilogue->activation) || !known) return false;
    if (type == I8 || type == U8) return epilogue->quantizer.scale != 0;
    return type == I32 || type == F32;
}

void ISA(find_columns)(
    const ByteEpilogue *epilogue, int64_t first, int64_t columns, ByteColumns *found) {
    for (int64_t j = 0; epilogue->scale && j < columns; j++)
        found->scale[j] = epilogue->scale[(first + j) * epilogue->scale_step];
    for (int64_t j = 0; epilogue->bias && j < columns; j++)
        found->bias[j] = epilogue->bias[(first + j) * epilogue->bias_step];
    if (epilogue->first == NO_ROUNDING) return;
    const float inverse = quantizer_of(epilogue, epilogue->first)->inverse;
    Ints usual = (Ints){0} - 1;
    for (int64_t j = 0; j < columns; j += LANES) {
        const Floats scale = load(found->scale + j), size = larger_of(scale, -scale);
        store(found->quotient + j, scale * inverse);
        usual &= ((size > 1 / MOST_SCALE) & (size < MOST_SCALE)) | (size == 0);
        if (epilogue->first != BYTES) continue;
        store(found->shift + j, load(found->bias + j) * inverse);
        usual &= within(load(found->shift + j), MOST_STEPS);
    }
    found->has_quotients = all_true(usual);
}

// -- running --------------------------------------------------------------------------------------

static inline Bytes bytes_of(const Quantizer *by, Floats values) {
    if (by->factor != 1) values = rounded(values * by->factor);
    const Ints steps = __builtin_convertvector(steps_of(by, values) + by->zero, Ints);
    return low_bytes(steps);
}

static inline void put_bytes(const Bytes *bytes, char *to, int64_t columns) {
    if (columns == BYTE_COLUMNS) {
        for (int h = 0; h < HALVES; h++) memcpy(to + h * LANES, &bytes[h], LANES);
        return;
    }
#if defined(__AVX512BW__)
    const __m256i whole = _mm256_loadu_si256((const __m256i *)bytes);
    _mm256_mask_storeu_epi8(to, (1u << columns) - 1, whole);
#else
    memcpy(to, bytes, (size_t)columns);
#endif
}

// A row of a result, from floats.
static inline void put_row(
    const ByteEpilogue *epilogue, const Floats *values, char *to, int64_t columns) {
    if (epilogue->type == F32) {
        if (columns == BYTE_COLUMNS) {
            for (int h = 0; h < HALVES; h++) store((float *)to + h * LANES, values[h]);
        } else {
            memcpy(to, values, (size_t)columns * sizeof(float));
        }
        return;
    }
    Bytes bytes[HALVES];
    for (int h = 0; h < HALVES; h++) bytes[h] = bytes_of(&epilogue->quantizer, values[h]);
    put_bytes(bytes, to, columns);
}

// Scaled and rounded to multiples.
static inline Floats multiples(
    const ByteEpilogue *epilogue, const ByteColumns *columns, Ints sums, int half) {
    const Quantizer *by = &epilogue->rounding;
    const Floats values = __builtin_convertvector(sums, Floats);
    if (columns->has_quotients) {
        Mask known = (Mask){0} - 1;
        const Floats quotients = values * load(columns->quotient + half * LANES);
        const Floats steps = near_steps(by, quotients, &known);
        if (all_true(known)) return rounded((steps - WHOLE) * by->scale);
    }
    const Floats products = epilogue->scale ? rounded(values * load(columns->scale + half * LANES))
                                            : values;
    return rounded(steps_of(by, products) * by->scale);
}

// Scaled, rounded, and with its bias.
static inline Floats scaled(
    const ByteEpilogue *epilogue, const ByteColumns *columns, Ints sums, int half) {
    Floats values;
    if (epilogue->rounding.scale != 0) {
        values = multiples(epilogue, columns, sums, half);
    } else {
        values = __builtin_convertvector(sums, Floats);
        if (epilogue->scale) values = rounded(values * load(columns->scale + half * LANES));
    }
    if (epilogue->bias) values += load(columns->bias + half * LANES);
    return values;
}

// What a tile of floats lacks: the residual and the activation; and its rows.
static void finish_floats(const ByteEpilogue *epilogue, LooseFloat *tile, BytePlace place) {
    for (int64_t i = 0; place.residual && i < place.rows; i++) {
        const float *residual = (const float *)(place.residual + i * place.residual_row);
        float *row = (float *)tile + i * BYTE_COLUMNS;
        if (place.columns == BYTE_COLUMNS)
            for (int h = 0; h < HALVES; h++)
                store(row + h * LANES, load(row + h * LANES) + load(residual + h * LANES));
        else
            for (int64_t j = 0; j < place.columns; j++) tile[i * BYTE_COLUMNS + j] += residual[j];
    }
    if (epilogue->activation) {
        const int64_t steps[] = {sizeof(float), sizeof(float)};
        char *const in = (char *)tile;
        epilogue->activation(in, &in, steps, place.rows * BYTE_COLUMNS, epilogue->parameters);
    }
    for (int64_t i = 0; i < place.rows; i++) {
        Floats values[HALVES];
        for (int h = 0; h < HALVES; h++)
            values[h] = load((const float *)tile + i * BYTE_COLUMNS + h * LANES);
        put_row(epilogue, values, place.data + i * place.row, place.columns);
    }
}

// The bytes of two vectors of quotients that are nearly exact.  False where one of them lies so close
// between two integers that it may be rounded to the other one.  Packing does what clipping does.
#if defined(__AVX512F__)
static inline bool near_bytes(
    const Quantizer *by, DType type, const Floats *quotients, Bytes *bytes) {
    const __m512 first = (__m512)quotients[0], second = (__m512)quotients[1];
    const __m512i steps[] = {_mm512_cvtps_epi32(first), _mm512_cvtps_epi32(second)};
    const __m512 missing = _mm512_range_ps(
        _mm512_sub_ps(first, _mm512_cvtepi32_ps(steps[0])),
        _mm512_sub_ps(second, _mm512_cvtepi32_ps(steps[1])), LARGER_SIZE);
    if (_mm512_cmp_ps_mask(missing, _mm512_set1_ps(0.5f - DOUBT), _CMP_NLT_UQ)) return false;
    const __m512i words = _mm512_adds_epi16(
        _mm512_packs_epi32(steps[0], steps[1]), _mm512_set1_epi16((int16_t)by->zero));
    const __m512i packed = type == I8 ? _mm512_packs_epi16(words, words)
                                      : _mm512_packus_epi16(words, words);
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m256i ordered = _mm512_castsi512_si256(_mm512_permutexvar_epi32(order, packed));
    memcpy(bytes, &ordered, sizeof(ordered));
    return true;
}
#elif defined(__AVX2__)
static inline bool near_bytes(
    const Quantizer *by, DType type, const Floats *quotients, Bytes *bytes) {
    const __m256 first = (__m256)quotients[0], second = (__m256)quotients[1];
    const __m256i steps[] = {_mm256_cvtps_epi32(first), _mm256_cvtps_epi32(second)};
    const __m256 sign = _mm256_set1_ps(-0.0f);
    const __m256 missing = _mm256_max_ps(
        _mm256_andnot_ps(sign, _mm256_sub_ps(first, _mm256_cvtepi32_ps(steps[0]))),
        _mm256_andnot_ps(sign, _mm256_sub_ps(second, _mm256_cvtepi32_ps(steps[1]))));
    if (_mm256_movemask_ps(_mm256_cmp_ps(missing, _mm256_set1_ps(0.5f - DOUBT), _CMP_NLT_UQ)))
        return false;
    const __m256i words = _mm256_adds_epi16(
        _mm256_packs_epi32(steps[0], steps[1]), _mm256_set1_epi16((int16_t)by->zero));
    const __m256i packed = type == I8 ? _mm256_packs_epi16(words, words)
                                      : _mm256_packus_epi16(words, words);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 0, 0, 0, 0);
    const __m128i ordered = _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(packed, order));
    memcpy(bytes, &ordered, sizeof(ordered));
    return true;
}
#else
static inline bool near_bytes(
    const Quantizer *by, DType type, const Floats *quotients, Bytes *bytes) {
    (void)type;
    Mask known = (Mask){0} - 1;
    for (int h = 0; h < HALVES; h++) {
        const Ints steps = (Ints)near_steps(by, quotients[h], &known);
        bytes[h] = __builtin_convertvector(steps + (int32_t)by->zero, Bytes);
    }
    return all_true(known);
}
#endif

// Rows of bytes whose sums are only scaled and rounded; the first one of which that is not true,
// because a quotient is in doubt.
INLINE int64_t finish_quickly(
    const ByteEpilogue *epilogue, const ByteColumns *columns, const int32_t *tile, BytePlace place,
    int64_t row, const int halves) {
    const Quantizer by = epilogue->quantizer;
    for (; row < place.rows; row++) {
        Floats quotients[HALVES] = {{0}};
        Bytes bytes[HALVES];
        for (int h = 0; h < halves; h++) {
            const Ints sums = load_ints(tile + row * BYTE_COLUMNS + h * LANES) -
                              load_ints(columns->base + h * LANES);
            quotients[h] = __builtin_convertvector(sums, Floats) *
                               load(columns->quotient + h * LANES) +
                           load(columns->shift + h * LANES);
        }
        if (!near_bytes(&by, epilogue->type, quotients, bytes)) break;
        put_bytes(bytes, place.data + row * place.row, place.columns);
    }
    return row;
}

void ISA(finish_bytes)(
    const ByteEpilogue *epilogue, const ByteColumns *columns, int32_t *tile, const int32_t *rests,
    BytePlace place) {
    const bool later = place.residual || epilogue->activation;
    const bool quick = !later && !rests && columns->has_quotients && epilogue->first == BYTES;
    for (int64_t i = 0; i < place.rows; i++) {
        if (quick && place.columns > LANES)
            i = finish_quickly(epilogue, columns, tile, place, i, HALVES);
        else if (quick)
            i = finish_quickly(epilogue, columns, tile, place, i, 1);
        if (i == place.rows) break;
        int32_t *row = tile + i * BYTE_COLUMNS;
        Ints sums[HALVES];
        for (int h = 0; h < HALVES; h++) {
            sums[h] = load_ints(row + h * LANES) - load_ints(columns->base + h * LANES);
            if (rests) sums[h] -= load_ints(columns->zeros + h * LANES) * rests[i];
        }
        if (epilogue->type == I32) {
            memcpy(place.data + i * place.row, sums, (size_t)place.columns * sizeof(int32_t));
            continue;
        }
        Floats values[HALVES];
        for (int h = 0; h < HALVES; h++) values[h] = scaled(epilogue, columns, sums[h], h);
        if (later)
            for (int h = 0; h < HALVES; h++) store((float *)row + h * LANES, values[h]);
        else
            put_row(epilogue, values, place.data + i * place.row, place.columns);
    }
    if (later) finish_floats(epilogue, (LooseFloat *)tile, place);
}
