// Extremes of halves, for reduce.c, without making them wider: as integers in the same order.

// What is negative counts down from -1; the same again turns it back.
static inline int16_t turned_half(int16_t half) {
    return (int16_t)(half ^ (int16_t)((half >> 15) & INT16_MAX));
}

// What is undefined, beyond `infinity`, comes last.
INLINE int16_t place_of_half(int16_t half, int16_t infinity, int16_t last) {
    return (half & INT16_MAX) > infinity ? last : turned_half(half);
}

INLINE int16_t further(int16_t a, int16_t b, bool greatest) { return (a > b) == greatest ? a : b; }

// Each of `n` elements, `along` bytes apart, with the total so far.
INLINE int16_t
furthest_of(const char *at, int64_t n, int64_t along, int16_t infinity, bool greatest) {
    const int16_t last = greatest ? INT16_MAX : INT16_MIN;
    int16_t total = (int16_t)~last;
    for (int64_t i = 0; i < n; i++) {
        const int16_t half = *(const int16_t *)(at + i * along);
        total = further(total, place_of_half(half, infinity, last), greatest);
    }
    return total;
}

// The same of elements side by side, as many at once as vectors hold.
INLINE int16_t furthest_in_line(const char *from, int64_t n, int16_t infinity, bool greatest) {
    const int16_t *at = (const int16_t *)from, last = greatest ? INT16_MAX : INT16_MIN;
    int16_t strips[EXTREME_STRIPS];
    int64_t i = 0;
    for (int s = 0; s < EXTREME_STRIPS; s++) strips[s] = (int16_t)~last;
    for (; i + EXTREME_STRIPS <= n; i += EXTREME_STRIPS)
        for (int s = 0; s < EXTREME_STRIPS; s++)
            strips[s] = further(strips[s], place_of_half(at[i + s], infinity, last), greatest);
    int16_t total = furthest_of((const char *)(at + i), n - i, 2, infinity, greatest);
    for (int s = 0; s < EXTREME_STRIPS / 2; s++)
        strips[s] = further(strips[s], strips[s + EXTREME_STRIPS / 2], greatest);
    for (int s = 0; s < EXTREME_STRIPS / 2; s++) total = further(total, strips[s], greatest);
    return total;
}

INLINE void fold_halves(const Fold *fold, int16_t infinity, bool greatest) {
    const int16_t last = greatest ? INT16_MAX : INT16_MIN;
    const int64_t width = fold->width, along = fold->along, across = fold->across, n = fold->n;
    int16_t totals[BLOCK];
    for (int64_t b = 0; b < width; b++) totals[b] = (int16_t)~last;
    if (across == 2 && width > 1)
        for (int64_t i = 0; i < n; i++) {
            const int16_t *at = (const int16_t *)(fold->from + i * along);
            for (int64_t b = 0; b < width; b++)
                totals[b] = further(totals[b], place_of_half(at[b], infinity, last), greatest);
        }
    else
        for (int64_t b = 0; b < width; b++) {
            const char *at = fold->from + b * across;
            totals[b] = along == 2 ? furthest_in_line(at, n, infinity, greatest)
                                   : furthest_of(at, n, along, infinity, greatest);
        }
    for (int64_t b = 0; b < width; b++) {
        int64_t *sum = &fold->sums[b].whole;
        *sum = greatest ? larger_whole(*sum, totals[b]) : lesser_whole(*sum, totals[b]);
    }
}

static void step_f16(const Fold *fold, Step step) {
    if (step == GREATEST)
        fold_halves(fold, 0x7c00, true);
    else
        fold_halves(fold, 0x7c00, false);
}

static void step_bf16(const Fold *fold, Step step) {
    if (step == GREATEST)
        fold_halves(fold, 0x7f80, true);
    else
        fold_halves(fold, 0x7f80, false);
}
