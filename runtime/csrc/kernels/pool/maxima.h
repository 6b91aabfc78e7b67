// Maxima of elements of a TYPE, of which two are a PAIR and none is below LEAST, for pool_rows.c:
// included for each.

#define OF(NAME) JOIN(NAME, TYPE)

// Maxima of a few elements: parts overlap, which changes nothing.  Steps of 2 are taken out of pairs,
// the last of which may be half a pair.
typedef TYPE OF(Few) __attribute__((vector_size(16), aligned(1), may_alias));
static inline void OF(larger_few)(const TYPE *from, TYPE *to) {
    const OF(Few) a = *(const OF(Few) *)from, b = *(const OF(Few) *)to;
    const __typeof__(a > b) first = (a > b) | IS_NAN(a);
    *(OF(Few) *)to = (OF(Few))(((__typeof__(first))a & first) | ((__typeof__(first))b & ~first));
}
static void OF(larger)(const char *start, char *result, int64_t count, int64_t step) {
    enum { FEW = 16 / sizeof(TYPE), MANY = 64 / sizeof(TYPE) };  // of the narrowest, widest vector
    const TYPE *from = (const TYPE *)start;
    TYPE *to = (TYPE *)result, some[FEW];
    int64_t i = 0;
    if (step == 1) {
        for (; i + MANY <= count; i += MANY) {
            const TYPE *some_from = from + i;
            TYPE *some_to = to + i;
            INDEPENDENT_FOR (int k = 0; k < MANY; k++) {
                const TYPE v = some_from[k], t = some_to[k];
                some_to[k] = v > t || v != v ? v : t;
            }
        }
        for (; i + FEW <= count; i += FEW) OF(larger_few)(from + i, to + i);
        if (i < count && count >= FEW) {
            OF(larger_few)(from + count - FEW, to + count - FEW);
            return;
        }
    } else if (step == 2) {
        for (; i + FEW < count; i += FEW) {
            PAIR pairs[FEW];
            memcpy(pairs, from + 2 * i, sizeof(pairs));
            for (int k = 0; k < FEW; k++) some[k] = FIRST_OF(pairs[k]);
            OF(larger_few)(some, to + i);
        }
    }
    for (; i < count; i++) {
        const TYPE v = from[i * step];
        to[i] = v > to[i] || v != v ? v : to[i];
    }
}
static void OF(start)(const Pool *pool, char *y, int64_t *places, int64_t count) {
    (void)pool;
    for (int64_t i = 0; i < count; i++) ((TYPE *)y)[i] = LEAST;
    for (int64_t i = 0; places && i < count; i++) places[i] = 0;
}

#undef OF
#undef TYPE
#undef PAIR
#undef LEAST
