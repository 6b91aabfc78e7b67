// Transforms of as many lines at once as a REAL has numbers, for fourier.c: included for each REAL.

#define NUMBER JOIN(Number, REAL)
#define OF(NAME) JOIN(NAME, REAL)

typedef struct { REAL re, im; } NUMBER;

static inline NUMBER OF(plus)(NUMBER a, NUMBER b) { return (NUMBER){a.re + b.re, a.im + b.im}; }
static inline NUMBER OF(minus)(NUMBER a, NUMBER b) { return (NUMBER){a.re - b.re, a.im - b.im}; }
static inline NUMBER OF(times)(Root a, NUMBER b) {
    return (NUMBER){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

// to[r * m] = the sum of parts[q] times the root of order p to the power of q * r.
static inline void OF(few)(
    const Fourier *state, const NUMBER *parts, NUMBER *to, int64_t p, int64_t m) {
    if (p == 2) {
        to[0] = OF(plus)(parts[0], parts[1]);
        to[m] = OF(minus)(parts[0], parts[1]);
        return;
    }
    if (p == 4) {
        const NUMBER even = OF(plus)(parts[0], parts[2]), odd = OF(plus)(parts[1], parts[3]);
        const NUMBER difference = OF(minus)(parts[0], parts[2]);
        const NUMBER other = OF(minus)(parts[1], parts[3]), turned = {other.im, -other.re};
        to[0] = OF(plus)(even, odd);
        to[m] = OF(plus)(difference, turned);
        to[2 * m] = OF(minus)(even, odd);
        to[3 * m] = OF(minus)(difference, turned);
        return;
    }
    const int64_t step = state->length / p;
    for (int64_t r = 0; r < p; r++) {
        if (p > LARGE_FACTOR && pool_is_stopped()) return;
        NUMBER total = parts[0];
        for (int64_t q = 1, at = r; q < p; q++, at = at + r < p ? at + r : at + r - p)
            total = OF(plus)(total, OF(times)(state->roots[at * step], parts[q]));
        to[r * m] = total;
    }
}

// to[k] = the sum of from[j * step] * root ** (j * k) for j, k < n; `spare` has room for n numbers,
// `parts` for the largest factor.
static void OF(transform)(
    const Fourier *state, const NUMBER *from, int64_t step, NUMBER *to, NUMBER *spare,
    NUMBER *parts, int64_t n) {
    const int64_t p = some_factor(n), m = n / p, stride = state->length / n;
    if (m == 1) {
        for (int64_t q = 0; q < p; q++) parts[q] = from[q * step];
        OF(few)(state, parts, to, p, 1);
        return;
    }
    for (int64_t q = 0; q < p; q++)
        OF(transform)(state, from + q * step, step * p, spare + q * m, to + q * m, parts, m);
    for (int64_t k = 0; k < m; k++) {
        parts[0] = spare[k];
        for (int64_t q = 1; q < p; q++)
            parts[q] = OF(times)(state->roots[q * k * stride], spare[q * m + k]);
        OF(few)(state, parts, to + k, p, m);
    }
}

// Number `lane` of each of the numbers of a line.  The inverse is the transform of the conjugate,
// conjugated.
static void OF(read_line)(const Fourier *state, const char *x, NUMBER *line, int64_t lane) {
    enum { LINES = sizeof(REAL) / sizeof(double) };
    double *const parts = (double *)line + lane;
    const int64_t n = state->length, step = state->x.strides[state->axis];
    const int last = state->x.rank - 1;
    const bool complex_numbers = state->x.dims[last] == 2;
    for (int64_t i = 0; i < n; i++) {
        double re = 0, im = 0;
        if (i < state->read) {
            const double factor = state->window ? state->window[i] : 1;
            re = factor * *(const float *)(x + i * step);
            if (complex_numbers)
                im = factor * *(const float *)(x + i * step + state->x.strides[last]);
        }
        parts[2 * i * LINES] = re;
        parts[(2 * i + 1) * LINES] = state->inverse ? -im : im;
    }
    if (!state->inverse || !state->onesided) return;
    parts[LINES] = 0;
    if (n % 2 == 0) parts[(n + 1) * LINES] = 0;
    for (int64_t i = n / 2 + 1; i < n; i++) {
        parts[2 * i * LINES] = parts[2 * (n - i) * LINES];
        parts[(2 * i + 1) * LINES] = -parts[(2 * (n - i) + 1) * LINES];
    }
}

static void OF(write_line)(const Fourier *state, const NUMBER *line, char *y, int64_t lane) {
    enum { LINES = sizeof(REAL) / sizeof(double) };
    const double *const parts = (const double *)line + lane;
    const int64_t step = state->y.strides[state->axis];
    const int last = state->y.rank - 1;
    const double scale = state->inverse ? 1.0 / (double)state->length : 1;
    for (int64_t i = 0; i < state->y.dims[state->axis]; i++) {
        *(float *)(y + i * step) = (float)(parts[2 * i * LINES] * scale);
        if (state->y.dims[last] == 1) continue;
        const double imaginary = parts[(2 * i + 1) * LINES] * scale;
        *(float *)(y + i * step + state->y.strides[last]) =
            (float)(state->inverse ? -imaginary : imaginary);
    }
}

// Lines begin .. end - 1.  Where there are fewer than a REAL has numbers, the last one is repeated.
static void OF(do_lines)(const Fourier *state, int64_t begin, int64_t end, void *own) {
    enum { LINES = sizeof(REAL) / sizeof(double) };
    NUMBER *line = own, *result = line + state->length, *spare = result + state->length;
    NUMBER *parts = spare + state->length;
    for (; begin < end; begin += LINES) {
        for (int64_t lane = 0; lane < LINES; lane++) {
            const int64_t number = begin + lane < end ? begin + lane : end - 1;
            OF(read_line)(state, state->x.data + place_of(state, &state->x, number), line, lane);
        }
        OF(transform)(state, line, 1, result, spare, parts, state->length);
        for (int64_t lane = 0; lane < LINES && begin + lane < end; lane++)
            OF(write_line)(
                state, result, state->y.data + place_of(state, &state->y, begin + lane), lane);
    }
}

#undef NUMBER
#undef OF
