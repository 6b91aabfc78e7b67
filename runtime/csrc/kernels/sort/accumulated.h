// Running sums and products of a TYPE, computed in type WORK, for running_sums.c: included for each.

#define OF(NAME) JOIN(NAME, TYPE)

// The numbers of lines that follow the first of each; `product` and `exclusive` are constants.
INLINE void OF(add_numbers)(
    const TYPE *x, TYPE *out, WORK *totals, int64_t lines, const bool product,
    const bool exclusive) {
    INDEPENDENT_FOR (int64_t c = 0; c < lines; c++) {
        const WORK before = totals[c], value = (WORK)x[c];
        const WORK total = product ? before * value : before + value;
        out[c] = (TYPE)(exclusive ? before : total);
        totals[c] = total;
    }
}

// The numbers of a single line that follow the first; `product` and `exclusive` are constants.
INLINE void OF(add_line)(
    const TYPE *x, TYPE *out, WORK total, int64_t step, int64_t n, const bool product,
    const bool exclusive) {
    for (int64_t k = 1; k < n; k++) {
        const WORK before = total, value = (WORK)x[k * step];
        total = product ? before * value : before + value;
        out[k * step] = (TYPE)(exclusive ? before : total);
    }
}

static void OF(accumulate_line)(
    const Sums *sums, const TYPE *x, TYPE *out, WORK total, int64_t step) {
    const int64_t n = sums->length;
    if (sums->product && sums->exclusive)
        OF(add_line)(x, out, total, step, n, true, true);
    else if (sums->product)
        OF(add_line)(x, out, total, step, n, true, false);
    else if (sums->exclusive)
        OF(add_line)(x, out, total, step, n, false, true);
    else
        OF(add_line)(x, out, total, step, n, false, false);
}

// Lines side by side, whose elements are `step` apart, from the first of each on.
static void OF(accumulate)(
    const Sums *sums, const char *first, char *to_first, int64_t step, int64_t lines) {
    const int64_t n = sums->length;
    const TYPE *x = (const TYPE *)first;
    TYPE *out = (TYPE *)to_first;
    const bool product = sums->product, exclusive = sums->exclusive;
    WORK totals[MOST_LINES];
    for (int64_t c = 0; c < lines; c++) {
        totals[c] = (WORK)x[c];
        out[c] = (TYPE)(exclusive ? (WORK)product : totals[c]);
    }
    if (lines == 1) {
        OF(accumulate_line)(sums, x, out, totals[0], step);
        return;
    }
    for (int64_t k = 1; k < n; k++) {
        const TYPE *from = x + k * step;
        TYPE *to = out + k * step;
        if (product && exclusive)
            OF(add_numbers)(from, to, totals, lines, true, true);
        else if (product)
            OF(add_numbers)(from, to, totals, lines, true, false);
        else if (exclusive)
            OF(add_numbers)(from, to, totals, lines, false, true);
        else
            OF(add_numbers)(from, to, totals, lines, false, false);
    }
}

#undef OF
#undef TYPE
#undef WORK
