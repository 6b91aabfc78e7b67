// Elements of a TYPE that move from one plane to another, for moves.c: included for each.

static void JOIN(plane, TYPE)(
    const char *from, char *to, int64_t rows, int64_t columns, int64_t from_row,
    int64_t from_column, int64_t to_row, int64_t to_column) {
    for (int64_t top = 0; top < rows; top += BLOCK)
        for (int64_t left = 0; left < columns; left += BLOCK) {
            const int64_t bottom = top + BLOCK < rows ? top + BLOCK : rows;
            const int64_t right = left + BLOCK < columns ? left + BLOCK : columns;
            for (int64_t i = top; i < bottom; i++)
                for (int64_t j = left; j < right; j++)
                    *(TYPE *)(to + i * to_row + j * to_column) =
                        *(const TYPE *)(from + i * from_row + j * from_column);
        }
}

#undef TYPE
