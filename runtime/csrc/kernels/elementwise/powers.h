// Powers of integers of a TYPE, which wrap around as WRAPPED does; a negative exponent gives the
// reciprocal rounded toward zero.  Included for each type, with the name of the loop, POWERS.

static inline TYPE JOIN(power, TYPE)(TYPE base, TYPE exponent) {
    if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
    WRAPPED result = 1, factor = (WRAPPED)base;
    for (; exponent > 0; exponent >>= 1, factor *= factor)
        if (exponent & 1) result *= factor;
    return (TYPE)result;
}

#define NAMED_LOOP(...) BINARY_LOOP(__VA_ARGS__)
NAMED_LOOP(JOIN(power_of_each, TYPE), TYPE, TYPE, JOIN(power, TYPE)(a, b))

// The same power of all: some elements at once, squared for each bit of the exponent.
INLINE void JOIN(power_of_all, TYPE)(
    char *out, const char *in, const int64_t to, const int64_t from, int64_t n, uint64_t exponent) {
    enum { SOME = 64 };
    WRAPPED factors[SOME], results[SOME];
    for (int64_t first = 0, count; first < n; first += count) {
        count = n - first < SOME ? n - first : SOME;
        for (int64_t i = 0; i < SOME; i++) results[i] = factors[i] = 1;
        for (int64_t i = 0; i < count; i++)
            factors[i] = *(const WRAPPED *)(in + (first + i) * from);
        for (uint64_t bits = exponent; bits; bits >>= 1) {
            if (bits & 1)
                for (int64_t i = 0; i < SOME; i++) results[i] *= factors[i];
            for (int64_t i = 0; bits > 1 && i < SOME; i++) factors[i] *= factors[i];
        }
        for (int64_t i = 0; i < count; i++) *(WRAPPED *)(out + (first + i) * to) = results[i];
    }
}

// Squares and cubes, which most powers are, of elements side by side.
static bool JOIN(short_power, TYPE)(WRAPPED *out, const WRAPPED *in, int64_t n, TYPE exponent) {
    if (exponent == 2)
        INDEPENDENT_FOR (int64_t i = 0; i < n; i++) out[i] = in[i] * in[i];
    else if (exponent == 3)
        INDEPENDENT_FOR (int64_t i = 0; i < n; i++) out[i] = in[i] * in[i] * in[i];
    return exponent == 2 || exponent == 3;
}

static void POWERS(char *out, char *const *in, const int64_t *steps, int64_t n, const double *p) {
    const TYPE exponent = *(const TYPE *)in[1];
    const int64_t size = sizeof(TYPE);
    const bool beside = steps[0] == size && steps[1] == size;
    if (steps[2] != 0 || exponent < 0)
        JOIN(power_of_each, TYPE)(out, in, steps, n, p);
    else if (!beside)
        JOIN(power_of_all, TYPE)(out, in[0], steps[0], steps[1], n, (uint64_t)exponent);
    else if (!JOIN(short_power, TYPE)((WRAPPED *)out, (const WRAPPED *)in[0], n, exponent))
        JOIN(power_of_all, TYPE)(out, in[0], size, size, n, (uint64_t)exponent);
}

#undef NAMED_LOOP
#undef POWERS
#undef TYPE
#undef WRAPPED
