// Panels of words, and what becomes of their products: for processors that have no products of four
// bytes.  Both factors are less their zero points before they are multiplied.
#ifndef POPC_WORD_PANELS_H
#define POPC_WORD_PANELS_H

#include "byte_panels.h"
#include "word_tiles.h"

enum { WORD_BLOCK = 4 * WORD_ROWS };  // rows that are finished together

// Bytes of a right matrix of words: [panel][pair][BYTE_COLUMNS][2].
static inline int64_t word_matrix_bytes(const BytePanels *panels) {
    return panels->panels * word_place(padded(panels->k, 2), 0) * (int64_t)sizeof(int16_t);
}

// Words of a row of the left matrix.
static inline int64_t word_line(const BytePanels *panels) { return padded(panels->k + 1, 32); }

// Packs panel number `panel` of the right matrix, from bytes that lie as those of `pack_panel` do.
void ISA(pack_word_panel)(
    const BytePanels *panels, const uint8_t *from, int64_t line, int64_t along, int64_t panel,
    int16_t *matrix);

// place = rows by one panel, column 0 of which is number `column` among those of the operands.  There
// are WORD_BLOCK lines, of which place.rows are wanted.
void ISA(multiply_word_panel)(
    const BytePanels *panels, WordTile tile, const int16_t *const *lines, int64_t column,
    BytePlace place);

#endif
