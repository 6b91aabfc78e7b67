// All kernels for one kind of processor.
#include "../kernel.h"
#include "support/simd.h"

// One family a line, sorted; maps come first, because activations are numbered by their places there.
// clang-format off
#define POPC_FAMILIES(_)   \
    _(MAPS)                \
    _(ATTENTIONS)          \
    _(ATTENTION_GRADIENTS) \
    _(BATCH_NORMS)         \
    _(BYTE_CONVOLUTIONS)   \
    _(BYTE_DEPTHWISE)      \
    _(BYTE_PRODUCTS)       \
    _(CASTS)               \
    _(CHANNELS_LAST)       \
    _(COMMON_LEFT)         \
    _(CONVOLUTIONS)        \
    _(CONVOLUTION_WEIGHTS) \
    _(COPIES)              \
    _(COUNTS)              \
    _(DEFORMED)            \
    _(DEPTHWISE)           \
    _(DEPTHWISE_WEIGHTS)   \
    _(DIRECT_CONVOLUTIONS) \
    _(DOUBLES)             \
    _(DOUBLE_NORMS)        \
    _(DROPOUTS)            \
    _(DYNAMIC_BYTES)       \
    _(EXPERTS)             \
    _(EXTREMES)            \
    _(FOLDED_LINES)        \
    _(FOLDED_WINDOWS)      \
    _(FOUND)               \
    _(FUNCTIONS)           \
    _(FUSED_MAPS)          \
    _(GATHERS)             \
    _(GRIDS)               \
    _(GROUP_GRADIENTS)     \
    _(GROUP_NORMS)         \
    _(INTEGERS)            \
    _(JOINS)               \
    _(LINEAR_ATTENTIONS)   \
    _(LINE_CONVOLUTIONS)   \
    _(LOSSES)              \
    _(MATRICES)            \
    _(MOVES)               \
    _(NARROW_INTEGERS)     \
    _(NORM_GRADIENTS)      \
    _(OPTIMIZERS)          \
    _(PACKED_PRODUCTS)     \
    _(PLACES)              \
    _(PLAIN_PRODUCTS)      \
    _(POOLED_ROWS)         \
    _(POOLS)               \
    _(POOL_GRADIENTS)      \
    _(PRODUCTS)            \
    _(QUANTIZED_MAPS)      \
    _(RANDOM_NUMBERS)      \
    _(RECURRENT)           \
    _(RECURRENT_SLOPES)    \
    _(REDUCTIONS)          \
    _(REGIONS)             \
    _(RESAMPLINGS)         \
    _(ROTATIONS)           \
    _(ROUNDINGS)           \
    _(ROW_CONVOLUTIONS)    \
    _(ROW_NORMS)           \
    _(ROW_REDUCTIONS)      \
    _(RUNNING_SUMS)        \
    _(RUNS)                \
    _(SIZES)               \
    _(SLOPES_OF_MAPS)      \
    _(SOFTMAXES)           \
    _(SUMS)                \
    _(TEMPORAL_LOSSES)     \
    _(TOPS)                \
    _(TRANSFORMS)          \
    _(TRANSPOSED)          \
    _(TREES)               \
    _(TRIANGLES)           \
    _(UNIQUES)             \
    _(UNPOOLS)             \
    _(WEAVES)              \
    _(WINOGRAD)            \
    _(WINOGRAD_WEIGHTS)
// clang-format on

#define DECLARE(NAME) extern const Kernel ISA(NAME)[];
#define LIST(NAME) ISA(NAME),

POPC_FAMILIES(DECLARE)

const Kernel *const ISA(FAMILIES)[] = {POPC_FAMILIES(LIST) NULL};
