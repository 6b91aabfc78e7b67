// Elements of a TYPE that move from one plane to another, for moves.c: included for each.

// Elements that stand in turn go to two lines.
static void JOIN(part, TYPE)(const char *from, char *to, int64_t to_row, int64_t count) {
    const TYPE *pairs = (const TYPE *)from;
    TYPE *first = (TYPE *)to, *second = (TYPE *)(to + to_row);
    for (int64_t i = 0; i < count; i++) {
        first[i] = pairs[2 * i];
        second[i] = pairs[2 * i + 1];
    }
}

// One of every few elements of a line.
INLINE void JOIN(pick, TYPE)(const char *from, char *to, int64_t count, const int64_t step) {
    const TYPE *line = (const TYPE *)from;
    TYPE *picked = (TYPE *)to;
    INDEPENDENT_FOR (int64_t i = 0; i < count; i++) picked[i] = line[step * i];
}

static void JOIN(plane, TYPE)(
    const char *from, char *to, int64_t rows, int64_t columns, int64_t from_row,
    int64_t from_column, int64_t to_row, int64_t to_column) {
    const int64_t size = sizeof(TYPE);
    if (rows == 2 && from_row == size && from_column == 2 * size && to_column == size) {
        JOIN(part, TYPE)(from, to, to_row, columns);
        return;
    }
    if (rows == 1 && to_column == size) {
        switch (from_column == from_column / size * size ? from_column / size : 0) {
            case 2: JOIN(pick, TYPE)(from, to, columns, 2); return;
            case 3: JOIN(pick, TYPE)(from, to, columns, 3); return;
            case 4: JOIN(pick, TYPE)(from, to, columns, 4); return;
        }
    }
    const int64_t wide = rows == 1 ? columns : BLOCK;
    for (int64_t top = 0; top < rows; top += BLOCK)
        for (int64_t left = 0; left < columns; left += wide) {
            const int64_t bottom = top + BLOCK < rows ? top + BLOCK : rows;
            const int64_t right = left + wide < columns ? left + wide : columns;
            for (int64_t i = top; i < bottom; i++)
                for (int64_t j = left; j < right; j++)
                    *(TYPE *)(to + i * to_row + j * to_column) =
                        *(const TYPE *)(from + i * from_row + j * from_column);
        }
}

#undef TYPE
