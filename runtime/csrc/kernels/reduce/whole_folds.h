// Reductions of a TYPE of integers, for reduce.c: included for each.

#define OF(NAME) JOIN(NAME, TYPE)

INLINE int64_t OF(value)(const char *from) { return (int64_t)*(const TYPE *)from; }
INLINE int64_t OF(size)(const char *from) {
    const int64_t v = OF(value)(from);
    return v < 0 ? (int64_t)(0 - (uint64_t)v) : v;
}
INLINE int64_t OF(square)(const char *from) {
    return whole_times(OF(value)(from), OF(value)(from));
}

// In one loop, for which order does not matter: gcc 12 makes wrong code of strips of bytes.
INLINE void OF(fold_along)(
    const Fold *fold, int64_t along, const WholeOf value, const WholeStep combined) {
    for (int64_t b = 0; b < fold->width; b++) {
        const char *at = fold->from + b * fold->across;
        int64_t total = fold->sums[b].whole;
        for (int64_t i = 0; i < fold->n; i++) total = combined(total, value(at + i * along));
        fold->sums[b].whole = total;
    }
}

INLINE void OF(fold_across)(const Fold *fold, const WholeOf value, const WholeStep combined) {
    const int64_t width = fold->width;
    int64_t totals[BLOCK], *const sums = wholes_of(fold->sums);
    for (int64_t b = 0; b < width; b++) totals[b] = sums[b];
    for (int64_t i = 0; i < fold->n; i++) {
        const char *at = fold->from + i * fold->along;
        for (int64_t b = 0; b < width; b++)
            totals[b] = combined(totals[b], value(at + b * (int64_t)sizeof(TYPE)));
    }
    for (int64_t b = 0; b < width; b++) sums[b] = totals[b];
}

INLINE void OF(fold)(const Fold *fold, const WholeOf value, const WholeStep combined) {
    if (fold->across == (int64_t)sizeof(TYPE) && fold->width > 1)
        OF(fold_across)(fold, value, combined);
    else if (fold->along == (int64_t)sizeof(TYPE))
        OF(fold_along)(fold, (int64_t)sizeof(TYPE), value, combined);
    else
        OF(fold_along)(fold, fold->along, value, combined);
}

INLINE TYPE OF(lesser)(TYPE a, TYPE b) { return LESSER(a, b); }
INLINE TYPE OF(larger)(TYPE a, TYPE b) { return LARGER(a, b); }

// Extremes need no wider numbers.
INLINE void OF(extreme_along)(
    const Fold *fold, TYPE (*const chosen)(TYPE, TYPE), const WholeStep combined) {
    const int64_t n = fold->n, along = fold->along;
    for (int64_t b = 0; b < fold->width; b++) {
        const char *at = fold->from + b * fold->across;
        TYPE total = *(const TYPE *)at;
        if (along == (int64_t)sizeof(TYPE))
            for (int64_t i = 0; i < n; i++) total = chosen(total, ((const TYPE *)at)[i]);
        else
            for (int64_t i = 0; i < n; i++) total = chosen(total, *(const TYPE *)(at + i * along));
        fold->sums[b].whole = combined(fold->sums[b].whole, (int64_t)total);
    }
}

INLINE void OF(extreme_across)(
    const Fold *fold, TYPE (*const chosen)(TYPE, TYPE), const WholeStep combined) {
    const int64_t width = fold->width;
    int64_t *const sums = wholes_of(fold->sums);
    TYPE totals[BLOCK];
    memcpy(totals, fold->from, (size_t)width * sizeof(TYPE));
    for (int64_t i = 1; i < fold->n; i++) {
        const TYPE *at = (const TYPE *)(fold->from + i * fold->along);
        for (int64_t b = 0; b < width; b++) totals[b] = chosen(totals[b], at[b]);
    }
    for (int64_t b = 0; b < width; b++) sums[b] = combined(sums[b], (int64_t)totals[b]);
}

INLINE void OF(fold_extreme)(
    const Fold *fold, TYPE (*const chosen)(TYPE, TYPE), const WholeStep combined) {
    if (fold->across == (int64_t)sizeof(TYPE) && fold->width > 1)
        OF(extreme_across)(fold, chosen, combined);
    else
        OF(extreme_along)(fold, chosen, combined);
}

static void OF(step)(const Fold *given, Step step) {
    const Fold copy = *given, *const fold = &copy;  // which no result is written to
    switch (step) {
        case ADD: OF(fold)(fold, OF(value), whole_plus); break;
        case ADD_ABS: OF(fold)(fold, OF(size), whole_plus); break;
        case ADD_SQUARE: OF(fold)(fold, OF(square), whole_plus); break;
        case MULTIPLY: OF(fold)(fold, OF(value), whole_times); break;
        case LEAST: OF(fold_extreme)(fold, OF(lesser), lesser_whole); break;
        case GREATEST: OF(fold_extreme)(fold, OF(larger), larger_whole); break;
        default: break;
    }
}

#undef OF
#undef TYPE
