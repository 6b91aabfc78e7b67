// Elements of a TYPE of two to four tensors that take turns in a whole, for join.c: included for each.

INLINE void JOIN(weave, TYPE)(
    TYPE *restrict whole, TYPE *const *parts, const int64_t count, const bool joins, int64_t rows) {
    TYPE *restrict a = parts[0], *restrict b = parts[1];
    TYPE *restrict c = parts[count > 2 ? 2 : 0], *restrict d = parts[count > 3 ? 3 : 0];
    if (joins)
        for (int64_t i = 0; i < rows; i++) {
            whole[count * i] = a[i];
            whole[count * i + 1] = b[i];
            if (count > 2) whole[count * i + 2] = c[i];
            if (count > 3) whole[count * i + 3] = d[i];
        }
    else
        for (int64_t i = 0; i < rows; i++) {
            a[i] = whole[count * i];
            b[i] = whole[count * i + 1];
            if (count > 2) c[i] = whole[count * i + 2];
            if (count > 3) d[i] = whole[count * i + 3];
        }
}

static void JOIN(turns, TYPE)(
    char *bytes, char *const *places, int64_t count, bool joins, int64_t rows) {
    TYPE *whole = (TYPE *)(void *)bytes, *parts[4] = {NULL, NULL, NULL, NULL};
    for (int64_t i = 0; i < count; i++) parts[i] = (TYPE *)(void *)places[i];
    switch (count + (joins ? 4 : 0)) {
        case 2: JOIN(weave, TYPE)(whole, parts, 2, false, rows); break;
        case 3: JOIN(weave, TYPE)(whole, parts, 3, false, rows); break;
        case 4: JOIN(weave, TYPE)(whole, parts, 4, false, rows); break;
        case 6: JOIN(weave, TYPE)(whole, parts, 2, true, rows); break;
        case 7: JOIN(weave, TYPE)(whole, parts, 3, true, rows); break;
        default: JOIN(weave, TYPE)(whole, parts, 4, true, rows); break;
    }
}

#undef TYPE
