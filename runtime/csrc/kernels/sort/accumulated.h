// Running sums and products of a TYPE, computed in type WORK, for running_sums.c: included for each.

#define OF(NAME) JOIN(NAME, TYPE)

static void OF(accumulate)(const Sums *sums, int64_t line) {
    const int64_t i = line / sums->inner, j = line % sums->inner;
    const int64_t n = sums->length, first = sums->backwards ? n - 1 : 0;
    const int64_t step = sums->backwards ? -sums->inner : sums->inner;
    const int64_t start = (i * n + first) * sums->inner + j;
    const TYPE *x = (const TYPE *)sums->x + start;
    TYPE *out = (TYPE *)sums->out + start;
    WORK total = sums->product ? 1 : 0;
    for (int64_t k = 0; k < n; k++, x += k < n ? step : 0, out += k < n ? step : 0) {
        const WORK value = (WORK)*x, before = total;
        if (sums->product)
            total = total * value;
        else
            total = k ? total + value : value;
        *out = (TYPE)(sums->exclusive ? before : total);
    }
}

#undef OF
#undef TYPE
#undef WORK
