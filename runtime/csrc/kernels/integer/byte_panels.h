// Bytes packed into panels, and the products of rows of panels.
#ifndef POPC_BYTE_PANELS_H
#define POPC_BYTE_PANELS_H

#include "byte_epilogue.h"
#include "pair_order.h"
#include "../matmul/gemm.h"

// The bytes of one side: zero points of its rows (left) or columns (right), and what makes its bytes
// those of a panel.
typedef struct {
    const uint8_t *zero;  // NULL: zero
    int64_t zero_line;  // bytes from line to line; 0: all have the same
    bool is_final;  // zero points are known when the kernel is prepared
    bool is_signed;
    uint8_t flip;  // 128 if the panel wants the other kind of bytes
} ByteSide;

// What all products by one right matrix have in common.
typedef struct {
    int64_t n, k;
    int64_t groups, panels;  // of four numbers along the sum; of BYTE_COLUMNS columns
    ByteSide left, right;
    bool has_right_zero;  // those of panels, which differ from those of the operand
    const int32_t *bias;  // of columns; NULL: there is none
    ByteTile tile;
    bool is_ordered;  // panels have orders of their groups
    ByteForm form;
    bool in_words;  // what has many rows is multiplied as words: see word_panels.h
    ByteEpilogue epilogue;
} BytePanels;

// The zero point of a line of an operand.
static inline int32_t zero_point(const ByteSide *side, int64_t line) {
    if (!side->zero) return 0;
    const uint8_t byte = side->zero[line * side->zero_line];
    return side->is_signed ? (int8_t)byte : byte;
}

// Bytes of the packed right matrix; the sums of its columns lie behind it, and the orders of panels.
static inline int64_t matrix_bytes(const BytePanels *panels) {
    const int64_t order = panels->is_ordered ? ISA(order_bytes)(panels->groups) : 0;
    return panels->panels * (BYTE_COLUMNS * (panels->groups + 1) * 4 + order);
}

static inline int32_t *column_sums(const BytePanels *panels, const int8_t *matrix) {
    return (int32_t *)(matrix + panels->panels * BYTE_COLUMNS * panels->groups * 4);
}

static inline GroupOrder *order_of(const BytePanels *panels, const int8_t *matrix, int64_t panel) {
    const int32_t *behind_sums = column_sums(panels, matrix) + panels->panels * BYTE_COLUMNS;
    return (GroupOrder *)((char *)behind_sums + panel * ISA(order_bytes)(panels->groups));
}

// Bytes of so many packed rows, and of as many sums.
static inline int64_t row_bytes(const BytePanels *panels, int64_t rows) {
    return padded(rows, BYTE_ROWS) * (panels->groups + 1) * 4;
}

// Reads the zero points of both sides, of `lines` rows at most, an int32 bias, the form of tiles,
// and the epilogue.  False if operands are no bytes, or other things than these.
bool ISA(read_panels)(
    BytePanels *panels, Params *params, const Tensor *left, const Tensor *right, DType type,
    int64_t lines, int64_t columns);

// Packs panel number `panel` of the right matrix, whose columns lie `line` bytes apart, the first at
// `from`, and their numbers `along` bytes.
void ISA(pack_panel)(
    const BytePanels *panels, const uint8_t *from, int64_t line, int64_t along, int64_t panel,
    int8_t *matrix);

// Packed rows of the left matrix, or rows where they lie, and what zero points of columns are
// multiplied with.
typedef struct {
    uint8_t *data;
    int32_t *rests;  // NULL where rows lie elsewhere
    int64_t first;  // number of the first row
    int64_t line;  // bytes from row to row where they lie; 0: packed
} LeftRows;

// Whether rows need not be packed: nobody asks for their sums.  Bytes have to be those of panels.
static inline bool takes_lines(const BytePanels *panels) { return !panels->has_right_zero; }

// Lines of bytes that become those of panels, in memory that goes on to a multiple of 64 bytes.
static inline void flip_line(const BytePanels *panels, uint8_t *line, int64_t count) {
    const uint8_t flip = panels->left.flip;  // which the bytes that are written do not change
    for (int64_t i = 0; flip && i < count; i += 64)
        for (int k = 0; k < 64; k++) line[i + k] ^= flip;
}

// Those of so many rows in `row_bytes` of memory.
static inline LeftRows rows_in(
    const BytePanels *panels, void *memory, int64_t first, int64_t rows) {
    uint8_t *data = memory;
    return (LeftRows){
        data, (int32_t *)(data + padded(rows, BYTE_ROWS) * panels->groups * 4), first, 0};
}

// Packs rows number start .. start + count - 1 of `rows`, whose first lies at `from`.
void ISA(pack_rows)(
    const BytePanels *panels, const uint8_t *from, int64_t line, int64_t along, int64_t start,
    int64_t count, LeftRows rows);

// place = rows by one panel of the right matrix.  Column 0 of the matrix is number `column` among
// those of the operands.
void ISA(multiply_panel)(
    const BytePanels *panels, const int8_t *matrix, int64_t panel, LeftRows rows, int64_t column,
    BytePlace place);

#endif
