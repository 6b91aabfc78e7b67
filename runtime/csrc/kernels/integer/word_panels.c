#include "word_panels.h"

void ISA(pack_word_panel)(
    const BytePanels *panels, const uint8_t *from, int64_t line, int64_t along, int64_t panel,
    int16_t *matrix) {
    const ByteSide *side = &panels->right;
    const int64_t first = panel * BYTE_COLUMNS, k = panels->k, pairs = ceil_div(k, 2);
    const int64_t columns = lesser(panels->n - first, BYTE_COLUMNS);
    int16_t *to = matrix + panel * word_place(2 * pairs, 0);
    if (columns < BYTE_COLUMNS || k % 2)
        memset(to, 0, (size_t)word_place(2 * pairs, 0) * sizeof(int16_t));
    for (int64_t j = 0; j < columns; j++) {
        const int32_t zero = zero_point(side, first + j);
        for (int64_t odd = 0; odd < 2; odd++)
            ISA(widen_bytes)(
                from + j * line + odd * along, 2 * along, (k + 1 - odd) / 2, side->is_signed, zero,
                to + word_place(odd, j), 2 * BYTE_COLUMNS);
    }
}

void ISA(multiply_word_panel)(
    const BytePanels *panels, WordTile tile, const int16_t *const *lines, int64_t column,
    BytePlace place) {
    int32_t sums[WORD_BLOCK * BYTE_COLUMNS] __attribute__((aligned(64)));
    ByteColumns columns = {.base = {0}};
    for (int64_t j = 0; panels->bias && j < place.columns; j++)
        columns.base[j] = (int32_t)(0u - (uint32_t)panels->bias[column + j]);
    ISA(find_columns)(&panels->epilogue, column, place.columns, &columns);
    for (int64_t i = 0; i < place.rows; i += WORD_ROWS) {
        tile.lines = lines + i;
        tile.sums = sums + i * BYTE_COLUMNS;
        ISA(multiply_words)(&tile, place.rows - i, place.columns);
    }
    ISA(finish_bytes)(&panels->epilogue, &columns, sums, NULL, place);
}
