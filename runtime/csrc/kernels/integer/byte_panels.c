// Bytes become panels, and products of panels become results.
#include "byte_panels.h"

// A right matrix that is not constant is looked through for pairs in every run: it pays from so many
// rows on.
enum { ORDERED_ROWS = 4 * BYTE_ROWS };

// The zero point of a line, for the bytes that panels hold.
static int32_t zero_of(const ByteSide *side, int64_t line) {
    const int32_t zero = zero_point(side, line);
    if (!side->flip) return zero;
    return side->is_signed ? zero + 128 : zero - 128;
}

// -- preparing ------------------------------------------------------------------------------------

// Zero points that are known and 0 are none: kernels that are faster without need not look at models.
static void drop_zeros(ByteSide *side, int64_t lines) {
    for (int64_t line = 0; line < (side->zero_line ? lines : 1); line++)
        if (zero_point(side, line)) return;
    side->zero = NULL;
    side->zero_line = 0;
}

static bool read_side(
    ByteSide *side, Params *params, DType type, int64_t lines, const bool as_signed) {
    const Tensor zero = maybe_tensor(params);
    side->is_signed = type == I8;
    side->flip = side->is_signed == as_signed ? 0 : 128;
    if (type != I8 && type != U8) return false;
    side->is_final = !zero.data || zero.constant;
    if (!zero.data) return true;
    side->zero = (const uint8_t *)zero.data;
    const bool single = element_count(&zero) == 1;
    if (!single && (zero.rank != 1 || zero.dims[0] != lines)) return false;
    side->zero_line = single ? 0 : zero.strides[0];
    if (zero.constant) drop_zeros(side, lines);
    return true;
}

bool ISA(read_panels)(
    BytePanels *panels, Params *params, const Tensor *left, const Tensor *right, DType type,
    int64_t lines, int64_t columns) {
    const bool known = read_side(&panels->left, params, left->dtype, lines, false) &&
                       read_side(&panels->right, params, right->dtype, columns, true);
    const Tensor bias = maybe_tensor(params);
    panels->bias = (const int32_t *)bias.data;
    const ByteForm form = (ByteForm)next_int(params);
    panels->form = form;
    panels->tile = ISA(byte_tile)(form == WORDS ? PORTABLE : form);
    panels->in_words = form == WORDS || (form == FASTEST && !ISA(is_vnni)(panels->tile));
    if (form == FASTEST && !right->constant && lines < ORDERED_ROWS &&
        ISA(is_of_pairs)(panels->tile))
        panels->tile = ISA(byte_tile)(WIDE);
    panels->is_ordered = ISA(is_of_pairs)(panels->tile);
    panels->has_right_zero = panels->right.zero || panels->right.flip;
    panels->groups = ceil_div(panels->k, 4);
    panels->panels = ceil_div(panels->n, BYTE_COLUMNS);
    if (bias.data && (bias.dtype != I32 || !is_contiguous(&bias))) return false;
    if (bias.data && element_count(&bias) != columns) return false;
    return known && panels->tile &&
           ISA(read_byte_epilogue)(&panels->epilogue, params, type, columns);
}

// -- packing --------------------------------------------------------------------------------------

// One line of a panel; gives its sum.  The last three are constants.
INLINE int32_t pack_line(
    const uint8_t *line, int64_t k, uint8_t flip, uint8_t *to, int64_t along, const int width,
    const bool as_signed) {
    int64_t p = 0;
    for (; along == 1 && p + 4 <= k; p += 4) {
        uint32_t group;
        memcpy(&group, line + p, sizeof(group));
        group ^= flip * 0x01010101u;
        memcpy(to + p * width, &group, sizeof(group));
    }
    for (; p < k; p++) to[p / 4 * 4 * width + p % 4] = line[p * along] ^ flip;
    int32_t sum = 0;
    for (p = 0; p < k; p++) {
        const uint8_t byte = line[p * along] ^ flip;
        sum += as_signed ? (int8_t)byte : byte;
    }
    return sum;
}

// Lines that lie side by side: four numbers of each become a group.  The last two are constants.
INLINE void pack_side_by_side(
    const uint8_t *from, int64_t along, int64_t lines, int64_t k, uint8_t flip, uint8_t *to,
    int32_t *sums, const int width, const bool as_signed) {
    for (int64_t p = 0; p < k; p += 4, to += 4 * width) {
        const uint8_t *numbers[4];
        uint32_t kept[4];
        for (int q = 0; q < 4; q++) {
            kept[q] = p + q < k ? 255 : 0;
            numbers[q] = from + (kept[q] ? p + q : p) * along;
        }
        for (int64_t i = 0; i < lines; i++) {
            uint32_t group = 0;
            int32_t sum = 0;
            for (int q = 0; q < 4; q++) {
                const uint8_t byte = (uint8_t)((numbers[q][i] ^ flip) & kept[q]);
                group |= (uint32_t)byte << 8 * q;
                sum += as_signed ? (int8_t)byte : byte;
            }
            memcpy(to + 4 * i, &group, sizeof(group));
            sums[i] += sum;
        }
    }
}

// Packs up to `width` lines, and adds up each of them.
INLINE void pack(
    uint8_t flip, const uint8_t *from, int64_t line_step, int64_t along, int64_t lines, int64_t k,
    uint8_t *to, int32_t *sums, const int width, const bool as_signed) {
    const int64_t last = ceil_div(k, 4) - 1;
    if (lines < width)
        memset(to, 0, (size_t)((last + 1) * width * 4));
    else if (k % 4)
        memset(to + last * width * 4, 0, (size_t)width * 4);
    memset(sums, 0, (size_t)width * sizeof(int32_t));
    if (line_step == 1 && along != 1) {
        if (lines == width)
            pack_side_by_side(from, along, width, k, flip, to, sums, width, as_signed);
        else
            pack_side_by_side(from, along, lines, k, flip, to, sums, width, as_signed);
        return;
    }
    for (int64_t i = 0; i < lines; i++) {
        const uint8_t *line = from + i * line_step;
        sums[i] = along == 1 ? pack_line(line, k, flip, to + i * 4, 1, width, as_signed)
                             : pack_line(line, k, flip, to + i * 4, along, width, as_signed);
    }
}

void ISA(pack_panel)(
    const BytePanels *panels, const uint8_t *from, int64_t line, int64_t along, int64_t panel,
    int8_t *matrix) {
    const int64_t first = panel * BYTE_COLUMNS;
    int8_t *to = matrix + first * panels->groups * 4;
    pack(
        panels->right.flip, from, line, along, lesser(panels->n - first, BYTE_COLUMNS), panels->k,
        (uint8_t *)to, column_sums(panels, matrix) + first, BYTE_COLUMNS, true);
    if (panels->is_ordered) ISA(find_order)(to, panels->groups, order_of(panels, matrix, panel));
}

void ISA(pack_rows)(
    const BytePanels *panels, const uint8_t *from, int64_t line, int64_t along, int64_t start,
    int64_t count, LeftRows rows) {
    const uint32_t k = (uint32_t)panels->k;
    const int64_t end = start + count;
    for (int64_t i = start; i < end; i += BYTE_ROWS, from += BYTE_ROWS * line)
        pack(
            panels->left.flip, from, line, along, lesser(end - i, BYTE_ROWS), panels->k,
            rows.data + i * panels->groups * 4, rows.rests + i, BYTE_ROWS, false);
    for (int64_t i = start; i < end; i++) {
        const uint32_t zero = (uint32_t)zero_of(&panels->left, rows.first + i);
        rows.rests[i] = (int32_t)((uint32_t)rows.rests[i] - k * zero);
    }
}

// -- products -------------------------------------------------------------------------------------

// What zero points take off a tile, and the bias adds: sum (a - za) (b - zb) + bias, where the tile
// has sum a b.  Sums wrap around, as int32 sums of numpy's kernel do (its sums
// in float32 are rounded).
static void find_zeros(
    const BytePanels *panels, const int32_t *right_sums, int64_t column, int64_t columns,
    ByteColumns *found) {
    const uint32_t zero = panels->left.zero_line ? 0 : (uint32_t)zero_of(&panels->left, 0);
    for (int64_t j = 0; j < columns; j++) {
        const uint32_t bias = panels->bias ? (uint32_t)panels->bias[column + j] : 0;
        found->base[j] = (int32_t)(zero * (uint32_t)right_sums[j] - bias);
    }
    for (int64_t j = 0; panels->has_right_zero && j < columns; j++)
        found->zeros[j] = zero_of(&panels->right, column + j);
}

// Zero points that rows have of their own.
static void take_row_zeros(
    const BytePanels *panels, int32_t *tile, const int32_t *right_sums, int64_t row, int64_t rows) {
    for (int64_t i = 0; i < rows; i++) {
        const uint32_t zero = (uint32_t)zero_of(&panels->left, row + i);
        for (int64_t j = 0; j < BYTE_COLUMNS; j++)
            tile[i * BYTE_COLUMNS + j] =
                (int32_t)((uint32_t)tile[i * BYTE_COLUMNS + j] - zero * (uint32_t)right_sums[j]);
    }
}

void ISA(multiply_panel)(
    const BytePanels *panels, const int8_t *matrix, int64_t panel, LeftRows rows, int64_t column,
    BytePlace place) {
    const int64_t from = panel * BYTE_COLUMNS, count = place.rows, step = panels->groups * 4;
    const int32_t *right_sums = column_sums(panels, matrix) + from;
    ByteColumns columns = {.base = {0}};
    const BytePanel right = {
        matrix + from * step, panels->groups,
        panels->is_ordered ? order_of(panels, matrix, panel) : NULL, panels->n - from <= LANES};
    place.columns = lesser(panels->n - from, BYTE_COLUMNS);
    find_zeros(panels, right_sums, column + from, place.columns, &columns);
    ISA(find_columns)(&panels->epilogue, column + from, place.columns, &columns);
    for (int64_t i = 0; i < count; i += BYTE_ROWS) {
        int32_t tile[BYTE_ROWS * BYTE_COLUMNS] __attribute__((aligned(64)));
        place.rows = lesser(count - i, BYTE_ROWS);
        const ByteLines left = {rows.data + i * (rows.line ? rows.line : step), rows.line};
        panels->tile(left, right, tile, place.rows);
        if (panels->left.zero_line)
            take_row_zeros(panels, tile, right_sums, rows.first + i, place.rows);
        ISA(finish_bytes)(
            &panels->epilogue, &columns, tile, panels->has_right_zero ? rows.rests + i : NULL,
            place);
        place.data += BYTE_ROWS * place.row;
        if (place.residual) place.residual += BYTE_ROWS * place.residual_row;
    }
}
