// Right matrices of products that are constant.
#ifndef POPC_RIGHT_PANELS_H
#define POPC_RIGHT_PANELS_H

#include "half_panels.h"

typedef struct {
    const void *data;
    DType dtype;
    int64_t row, column;  // elements from one to the next
    int64_t k, n;
} RightMatrix;

// Its panels, from `malloc`: of floats, or, if `halves`, of what it has.  NULL: there is no memory.
void *ISA(pack_right)(const RightMatrix *right, bool halves);

#endif
