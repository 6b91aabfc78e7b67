// Places of extremes in lines and columns of a TYPE, for extremes.c: included for each type.

#define OF(NAME) JOIN(NAME, TYPE)

INLINE TYPE OF(extreme)(const TYPE *x, int64_t n, const bool largest) {
    TYPE strips[STRIPS], best = x[0];
    int64_t i = 0;
    if (n >= STRIPS) {
        memcpy(strips, x, sizeof(strips));
        for (i = STRIPS; i + STRIPS <= n; i += STRIPS)
            for (int s = 0; s < STRIPS; s++) {
                const TYPE v = x[i + s], t = strips[s];
                strips[s] = GOES_BEFORE(v, t) ? v : t;
            }
        for (int s = 0; s < STRIPS; s++)
            if (GOES_BEFORE(strips[s], best)) best = strips[s];
    }
    for (; i < n; i++)
        if (GOES_BEFORE(x[i], best)) best = x[i];
    return best;
}

INLINE bool OF(holds)(const TYPE *x, TYPE wanted, int64_t n) {
    TYPE found = 0;
    const bool nan = wanted != wanted;
    for (int64_t i = 0; i < n; i++) found += (TYPE)((x[i] == wanted) | ((x[i] != x[i]) & nan));
    return found != 0;
}

static int64_t OF(place)(const TYPE *x, TYPE wanted, int64_t n, bool backwards) {
    int64_t i = backwards ? n - 1 : 0;
    const int64_t step = backwards ? -1 : 1;
    if (!backwards)
        while (i + STRIPS <= n && !OF(holds)(x + i, wanted, STRIPS)) i += STRIPS;
    else
        while (i + 1 >= STRIPS && !OF(holds)(x + i + 1 - STRIPS, wanted, STRIPS)) i -= STRIPS;
    const bool nan = wanted != wanted;
    while (!(x[i] == wanted || (nan && x[i] != x[i]))) i += step;
    return i;
}

INLINE int64_t OF(in_line)(const TYPE *x, int64_t n, bool backwards, const bool largest) {
    return OF(place)(x, OF(extreme)(x, n, largest), n, backwards);
}

// Elements of a column are `step` apart.
INLINE void OF(columns)(
    const Extremes *state, const TYPE *x, int64_t step, int64_t width, int64_t *places,
    const bool largest) {
    const int64_t n = state->length;
    const int64_t first = state->backwards ? n - 1 : 0;
    TYPE best[LINES];
    int32_t where[LINES];
    for (int64_t j = 0; j < width; j++) best[j] = x[first * step + j], where[j] = (int32_t)first;
    for (int64_t k = 1; k < n; k++) {
        const int64_t place = state->backwards ? n - 1 - k : k;
        const TYPE *row = x + place * step;
        for (int64_t j = 0; j < width; j++) {
            const TYPE v = row[j], t = best[j];
            const bool before = GOES_BEFORE(v, t);
            best[j] = before ? v : t;
            where[j] = before ? (int32_t)place : where[j];
        }
    }
    for (int64_t j = 0; j < width; j++) places[j] = where[j];
}

INLINE void OF(find_in)(
    const Extremes *state, const char *from, int64_t step, int64_t width, int64_t *places,
    const bool largest) {
    const TYPE *x = (const TYPE *)from;
    if (step > 1)
        OF(columns)(state, x, step, width, places, largest);
    else
        *places = _Generic((TYPE){0}, float: in_long_line, default: OF(in_line))(
            x, state->length, state->backwards, largest);
}

static void OF(find)(
    const Extremes *state, const char *from, int64_t step, int64_t width, int64_t *places) {
    if (state->largest)
        OF(find_in)(state, from, step, width, places, true);
    else
        OF(find_in)(state, from, step, width, places, false);
}

#undef OF
#undef TYPE
