// The gradient of running products of a TYPE, for running_sums.c: included for each.

// Of one line: first the sums over later places, then times what is before; no factor is divided by.
static void JOIN(slope_of, TYPE)(const Sums *sums, int64_t line) {
    const int64_t i = line / sums->inner, j = line % sums->inner, n = sums->length;
    const int64_t first = sums->backwards ? n - 1 : 0;
    const int64_t step = sums->backwards ? -sums->inner : sums->inner;
    const int64_t start = (i * n + first) * sums->inner + j;
    const TYPE *g = (const TYPE *)(const void *)sums->grad + start;
    const TYPE *x = (const TYPE *)(const void *)sums->x + start;
    TYPE *out = (TYPE *)(void *)sums->out + start, later = 0, before = 1;
    for (int64_t k = n - 1; k >= 0; k--) {
        const TYPE below = k + 1 < n ? x[(k + 1) * step] * later : 0;
        const int64_t place = sums->exclusive ? k + 1 : k;
        later = place < n ? g[place * step] + below : below;
        out[k * step] = later;
    }
    for (int64_t k = 0; k < n; k++) {
        out[k * step] *= before;
        before *= x[k * step];
    }
}

static void JOIN(slope, TYPE)(const Sums *sums, int64_t line, int64_t lines) {
    for (int64_t i = 0; i < lines; i++) JOIN(slope_of, TYPE)(sums, line + i);
}

#undef TYPE
