// The first few in order of a line: what comes before the last of them is looked for, many at once.
#ifndef POPC_FIRST_FEW_H
#define POPC_FIRST_FEW_H

#include <string.h>

#include "../../tensor.h"
#include "../support/simd.h"

enum { MOST_FEW = 16 };

typedef struct { int64_t key, index; } Entry;

typedef struct {
    const char *x;
    DType dtype;
    int64_t length, step;  // elements, and from one to the next
    int64_t wanted;
    int64_t turned;  // all bits, if the largest come first
} Line;

// Integers of the same order.  Positive and negative zero are equal; NaNs are, too, and larger than all
// numbers.
static inline int32_t float_key(float value) {
    int32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    bits = value != value ? INT32_MAX : bits;
    bits = bits == INT32_MIN ? 0 : bits;
    return bits ^ (bits >> 31 & INT32_MAX);
}

static inline int64_t double_key(double value) {
    int64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    bits = value != value ? INT64_MAX : bits;
    bits = bits == INT64_MIN ? 0 : bits;
    return bits ^ (bits >> 63 & INT64_MAX);
}

// WITH(type of elements, type of keys, key of v): `case`s of a switch over types.
#define NARROW_KEYS(WITH)                        \
    case F32: WITH(float, int32_t, float_key(v)) \
    case I8: WITH(int8_t, int32_t, v)            \
    case I16: WITH(int16_t, int32_t, v)          \
    case U16: WITH(uint16_t, int32_t, v)         \
    case I32: WITH(int32_t, int32_t, v)          \
    case U32: WITH(uint32_t, int32_t, v ^ (uint32_t)INT32_MIN)
#define WIDE_KEYS(WITH)                                        \
    case F64: WITH(double, int64_t, double_key(v))             \
    case U64: WITH(uint64_t, int64_t, v ^ (uint64_t)INT64_MIN) \
    case I64: WITH(int64_t, int64_t, v)

// Puts an entry among `kept` that are in order, the last of which it takes the place of if there are as
// many as are wanted.
static inline void put_among(Entry *first, int64_t kept, int64_t wanted, Entry entry) {
    int64_t place = kept < wanted ? kept : wanted - 1;
    for (; place > 0 && first[place - 1].key > entry.key; place--) first[place] = first[place - 1];
    first[place] = entry;
}

#define KEYS_OF(TYPE, KEY_TYPE, KEY, COUNT)                     \
    for (int64_t j = 0; j < COUNT; j++) {                       \
        const TYPE v = ((const TYPE *)line->x)[(i + j) * step]; \
        keys[j] = (KEY_TYPE)(KEY) ^ (KEY_TYPE)line->turned;     \
        found |= keys[j] <= most;                               \
    }
#define LEAST_OF(TYPE, KEY_TYPE, KEY)                                      \
    for (int64_t i = 0; i < sampled; i += COLUMNS_OF_FEW)                  \
        for (int64_t j = 0; j < COLUMNS_OF_FEW; j++) {                     \
            const TYPE v = ((const TYPE *)line->x)[(i + j) * step];        \
            const KEY_TYPE key = (KEY_TYPE)(KEY) ^ (KEY_TYPE)line->turned; \
            least[j] = i == 0 || key < least[j] ? key : least[j];          \
        }
// Of columns of what a longer line begins with, each has a least key: the line has as many as are wanted
// up to the last of the first few of these.  Their ranks are found without branches, which nothing could
// predict.
#define FIND_FEW(TYPE, KEY_TYPE, KEY)                                                          \
    {                                                                                          \
        const KEY_TYPE top = sizeof(KEY_TYPE) == 8 ? (KEY_TYPE)INT64_MAX : INT32_MAX;          \
        KEY_TYPE keys[AT_A_TIME], least[COLUMNS_OF_FEW], most = top;                           \
        if (sampled) {                                                                         \
            LEAST_OF(TYPE, KEY_TYPE, KEY)                                                      \
            KEY_TYPE ranks[COLUMNS_OF_FEW] = {0};                                              \
            for (int64_t i = 0; i < COLUMNS_OF_FEW; i++)                                       \
                for (int64_t j = 0; j < COLUMNS_OF_FEW; j++) ranks[j] += least[i] <= least[j]; \
            for (int64_t j = 0; j < COLUMNS_OF_FEW; j++)                                       \
                most = ranks[j] >= line->wanted && least[j] < most ? least[j] : most;          \
        }                                                                                      \
        int64_t kept = 0;                                                                      \
        for (int64_t i = 0, count; i < line->length; i += count) {                             \
            count = line->length - i < AT_A_TIME ? line->length - i : AT_A_TIME;               \
            KEY_TYPE found = 0;                                                                \
            if (count == AT_A_TIME)                                                            \
                KEYS_OF(TYPE, KEY_TYPE, KEY, AT_A_TIME)                                        \
            else                                                                               \
                KEYS_OF(TYPE, KEY_TYPE, KEY, count)                                            \
            for (int64_t j = 0; found && j < count; j++) {                                     \
                if (keys[j] > most) continue;                                                  \
                put_among(first, kept++, line->wanted, (Entry){keys[j], i + j});               \
                if (kept < line->wanted) continue;                                             \
                const KEY_TYPE last = (KEY_TYPE)first[line->wanted - 1].key;                   \
                if (last == (KEY_TYPE)~top) return;                                            \
                most = last - 1;                                                               \
            }                                                                                  \
        }                                                                                      \
        break;                                                                                 \
    }

INLINE void find_few_at(const Line *line, Entry *first, const int64_t step) {
    enum { AT_A_TIME = 32, COLUMNS_OF_FEW = 32, SAMPLED = 1 << 10 };
    const int64_t many = line->wanted < 4 ? 16 : line->wanted < 8 ? 3 : 2;
    const bool samples = step == 1 && line->wanted > 1 && line->length >= many * COLUMNS_OF_FEW;
    const int64_t whole = line->length / COLUMNS_OF_FEW * COLUMNS_OF_FEW;
    const int64_t sampled = !samples ? 0 : whole < SAMPLED ? whole : SAMPLED;
    switch (line->dtype) {
        NARROW_KEYS(FIND_FEW)
        WIDE_KEYS(FIND_FEW)
        default: FIND_FEW(uint8_t, int32_t, v)
    }
}

// The first `wanted` in order, MOST_FEW at most; of equal ones those with lower indices.
static void find_few(const Line *line, Entry *first) {
    if (line->step == 1)
        find_few_at(line, first, 1);
    else
        find_few_at(line, first, line->step);
}

#endif
