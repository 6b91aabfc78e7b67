// All kernels for one kind of processor.
#include "../kernel.h"
#include "simd.h"

#define POPC_FAMILIES(_)                                                                  \
    _(MAPS) _(COPIES) _(INTEGERS) _(DOUBLES) _(FUNCTIONS) _(PRODUCTS) _(CONVOLUTIONS) _(WINOGRAD) _(DIRECT_CONVOLUTIONS) _(CHANNELS_LAST) _(DEPTHWISE) _(RECURRENT) _(ROWS) _(MOVES) _(POOLS) \
    _(CONVOLUTION_WEIGHTS) _(POOL_GRADIENTS) _(SLOPES_OF_MAPS) _(OPTIMIZERS) _(LOSSES) _(NORM_GRADIENTS) _(SUMS) _(ATTENTIONS) _(ATTENTION_GRADIENTS) _(BATCH_NORMS) _(BYTE_PRODUCTS) \
    _(PLACES) _(REDUCTIONS) _(ORDERS) _(RESAMPLINGS) _(RANDOM_NUMBERS) _(GROUP_NORMS) _(TRIANGLES) _(RUNS)

#define DECLARE(NAME) extern const Kernel ISA(NAME)[];
#define LIST(NAME) ISA(NAME),

POPC_FAMILIES(DECLARE)

const Kernel *const ISA(FAMILIES)[] = {POPC_FAMILIES(LIST) NULL};
