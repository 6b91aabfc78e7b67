// Functions that are applied to every element, as loops.
#ifndef POPC_MAPS_H
#define POPC_MAPS_H

#include "../../kernel.h"
#include "../support/simd.h"

enum { MAX_OPERANDS = 3, MAX_PARAMETERS = 3 };  // of any map of maps.c

// Elements, of which loops leave none over for the end, which goes one by one.  Work is divided at
// multiples of them, and where rows end.
enum { WHOLE_VECTORS = 64 };

// out[i] = f(in[0][i], in[1][i], ...) for i < n.  `steps` are bytes from element to element: those
// of `out`, then of each operand.  `out` may be one of the operands.
typedef void (*MapLoop)(
    char *out, char *const *in, const int64_t *steps, int64_t n, const double *parameters);

// Stands for the types of maps that only move elements of so many bytes, by what operand 0 says.
#define ANY_TYPE(BYTES) (-(BYTES))

// `from` and `to` are the types that the loop is for.  Operands and results of other types are
// converted block by block.
typedef struct {
    MapLoop loop;
    int operands;
    int cost;  // of an element, in additions
    int from;
    int to;
} Map;

// The loop that converts elements as numpy does; NULL if there is none.
MapLoop ISA(conversion_loop)(DType from, DType to);

// Prepares a map from the tensors out, in[0], ... and three parameters.
void *ISA(map_prepare)(Params *params, Needs *needs, const Map *map);
Failure ISA(map_run)(const void *state, const Run *run);

// What a prepared map computes, and the same on `n` elements somewhere else: of the result, then of
// each operand, at `at`, `steps` bytes apart.
const Map *ISA(map_of)(const void *state);
void ISA(map_elements)(const void *state, char *const *at, const int64_t *steps, int64_t n);

// The loop of an activation of floats by its number in _ACTIVATIONS of record.py; NULL for 0.
MapLoop ISA(activation_loop)(int64_t number);

// That of Relu, which products apply without a call.
MapLoop ISA(relu_loop)(void);

// That of Clip, whose parameters are the limits.
MapLoop ISA(clip_loop)(void);

// That of HardSwish.
MapLoop ISA(hard_swish_loop)(void);

// That of Swish, whose parameter is alpha.
MapLoop ISA(swish_loop)(void);

#endif
