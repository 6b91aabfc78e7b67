// Elements of one operand or the other, of a TYPE that has their size, for maps.c: included for each.

INLINE void JOIN(NAME, steps)(
    char *out, char *const *in, int64_t s0, int64_t s1, int64_t s2, int64_t s3, int64_t n) {
    const char *chosen = in[0], *left = in[1], *right = in[2];
    INDEPENDENT_FOR (int64_t i = 0; i < n; i++) {
        const TYPE a = *(const TYPE *)(left + i * s2);
        const TYPE b = *(const TYPE *)(right + i * s3);
        const TYPE which = (TYPE)(0 - (TYPE)(*(const uint8_t *)(chosen + i * s1) != 0));
        *(TYPE *)(out + i * s0) = (TYPE)((a & which) | (b & ~which));
    }
}

// Where one choice holds for all: a copy, of what may lie where the result does.
INLINE void JOIN(NAME, copy)(
    char *out, const char *from, int64_t step_out, int64_t step, int64_t n) {
    const int64_t size = sizeof(TYPE);
    if (step_out == size && step == size)
        memmove(out, from, (size_t)(n * size));
    else
        INDEPENDENT_FOR (int64_t i = 0; i < n; i++)
            *(TYPE *)(out + i * step_out) = *(const TYPE *)(from + i * step);
}

static void NAME(char *out, char *const *in, const int64_t *steps, int64_t n, const double *p) {
    (void)p;
    const int64_t size = sizeof(TYPE), s2 = steps[2], s3 = steps[3];
    if (steps[1] == 0) {
        const int which = *in[0] ? 1 : 2;
        JOIN(NAME, copy)(out, in[which], steps[0], steps[1 + which], n);
    } else if (steps[0] != size || steps[1] != 1)
        JOIN(NAME, steps)(out, in, steps[0], steps[1], s2, s3, n);
    else if (s2 == size && s3 == size)
        JOIN(NAME, steps)(out, in, size, 1, size, size, n);
    else if (s2 == size && s3 == 0)
        JOIN(NAME, steps)(out, in, size, 1, size, 0, n);
    else if (s2 == 0 && s3 == size)
        JOIN(NAME, steps)(out, in, size, 1, 0, size, n);
    else
        JOIN(NAME, steps)(out, in, size, 1, s2, s3, n);
}

#undef NAME
#undef TYPE
