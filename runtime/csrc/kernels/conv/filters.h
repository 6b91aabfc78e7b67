// Weights of a convolution as panels of rows, group after group: those that are constant are packed once.
#ifndef POPC_FILTERS_H
#define POPC_FILTERS_H

#include "conv.h"

typedef struct {
    const Conv *conv;
    int64_t rows;  // of output channels in a panel
    int64_t group;  // floats
    float *packed;  // NULL: they are not constant
} Filters;

// False if memory is exhausted.
bool ISA(prepare_filters)(Filters *filters, const Conv *conv, int64_t rows);
void ISA(free_filters)(Filters *filters);

// Of memory that a run needs for them.
static inline int64_t filter_floats(const Filters *filters) {
    return filters->packed ? 0 : filters->group * filters->conv->groups;
}

// The panels of all groups, those that are not constant in `memory`.
const float *ISA(packed_filters)(const Filters *filters, const Run *run, float *memory);

#endif
