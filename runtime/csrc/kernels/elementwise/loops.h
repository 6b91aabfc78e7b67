// Maps from expressions: plain C in a form that compilers turn into vector code.  The distance
// between elements is a constant in each copy of a loop, and bodies have no branches.
#ifndef POPC_LOOPS_H
#define POPC_LOOPS_H

#include "maps.h"

// What a map makes of an element: functions whose calls compilers replace by what they do, because
// each is a constant wherever a loop is given it.
typedef void (*UnaryStep)(char *out, const char *in, float p0, float p1, float p2);
typedef void (*BinaryStep)(char *out, const char *left, const char *right, float p0);

INLINE void unary_steps(
    char *out, const char *in, int64_t so, int64_t si, int64_t n, const double *parameters,
    const UnaryStep step) {
    const float p0 = (float)parameters[0], p1 = (float)parameters[1], p2 = (float)parameters[2];
    INDEPENDENT_FOR (int64_t i = 0; i < n; i++) step(out + i * so, in + i * si, p0, p1, p2);
}

// A loop over contiguous data, and one for any distances.
INLINE void unary_loop(
    char *out, char *const *in, const int64_t *steps, int64_t n, const double *p, const int64_t to,
    const int64_t from, const UnaryStep step) {
    if (steps[0] == to && steps[1] == from)
        unary_steps(out, in[0], to, from, n, p, step);
    else
        unary_steps(out, in[0], steps[0], steps[1], n, p, step);
}

INLINE void binary_steps(
    char *out, const char *left, const char *right, int64_t so, int64_t sl, int64_t sr, int64_t n,
    const double *parameters, const BinaryStep step) {
    const float p0 = (float)parameters[0];
    INDEPENDENT_FOR (int64_t i = 0; i < n; i++)
        step(out + i * so, left + i * sl, right + i * sr, p0);
}

// Loops over contiguous data, over data and one element, and one for any distances.
INLINE void binary_loop(
    char *out, char *const *in, const int64_t *steps, int64_t n, const double *p, const int64_t to,
    const int64_t from, const BinaryStep step) {
    if (steps[0] != to)
        binary_steps(out, in[0], in[1], steps[0], steps[1], steps[2], n, p, step);
    else if (steps[1] == from && steps[2] == from)
        binary_steps(out, in[0], in[1], to, from, from, n, p, step);
    else if (steps[1] == from && steps[2] == 0)
        binary_steps(out, in[0], in[1], to, from, 0, n, p, step);
    else if (steps[1] == 0 && steps[2] == from)
        binary_steps(out, in[0], in[1], to, 0, from, n, p, step);
    else
        binary_steps(out, in[0], in[1], to, steps[1], steps[2], n, p, step);
}

#define LOOP(NAME, FORM, TO, FROM)                                                      \
    static void NAME(                                                                   \
        char *out, char *const *in, const int64_t *steps, int64_t n, const double *p) { \
        FORM##_loop(out, in, steps, n, p, sizeof(TO), sizeof(FROM), NAME##_step);       \
    }
#define UNARY_LOOP(NAME, FROM, TO, EXPRESSION)                                         \
    INLINE void NAME##_step(char *out, const char *in, float p0, float p1, float p2) { \
        const FROM x = *(const FROM *)in;                                              \
        (void)p0, (void)p1, (void)p2;                                                  \
        *(TO *)out = EXPRESSION;                                                       \
    }                                                                                  \
    LOOP(NAME, unary, TO, FROM)
#define BINARY_LOOP(NAME, FROM, TO, EXPRESSION)                                         \
    INLINE void NAME##_step(char *out, const char *left, const char *right, float p0) { \
        const FROM a = *(const FROM *)left, b = *(const FROM *)right;                   \
        (void)p0;                                                                       \
        *(TO *)out = (TO)(EXPRESSION);                                                  \
    }                                                                                   \
    LOOP(NAME, binary, TO, FROM)

// The element type that loops over a type of C are for.  Signs make no difference to it.
#define DTYPE_OF(TYPE) \
    _Generic(          \
        (TYPE){0},     \
        float: F32,    \
        double: F64,   \
        uint8_t: BOOL, \
        int16_t: I16,  \
        uint16_t: I16, \
        int8_t: I8,    \
        int32_t: I32,  \
        uint32_t: I32, \
        int64_t: I64,  \
        uint64_t: U64)

// For each map its loop, and how it is prepared.
#define PREPARE(NAME, OPERANDS, COST, FROM, TO)                  \
    static void *prepare_##NAME(Params *params, Needs *needs) {  \
        static const Map map = {NAME, OPERANDS, COST, FROM, TO}; \
        return ISA(map_prepare)(params, needs, &map);            \
    }
#define UNARY_MAP(NAME, FROM, TO, COST, EXPRESSION) \
    UNARY_LOOP(NAME, FROM, TO, EXPRESSION)          \
    PREPARE(NAME, 1, COST, DTYPE_OF(FROM), DTYPE_OF(TO))
#define BINARY_MAP(NAME, FROM, TO, COST, EXPRESSION) \
    BINARY_LOOP(NAME, FROM, TO, EXPRESSION)          \
    PREPARE(NAME, 2, COST, DTYPE_OF(FROM), DTYPE_OF(TO))

#define ENTRY(NAME) {#NAME, prepare_##NAME, ISA(map_run), NULL},

#endif
