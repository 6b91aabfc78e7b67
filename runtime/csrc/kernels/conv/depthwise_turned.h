// Depthwise convolutions of planes, a vector of channels at a time, which are turned on the way.
#ifndef POPC_DEPTHWISE_TURNED_H
#define POPC_DEPTHWISE_TURNED_H

#include "depthwise_rows.h"

typedef struct {
    Conv inner;  // of turned lines that have their borders
    Rows rows;
    int64_t blocks;  // of channels
    int64_t lines, bands;  // of results: those of a chunk, and chunks of a block
    int64_t step;  // lines of results that are turned back at once
    int64_t image, part;  // floats of the turned input of a chunk, and of turned results
    float *weights;  // [block][tap][lane], if they are constant
    float *outside;
} TurnedPlanes;

// Whether it takes less time than planes that are read where they lie.
bool ISA(turning_wins)(const Conv *conv);

// False if memory is exhausted; to be released then, too.
bool ISA(plan_turned_planes)(TurnedPlanes *planes, const Conv *conv, Needs *needs);
void ISA(release_turned_planes)(TurnedPlanes *planes);

int64_t ISA(turned_chunks)(const TurnedPlanes *planes, const Conv *conv);
void ISA(convolve_turned)(const TurnedPlanes *planes, const Conv *conv, int64_t chunk, char *own);

#endif
