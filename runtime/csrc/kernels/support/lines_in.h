// Lines of an ELEMENT that become columns, and columns that become lines, for lines.h: included for each.

#define OF(NAME) JOIN(NAME, ELEMENT)

typedef ELEMENT OF(Four) __attribute__((vector_size(4 * sizeof(ELEMENT))));
typedef ELEMENT OF(LooseFour)
    __attribute__((vector_size(4 * sizeof(ELEMENT)), aligned(1), may_alias));
typedef ELEMENT OF(Loose) __attribute__((aligned(1), may_alias));

// Four lines of four become four columns, of which the first `kept` are stored.
INLINE void OF(turn_four)(
    const char *from, int64_t apart, char *to, int64_t to_apart, const int kept) {
    OF(Four) lines[4];
    for (int i = 0; i < 4; i++) lines[i] = *(const OF(LooseFour) *)(from + i * apart);
    const OF(Four) ab = __builtin_shufflevector(lines[0], lines[1], 0, 4, 1, 5);
    const OF(Four) ab_high = __builtin_shufflevector(lines[0], lines[1], 2, 6, 3, 7);
    const OF(Four) cd = __builtin_shufflevector(lines[2], lines[3], 0, 4, 1, 5);
    const OF(Four) cd_high = __builtin_shufflevector(lines[2], lines[3], 2, 6, 3, 7);
    lines[0] = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
    lines[1] = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    lines[2] = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
    lines[3] = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
    for (int i = 0; i < kept; i++) *(OF(LooseFour) *)(to + i * to_apart) = lines[i];
}

// One by one: to[i][j] = from[j][i].
INLINE void OF(turn_rest)(
    const char *from, int64_t apart, char *to, int64_t to_apart, int64_t lines, int64_t n) {
    for (int64_t j = 0; j < lines; j++)
        for (int64_t i = 0; i < n; i++)
            *(OF(Loose) *)(to + i * to_apart + j * (int64_t)sizeof(ELEMENT)) =
                *(const OF(Loose) *)(from + j * apart + i * (int64_t)sizeof(ELEMENT));
}

// At least four lines of at least four; the last squares reach back, and write again what is there.
static inline void OF(turn_squares)(
    const char *from, int64_t apart, char *to, int64_t to_apart, int64_t lines, int64_t n) {
    const int64_t size = (int64_t)sizeof(ELEMENT);
    for (int64_t at = 0; at < lines; at += 4) {
        const int64_t j = lesser(at, lines - 4);
        for (int64_t begin = 0; begin < n; begin += 4) {
            const int64_t i = lesser(begin, n - 4);
            OF(turn_four)(
                from + j * apart + i * size, apart, to + i * to_apart + j * size, to_apart, 4);
        }
    }
}

// Lines of up to three elements, one behind the other, are read as if they had four; the last one by one.
INLINE void OF(turn_few)(const char *from, char *to, int64_t to_apart, int64_t lines, const int n) {
    const int64_t size = (int64_t)sizeof(ELEMENT), apart = n * size;
    int64_t j = 0;
    for (; j + 4 + 3 <= lines; j += 4)
        OF(turn_four)(from + j * apart, apart, to + j * size, to_apart, n);
    OF(turn_rest)(from + j * apart, apart, to + j * size, to_apart, lines - j, n);
}

// The other way, they are written as if they had four, each over the end of the one before.
INLINE void OF(turn_few_back)(
    const char *from, int64_t apart, char *to, int64_t lines, const int n) {
    const int64_t size = (int64_t)sizeof(ELEMENT), to_apart = n * size;
    int64_t j = 0;
    for (; j + 4 + 3 <= lines; j += 4) {
        OF(Four) columns[4];
        for (int i = 0; i < 4; i++)
            columns[i] = *(const OF(LooseFour) *)(from + (i < n ? i : 0) * apart + j * size);
        OF(turn_four)(
            (const char *)columns, (int64_t)sizeof(columns[0]), to + j * to_apart, to_apart, 4);
    }
    OF(turn_rest)(from + j * size, apart, to + j * to_apart, to_apart, n, lines - j);
}

// Columns of lines of `n` elements that begin `apart` bytes from each other.
static inline void OF(to_columns)(
    const char *from, int64_t apart, char *to, int64_t to_apart, int64_t lines, int64_t n) {
    const bool dense = apart == n * (int64_t)sizeof(ELEMENT);
    if (lines >= 4 && n >= 4)
        OF(turn_squares)(from, apart, to, to_apart, lines, n);
    else if (n == 3 && dense)
        OF(turn_few)(from, to, to_apart, lines, 3);
    else if (n == 2 && dense)
        OF(turn_few)(from, to, to_apart, lines, 2);
    else
        OF(turn_rest)(from, apart, to, to_apart, lines, n);
}

// Lines of columns.
static inline void OF(to_lines)(
    const char *from, int64_t apart, char *to, int64_t to_apart, int64_t lines, int64_t n) {
    const bool dense = to_apart == n * (int64_t)sizeof(ELEMENT);
    if (lines >= 4 && n >= 4)
        OF(turn_squares)(from, apart, to, to_apart, n, lines);
    else if (n == 3 && dense)
        OF(turn_few_back)(from, apart, to, lines, 3);
    else if (n == 2 && dense)
        OF(turn_few_back)(from, apart, to, lines, 2);
    else
        OF(turn_rest)(from, apart, to, to_apart, n, lines);
}

#undef OF
#undef ELEMENT
