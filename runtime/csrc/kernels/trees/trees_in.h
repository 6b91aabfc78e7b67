// Walks through trees on numbers of type REAL, which has a BITS integer and a SIGN.

#define NAMED(name) JOIN(name, REAL)

INLINE REAL NAMED(signed_as)(REAL number, BITS sign) {
    union {
        REAL value;
        BITS bits;
    } both = {number};
    both.bits ^= sign;
    return both.value;
}

INLINE int64_t NAMED(narrow_step)(
    const Forest *forest, int64_t at, const REAL *row, uint32_t mask, int shift, bool signs) {
    const NarrowNode node = ((const NarrowNode *)forest->node)[at];
    const uint32_t feature = (signs ? node.word & INT32_MAX : node.word) >> shift;
    REAL number = row[feature];
    if (signs) number = NAMED(signed_as)(number, (BITS)(node.word >> 31) * SIGN);
    return at + (node.word & mask) - (number <= (REAL)node.threshold);
}

INLINE int64_t NAMED(wide_step)(const Forest *forest, int64_t at, const REAL *row, bool others) {
    const WideNode node = ((const WideNode *)forest->node)[at];
    const REAL number =
        NAMED(signed_as)(row[node.feature >> QUESTION_BITS], (BITS)(node.feature & NEGATED) * SIGN);
    bool low = (double)number <= node.threshold;
    if (others) {
        low &= (double)number >= node.threshold || !(node.feature & EQUAL);
        low |= (node.feature & MISSING) && number != number;
    }
    return at + node.step - low;
}

// One step of each way, or several.
INLINE void NAMED(take_steps)(
    const Forest *forest, int64_t *at, const REAL *const *row, int64_t count, bool wide, bool signs,
    bool others) {
    const int shift = forest->shift;
    const uint32_t mask = (UINT32_C(1) << shift) - 1;
    for (int64_t i = 0; i < count; i++) {
        UNROLLED_FOR (int way = 0; way < WAYS; way++) {
            at[way] = wide ? NAMED(wide_step)(forest, at[way], row[way], others)
                           : NAMED(narrow_step)(forest, at[way], row[way], mask, shift, signs);
        }
    }
}

INLINE bool NAMED(have_ended)(const Forest *forest, const int64_t *at) {
    int32_t inner = 0;
    UNROLLED_FOR (int way = 0; way < WAYS; way++) inner |= forest->leaf[at[way]];
    return inner >= 0;
}

// The leaves at which ways end that begin at `at` and are `depth` steps long at most.
INLINE void NAMED(follow)(
    const Forest *forest, int64_t *at, const REAL *const *row, int64_t depth, bool wide, bool signs,
    bool others) {
    if (depth <= 2 * STEPS) {
        NAMED(take_steps)(forest, at, row, depth, wide, signs, others);
        return;
    }
    NAMED(take_steps)(forest, at, row, STEPS, wide, signs, others);
    for (depth -= STEPS; depth > 0 && !NAMED(have_ended)(forest, at); depth -= STEPS)
        NAMED(take_steps)(forest, at, row, STEPS, wide, signs, others);
}

static void NAMED(end_ways)(
    const Forest *forest, int64_t *to, const REAL *const *row, int64_t depth) {
    int64_t at[WAYS];
    memcpy(at, to, sizeof(at));
    if (forest->others)
        NAMED(follow)(forest, at, row, depth, true, true, true);
    else if (forest->wide)
        NAMED(follow)(forest, at, row, depth, true, true, false);
    else if (forest->signs)
        NAMED(follow)(forest, at, row, depth, false, true, false);
    else
        NAMED(follow)(forest, at, row, depth, false, false, false);
    memcpy(to, at, sizeof(at));
}

// Adds what the leaf at a node holds to a row of results; `met` says which of them have met any.
INLINE void NAMED(take_leaf)(const Forest *forest, int64_t at, REAL *out, bool *met) {
    const REAL *weights = (const REAL *)(void *)forest->weight;
    if (forest->single && forest->aggregate == SUM_OF) {
        *out += ((const REAL *)(void *)forest->value)[at];
        return;
    }
    const int32_t leaf = forest->leaf[at];
    for (int64_t i = forest->start[leaf]; i < forest->start[leaf + 1]; i++) {
        const int32_t target = forest->target[i];
        const REAL weight = weights[i], now = out[target];
        switch (forest->aggregate) {
            case SUM_OF: out[target] = now + weight; continue;
            case LEAST_OF: out[target] = met[target] && !(weight < now) ? now : weight; break;
            case LARGEST_OF: out[target] = met[target] && !(weight > now) ? now : weight; break;
        }
        met[target] = true;
    }
}

// The nodes at which one row ends in each of some trees, eight of which are walked at a time.
static void NAMED(end_in_trees)(
    const Forest *forest, const REAL *row, int64_t first, int64_t end, int32_t *ends) {
    const REAL *rows[WAYS];
    for (int way = 0; way < WAYS; way++) rows[way] = row;
    for (int64_t tree = first; tree < end; tree += WAYS) {
        int64_t at[WAYS], depth = 0;
        for (int way = 0; way < WAYS; way++) {
            const int64_t which = lesser(tree + way, end - 1);
            at[way] = forest->root[which];
            depth = greater(depth, forest->depth[which]);
        }
        NAMED(end_ways)(forest, at, rows, depth);
        for (int64_t way = 0; way < lesser(WAYS, end - tree); way++)
            ends[tree - first + way] = (int32_t)at[way];
    }
}

static void NAMED(take_ends)(
    const Forest *forest, const int32_t *ends, int64_t count, REAL *out, bool *met) {
    for (int64_t i = 0; i < count; i++) NAMED(take_leaf)(forest, ends[i], out, met);
}

// A row by itself, some trees after the other.
static void NAMED(single_row)(const Forest *forest, int64_t row, bool *met) {
    int32_t ends[TREES_OF_CHUNK];
    const REAL *numbers = (const REAL *)(const void *)forest->x + row * forest->columns;
    REAL *out = (REAL *)(void *)forest->out + row * forest->targets;
    for (int64_t tree = 0; tree < forest->trees; tree += TREES_OF_CHUNK) {
        if (pool_is_stopped()) return;
        const int64_t end = lesser(tree + TREES_OF_CHUNK, forest->trees);
        NAMED(end_in_trees)(forest, numbers, tree, end, ends);
        NAMED(take_ends)(forest, ends, end - tree, out, met);
    }
}

// Eight rows at a time through each tree, which then lies in the cache for the next eight.
static void NAMED(rows_together)(
    const Forest *forest, int64_t begin, int64_t end, int64_t tree, bool *met) {
    const REAL *x = (const REAL *)(const void *)forest->x, *rows[WAYS];
    REAL *out = (REAL *)(void *)forest->out;
    for (int64_t row = begin; row < end; row += WAYS) {
        int64_t at[WAYS];
        for (int way = 0; way < WAYS; way++) {
            rows[way] = x + (row + way) * forest->columns;
            at[way] = forest->root[tree];
        }
        NAMED(end_ways)(forest, at, rows, forest->depth[tree]);
        for (int way = 0; way < WAYS; way++) {
            const int64_t place = (row + way) * forest->targets;
            NAMED(take_leaf)(forest, at[way], out + place, met + place - begin * forest->targets);
        }
    }
}

static void NAMED(some_rows)(const Forest *forest, int64_t begin, int64_t end, bool *met) {
    const int64_t targets = forest->targets, whole = begin + (end - begin) / WAYS * WAYS;
    memset(
        (REAL *)(void *)forest->out + begin * targets, 0,
        (size_t)((end - begin) * targets) * sizeof(REAL));
    if (forest->aggregate != SUM_OF) memset(met, 0, (size_t)((end - begin) * targets));
    if (whole > begin)
        for (int64_t tree = 0; tree < forest->trees && !pool_is_stopped(); tree++)
            NAMED(rows_together)(forest, begin, whole, tree, met);
    for (int64_t row = whole; row < end; row++)
        NAMED(single_row)(forest, row, met + (row - begin) * targets);
}

// Some trees for each of a few rows: where they end is added up when all are known, in order.
static void NAMED(some_trees)(const Forest *forest, int64_t chunk, int32_t *ends) {
    const int64_t blocks = ceil_div(forest->trees, TREES_OF_CHUNK);
    const int64_t row = chunk / blocks, tree = chunk % blocks * TREES_OF_CHUNK;
    const REAL *numbers = (const REAL *)(const void *)forest->x + row * forest->columns;
    NAMED(end_in_trees)(
        forest, numbers, tree, lesser(tree + TREES_OF_CHUNK, forest->trees),
        ends + row * forest->trees + tree);
}

static void NAMED(take_all_ends)(const Forest *forest, const int32_t *ends, bool *met) {
    const int64_t size = forest->rows * forest->targets;
    memset(forest->out, 0, (size_t)size * sizeof(REAL));
    memset(met, 0, (size_t)size);
    for (int64_t row = 0; row < forest->rows; row++) {
        REAL *out = (REAL *)(void *)forest->out + row * forest->targets;
        NAMED(take_ends)(
            forest, ends + row * forest->trees, forest->trees, out, met + row * forest->targets);
    }
}

#undef NAMED
