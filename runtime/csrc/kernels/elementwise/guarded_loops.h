// Loops over elements of a TYPE, by functions that are for usual ones only, for guarded.h: included
// for each.  Whole blocks are computed, whatever the rest of the last one is.

#define OF(NAME) JOIN(NAME, TYPE)

typedef bool (*OF(UsualUnary))(TYPE x);
typedef TYPE (*OF(Unary))(TYPE x);
typedef bool (*OF(UsualBinary))(TYPE a, TYPE b);
typedef TYPE (*OF(Binary))(TYPE a, TYPE b);

INLINE void OF(guarded_unary)(
    char *out, char *const *in, const int64_t *steps, int64_t n, const OF(UsualUnary) usual,
    const OF(Unary) fast, const OF(Unary) exact) {
    TYPE xs[GUARDED] = {0}, ys[GUARDED];
    for (int64_t begin = 0; begin < n; begin += GUARDED) {
        const int64_t count = n - begin < GUARDED ? n - begin : GUARDED, size = sizeof(TYPE);
        copy_elements((char *)xs, size, in[0] + begin * steps[1], steps[1], count, size);
        INTEGER_AS_WIDE_AS(TYPE) unusual = 0;
        for (int64_t i = 0; i < GUARDED; i++) {
            const TYPE x = xs[i];
            unusual |= !usual(x);
            ys[i] = fast(x);
        }
        for (int64_t i = 0; unusual && i < count; i++)
            if (!usual(xs[i])) ys[i] = exact(xs[i]);
        copy_elements(out + begin * steps[0], steps[0], (const char *)ys, size, count, size);
    }
}

INLINE void OF(guarded_binary)(
    char *out, char *const *in, const int64_t *steps, int64_t n, const OF(UsualBinary) usual,
    const OF(Binary) fast, const OF(Binary) exact) {
    TYPE as[GUARDED] = {0}, bs[GUARDED] = {0}, ys[GUARDED];
    for (int64_t begin = 0; begin < n; begin += GUARDED) {
        const int64_t count = n - begin < GUARDED ? n - begin : GUARDED, size = sizeof(TYPE);
        copy_elements((char *)as, size, in[0] + begin * steps[1], steps[1], count, size);
        copy_elements((char *)bs, size, in[1] + begin * steps[2], steps[2], count, size);
        INTEGER_AS_WIDE_AS(TYPE) unusual = 0;
        for (int64_t i = 0; i < GUARDED; i++) {
            const TYPE a = as[i], b = bs[i];
            unusual |= !usual(a, b);
            ys[i] = fast(a, b);
        }
        for (int64_t i = 0; unusual && i < count; i++)
            if (!usual(as[i], bs[i])) ys[i] = exact(as[i], bs[i]);
        copy_elements(out + begin * steps[0], steps[0], (const char *)ys, size, count, size);
    }
}

#undef OF
#undef TYPE
