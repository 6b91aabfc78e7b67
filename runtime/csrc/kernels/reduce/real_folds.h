// Reductions of a TYPE with a point, float or double, for reduce.c: included for each.

#define OF(NAME) JOIN(NAME, TYPE)

INLINE double OF(value)(const char *from, const Fold *fold, int64_t neighbour) {
    (void)fold, (void)neighbour;
    return (double)*(const TYPE *)from;
}
INLINE double OF(size)(const char *from, const Fold *fold, int64_t neighbour) {
    return fabs(OF(value)(from, fold, neighbour));
}
INLINE double OF(square)(const char *from, const Fold *fold, int64_t neighbour) {
    return OF(value)(from, fold, neighbour) * OF(value)(from, fold, neighbour);
}
INLINE double OF(exponential)(const char *from, const Fold *fold, int64_t neighbour) {
    return exp_of(OF(value)(from, fold, neighbour) - fold->shifts[neighbour].real);
}

INLINE void OF(fold_along)(
    const Fold *fold, int64_t along, double start, const RealOf value, const RealStep combined) {
    const int64_t n = fold->n;
    for (int64_t b = 0; b < fold->width; b++) {
        const char *at = fold->from + b * fold->across;
        double strips[STRIPS];
        for (int s = 0; s < STRIPS; s++) strips[s] = start;
        int64_t i = 0;
        for (; i + STRIPS <= n; i += STRIPS)
            for (int s = 0; s < STRIPS; s++)
                strips[s] = combined(strips[s], value(at + (i + s) * along, fold, b));
        for (; i < n; i++) strips[0] = combined(strips[0], value(at + i * along, fold, b));
        double total = fold->sums[b].real;
        for (int s = 0; s < STRIPS; s++) total = combined(total, strips[s]);
        fold->sums[b].real = total;
    }
}

// The same where neighbours in the result lie side by side: all of them, one element after another.
INLINE void OF(fold_across)(const Fold *fold, const RealOf value, const RealStep combined) {
    const int64_t width = fold->width;
    double totals[BLOCK], *const sums = reals_of(fold->sums);
    for (int64_t b = 0; b < width; b++) totals[b] = sums[b];
    for (int64_t i = 0; i < fold->n; i++) {
        const char *at = fold->from + i * fold->along;
        for (int64_t b = 0; b < width; b++)
            totals[b] = combined(totals[b], value(at + b * (int64_t)sizeof(TYPE), fold, b));
    }
    for (int64_t b = 0; b < width; b++) sums[b] = totals[b];
}

INLINE void OF(fold)(const Fold *fold, double start, const RealOf value, const RealStep combined) {
    if (fold->across == (int64_t)sizeof(TYPE) && fold->width > 1)
        OF(fold_across)(fold, value, combined);
    else if (fold->along == (int64_t)sizeof(TYPE))
        OF(fold_along)(fold, (int64_t)sizeof(TYPE), start, value, combined);
    else
        OF(fold_along)(fold, fold->along, start, value, combined);
}

INLINE TYPE OF(lesser)(TYPE a, TYPE b) { return LESSER(a, b); }
INLINE TYPE OF(larger)(TYPE a, TYPE b) { return LARGER(a, b); }

// Extremes of numbers side by side, without making them wider.
INLINE TYPE OF(extreme)(const TYPE *at, int64_t n, TYPE (*const chosen)(TYPE, TYPE)) {
    TYPE strips[EXTREME_STRIPS];
    memcpy(strips, at, sizeof(strips));
    int64_t i = EXTREME_STRIPS;
    for (; i + EXTREME_STRIPS <= n; i += EXTREME_STRIPS)
        for (int s = 0; s < EXTREME_STRIPS; s++) strips[s] = chosen(strips[s], at[i + s]);
    for (; i < n; i++) strips[0] = chosen(strips[0], at[i]);
    for (int s = 0; s < EXTREME_STRIPS / 2; s++)
        strips[s] = chosen(strips[s], strips[s + EXTREME_STRIPS / 2]);
    for (int s = 1; s < EXTREME_STRIPS / 2; s++) strips[0] = chosen(strips[0], strips[s]);
    return strips[0];
}
INLINE TYPE OF(least)(const TYPE *at, int64_t n) { return OF(extreme)(at, n, OF(lesser)); }
INLINE TYPE OF(greatest)(const TYPE *at, int64_t n) { return OF(extreme)(at, n, OF(larger)); }

INLINE void OF(fold_extreme)(
    const Fold *fold, double start, TYPE (*const in_line)(const TYPE *, int64_t),
    const RealStep combined) {
    if (fold->along != (int64_t)sizeof(TYPE) || fold->n < EXTREME_STRIPS) {
        OF(fold)(fold, start, OF(value), combined);
        return;
    }
    for (int64_t b = 0; b < fold->width; b++) {
        const TYPE *line = (const TYPE *)(fold->from + b * fold->across);
        fold->sums[b].real = combined(fold->sums[b].real, (double)in_line(line, fold->n));
    }
}

#define IN_LINE(OF_FLOATS, OTHERS) _Generic((TYPE){0}, float: OF_FLOATS, default: OTHERS)

static void OF(step)(const Fold *given, Step step) {
    const Fold copy = *given, *const fold = &copy;  // which no result is written to
    const double start = first_value(F64, step).real;
    switch (step) {
        case ADD: OF(fold)(fold, start, OF(value), real_plus); break;
        case ADD_ABS: OF(fold)(fold, start, OF(size), real_plus); break;
        case ADD_SQUARE: OF(fold)(fold, start, OF(square), real_plus); break;
        case ADD_EXP: OF(fold)(fold, start, OF(exponential), real_plus); break;
        case MULTIPLY: OF(fold)(fold, start, OF(value), times); break;
        case LEAST: OF(fold_extreme)(fold, start, IN_LINE(smallest, OF(least)), lesser_real); break;
        case GREATEST:
            OF(fold_extreme)(fold, start, IN_LINE(largest, OF(greatest)), larger_real);
            break;
    }
}

#undef IN_LINE
#undef OF
#undef TYPE
