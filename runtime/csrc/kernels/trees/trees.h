// Ensembles of trees as they are walked.
#ifndef POPC_TREES_H
#define POPC_TREES_H

#include "../../kernel.h"

// Ways that are followed at the same time: each step waits for the one before it, so that one way
// alone leaves the processor idle.
enum { WAYS = 8 };
// Deeper trees are asked after so many steps whether all ways have ended.
enum { STEPS = 4 };
enum { TREES_OF_CHUNK = 64, MOST_ROWS = 128, STEPS_OF_CHUNK = 1 << 13 };

// The order is that of _AGGREGATES in popc_runtime/native/encoders/trees.py.
typedef enum { SUM_OF, LEAST_OF, LARGEST_OF } Aggregate;

// The next node is `step` further if the number is above the threshold, or else the one before that.
// A leaf has the step 0 and no number as its threshold, so that ways stay there.
enum { NEGATED = 1, EQUAL = 2, MISSING = 4, QUESTION_BITS = 3 };  // of features

typedef struct {
    float threshold;
    uint32_t word;  // from the top: whether the number is negated, its feature, the step
} NarrowNode;

typedef struct {
    double threshold;
    int32_t feature;  // and below it, what is asked
    int32_t step;
} WideNode;

typedef struct {
    const char *x;
    char *out;
    int64_t rows, columns, targets, trees, nodes, leaves, entries;
    int64_t unit;  // rows of a chunk
    int64_t height;  // mean of all trees
    Aggregate aggregate;
    bool wide;  // which nodes there are
    bool signs;  // whether any numbers are negated
    bool others;  // whether any questions are about equality, or what is not a number is let pass
    bool single;  // every leaf has one entry, for the only target
    bool doubles;
    int shift;  // bits of a step in a word
    // Copies: results never lie where these do.
    void *node;  // NarrowNode or WideNode
    int32_t *leaf;  // number of the leaf that a node is
    char *value;  // what the leaf that a node is holds, if it is `single`
    int32_t *root, *depth;  // of each tree
    int32_t *start, *target;
    char *weight;
} Forest;

#endif
