// What is at a place, of a TYPE, and what is combined with it, in type WORK, for places.c: included for
// each.

#define OF(NAME) JOIN(NAME, TYPE)

static void OF(sum)(char *to, const char *from, int64_t count) {
    TYPE *a = (TYPE *)to;
    const TYPE *b = (const TYPE *)from;
    for (int64_t i = 0; i < count; i++) a[i] = (TYPE)((WORK)a[i] + (WORK)b[i]);
}

static void OF(product)(char *to, const char *from, int64_t count) {
    TYPE *a = (TYPE *)to;
    const TYPE *b = (const TYPE *)from;
    for (int64_t i = 0; i < count; i++) a[i] = (TYPE)((WORK)a[i] * (WORK)b[i]);
}

static void OF(lesser)(char *to, const char *from, int64_t count) {
    TYPE *a = (TYPE *)to;
    const TYPE *b = (const TYPE *)from;
    for (int64_t i = 0; i < count; i++) a[i] = LESSER(a[i], b[i]);
}

static void OF(larger)(char *to, const char *from, int64_t count) {
    TYPE *a = (TYPE *)to;
    const TYPE *b = (const TYPE *)from;
    for (int64_t i = 0; i < count; i++) a[i] = LARGER(a[i], b[i]);
}

#undef OF
#undef TYPE
#undef WORK
