// Copies of an image, one for each tap of the last axis, in which lie side by side what the tap reads
// for neighbouring pixels of the result, be they in one line or in two.  Images have two axes at most.
#ifndef POPC_COPIES_H
#define POPC_COPIES_H

#include "conv.h"

typedef struct {
    const Conv *conv;
    int64_t floats;  // of a channel for one tap
    int64_t length;  // floats of a contiguous input
    Mask *masks;  // of a channel for each tap: what is not outside; NULL: copied line by line
} Copies;

// False if the image has other axes, or memory is exhausted.
bool ISA(prepare_copies)(Copies *copies, const Conv *conv);
void ISA(free_copies)(Copies *copies);

// All channels of an image, tap by tap, and LANES zeros.
void ISA(copy_channels)(const Copies *copies, const float *image, int64_t channels, float *to);

// From the place of a pixel in the copies of `channels` channels to what it reads there.
int64_t ISA(copied_offset)(const Copies *copies, int64_t channels, int64_t channel, int64_t tap);

#endif
