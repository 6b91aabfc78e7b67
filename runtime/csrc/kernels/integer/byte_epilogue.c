// Sums of bytes become results.  Every step is rounded as in numpy.
#include <math.h>

#include "byte_epilogue.h"

typedef float LooseFloat __attribute__((may_alias));  // where integers were

static inline Ints load_ints(const int32_t *from) { return *(const LooseInts *)from; }

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

// A row of a result, from floats.
static inline void put_row(
    const ByteEpilogue *epilogue, const Floats *values, char *to, int64_t columns) {
    if (epilogue->type == F32) {
        if (columns == BYTE_COLUMNS) {
            for (int h = 0; h < BYTE_HALVES; h++) store((float *)to + h * LANES, values[h]);
        } else {
            memcpy(to, values, (size_t)columns * sizeof(float));
        }
        return;
    }
    Bytes bytes[BYTE_HALVES];
    for (int h = 0; h < BYTE_HALVES; h++) bytes[h] = bytes_of(&epilogue->quantizer, values[h]);
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
            for (int h = 0; h < BYTE_HALVES; h++)
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
        Floats values[BYTE_HALVES];
        for (int h = 0; h < BYTE_HALVES; h++)
            values[h] = load((const float *)tile + i * BYTE_COLUMNS + h * LANES);
        put_row(epilogue, values, place.data + i * place.row, place.columns);
    }
}

// Rows of bytes whose sums are only scaled and rounded; the first one of which that is not true,
// because a quotient is in doubt.
INLINE int64_t finish_quickly(
    const ByteEpilogue *epilogue, const ByteColumns *columns, const int32_t *tile, BytePlace place,
    int64_t row, const int halves) {
    const Quantizer by = epilogue->quantizer;
    for (; row < place.rows; row++) {
        Floats quotients[BYTE_HALVES] = {{0}};
        Bytes bytes[BYTE_HALVES];
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
            i = finish_quickly(epilogue, columns, tile, place, i, BYTE_HALVES);
        else if (quick)
            i = finish_quickly(epilogue, columns, tile, place, i, 1);
        if (i == place.rows) break;
        int32_t *row = tile + i * BYTE_COLUMNS;
        Ints sums[BYTE_HALVES];
        for (int h = 0; h < BYTE_HALVES; h++) {
            sums[h] = load_ints(row + h * LANES) - load_ints(columns->base + h * LANES);
            if (rests) sums[h] -= load_ints(columns->zeros + h * LANES) * rests[i];
        }
        if (epilogue->type == I32) {
            memcpy(place.data + i * place.row, sums, (size_t)place.columns * sizeof(int32_t));
            continue;
        }
        Floats values[BYTE_HALVES];
        for (int h = 0; h < BYTE_HALVES; h++) values[h] = scaled(epilogue, columns, sums[h], h);
        if (later)
            for (int h = 0; h < BYTE_HALVES; h++) store((float *)row + h * LANES, values[h]);
        else
            put_row(epilogue, values, place.data + i * place.row, place.columns);
    }
    if (later) finish_floats(epilogue, (LooseFloat *)tile, place);
}
