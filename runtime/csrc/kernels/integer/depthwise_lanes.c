// Convolutions of bytes of one channel by one channel, with products of four bytes.
#include <stdlib.h>

#include "depthwise_i8.h"

#if defined(__AVX512F__)
#include <immintrin.h>

#define HAS_VNNI __attribute__((target("avx512vnni")))

enum {
    BLOCK = 64,  // channels, a byte of each in a vector
    QUARTERS = 4,  // vectors of sums of a block
    WOVEN_BYTES = BLOCK * QUARTERS,
    RUN_PIXELS = 2 * BYTE_ROWS,  // of a row, that are computed from lines woven together
    MOST_LINES = 64,  // of a window: 8 x 8 taps, and more than models have
    MOST_WOVEN = 1 << 15,  // bytes of four lines: the first cache
};

// -- preparing ------------------------------------------------------------------------------------

static void pack_weights(const ByteLanes *lanes, const ByteConv *conv, int64_t channels) {
    const int64_t columns = conv->taps[2];
    for (int64_t c = 0; c < channels; c++) {
        int8_t *block = lanes->weights + c / BLOCK * columns * lanes->quads * WOVEN_BYTES;
        for (int64_t tap = 0; tap < conv->window; tap++) {
            const int64_t line = tap / columns, column = tap % columns;
            const int8_t weight = (int8_t)conv->w[c * conv->window + tap];
            block[(column * lanes->quads + line / 4) * WOVEN_BYTES + c % BLOCK * 4 + line % 4] =
                weight;
            lanes->sums[c] += weight;
        }
    }
}

bool ISA(plan_lanes)(ByteLanes *lanes, const ByteConv *conv, int64_t channels) {
    const BytePanels *panels = &conv->panels;
    if (!conv->constant || !ISA(is_vnni)(panels->tile) || panels->has_right_zero) return false;
    lanes->lines = conv->taps[0] * conv->taps[1];
    lanes->quads = ceil_div(lanes->lines, 4);
    lanes->blocks = ceil_div(channels, BLOCK);
    const int64_t columns = (RUN_PIXELS - 1) * conv->stride[2] +
                            (conv->taps[2] - 1) * conv->dilation[2] + 1;
    lanes->woven_bytes = columns * lanes->quads * WOVEN_BYTES;
    if (lanes->lines > MOST_LINES || lanes->woven_bytes > MOST_WOVEN * lanes->quads) return false;
    const int64_t bytes = lanes->blocks * conv->taps[2] * lanes->quads * WOVEN_BYTES;
    const int64_t all = bytes + lanes->blocks * BLOCK * (int64_t)sizeof(int32_t);
    lanes->weights = aligned_alloc(64, (size_t)all);
    if (!lanes->weights) return false;
    memset(lanes->weights, 0, (size_t)all);
    lanes->sums = (int32_t *)(lanes->weights + bytes);
    pack_weights(lanes, conv, channels);
    return true;
}

// -- running --------------------------------------------------------------------------------------

// What a line of results reads, and where its sums go.
typedef struct {
    const ByteConv *conv;
    const ByteLanes *lanes;
    const uint8_t *lines[MOST_LINES];  // of the input; NULL: outside
    const uint8_t *outside;
    __mmask64 mask;  // of the channels of a block
} Line;

// Four numbers of each channel, from four lines: 16 channels in each of the results, in order.
static inline void weave(const __m512i *lines, __m512i *to) {
    const __m512i pairs[] = {
        _mm512_unpacklo_epi8(lines[0], lines[1]), _mm512_unpackhi_epi8(lines[0], lines[1]),
        _mm512_unpacklo_epi8(lines[2], lines[3]), _mm512_unpackhi_epi8(lines[2], lines[3])};
    to[0] = _mm512_unpacklo_epi16(pairs[0], pairs[2]);
    to[1] = _mm512_unpackhi_epi16(pairs[0], pairs[2]);
    to[2] = _mm512_unpacklo_epi16(pairs[1], pairs[3]);
    to[3] = _mm512_unpackhi_epi16(pairs[1], pairs[3]);
}

// Weaves `count` columns of the input from number `first` on, channels from `channel` on.
static void weave_columns(
    const Line *line, int64_t first, int64_t count, int64_t channel, __m512i *to) {
    const ByteConv *conv = line->conv;
    // Unpacking works on each sixteen bytes: those of a quarter come from four of them.
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i flip = _mm512_set1_epi8((char)conv->panels.left.flip);
    for (int64_t column = first; column < first + count; column++) {
        const bool inside = column >= 0 && column < conv->size[2];
        for (int64_t l = 0; l < line->lanes->lines; l += 4, to += QUARTERS) {
            __m512i numbers[4] = {_mm512_setzero_si512()};
            numbers[1] = numbers[2] = numbers[3] = numbers[0];
            for (int64_t i = 0; i < lesser(line->lanes->lines - l, 4); i++) {
                const uint8_t *from = inside && line->lines[l + i]
                                          ? line->lines[l + i] + column * conv->x_axis[2]
                                          : line->outside;
                const __m512i bytes = _mm512_maskz_loadu_epi8(line->mask, from + channel);
                numbers[i] = _mm512_permutexvar_epi32(order, _mm512_xor_si512(bytes, flip));
            }
            weave(numbers, to);
        }
    }
}

// The sums of `count` windows, for both panels of a block.  The last two are constants.
HAS_VNNI INLINE void add_up(
    const ByteConv *conv, const __m512i *woven, const __m512i *weights, int64_t count,
    int32_t (*tiles)[RUN_PIXELS * BYTE_COLUMNS], const int64_t taps, const int64_t quads) {
    for (int64_t i = 0; i < count; i++) {
        __m512i sums[QUARTERS] = {_mm512_setzero_si512()};
        sums[1] = sums[2] = sums[3] = sums[0];
        for (int64_t tap = 0; tap < taps; tap++) {
            const int64_t column = i * conv->stride[2] + tap * conv->dilation[2];
            for (int64_t quad = 0; quad < quads; quad++)
                for (int q = 0; q < QUARTERS; q++)
                    sums[q] = _mm512_dpbusd_epi32(
                        sums[q], woven[(column * quads + quad) * QUARTERS + q],
                        weights[(tap * quads + quad) * QUARTERS + q]);
        }
        for (int q = 0; q < QUARTERS; q++)
            _mm512_store_si512(tiles[q / 2] + i * BYTE_COLUMNS + q % 2 * LANES, sums[q]);
    }
}

HAS_VNNI static void run_sums(
    const Line *line, const __m512i *woven, const __m512i *weights, int64_t count,
    int32_t (*tiles)[RUN_PIXELS * BYTE_COLUMNS]) {
    const int64_t taps = line->conv->taps[2], quads = line->lanes->quads;
    if (taps == 3 && quads == 1)
        add_up(line->conv, woven, weights, count, tiles, 3, 1);
    else
        add_up(line->conv, woven, weights, count, tiles, taps, quads);
}

static void find_base(const Line *line, const Part *part, ByteColumns *to) {
    const BytePanels *panels = &line->conv->panels;
    const uint32_t zero = (uint32_t)zero_point(&panels->left, 0) + panels->left.flip;
    for (int64_t j = 0; j < part->columns; j++) {
        const uint32_t bias = panels->bias ? (uint32_t)panels->bias[part->column + j] : 0;
        to->base[j] = (int32_t)(zero * (uint32_t)line->lanes->sums[part->column + j] - bias);
    }
    ISA(find_columns)(&panels->epilogue, part->column, part->columns, to);
}

static void finish(
    const ByteConv *conv, const Part *part, const ByteColumns *columns, int32_t *tile,
    char *scratch) {
    BytePlace place = ISA(open_part)(conv, part, scratch);
    for (int64_t i = 0; i < part->count; i += BYTE_ROWS) {
        place.rows = lesser(part->count - i, BYTE_ROWS);
        ISA(finish_bytes)(&conv->panels.epilogue, columns, tile + i * BYTE_COLUMNS, NULL, place);
        place.data += BYTE_ROWS * place.row;
        if (place.residual) place.residual += BYTE_ROWS * place.residual_row;
    }
    ISA(close_part)(conv, part, scratch);
}

// A block of channels of a line of results, whose first is `first` of image `number`.
static void block_of(Line *line, int64_t number, int64_t first, int64_t block, char *scratch) {
    const ByteConv *conv = line->conv;
    const int64_t channel = block * BLOCK, channels = lesser(conv->groups - channel, BLOCK);
    __m512i *woven = (__m512i *)(scratch + TILES_BYTES);
    const __m512i *weights = (const __m512i *)line->lanes->weights +
                             block * conv->taps[2] * line->lanes->quads * QUARTERS;
    line->mask = channels == BLOCK ? ~(__mmask64)0 : ((__mmask64)1 << channels) - 1;
    ByteColumns columns[2] = {{.base = {0}}, {.base = {0}}};
    Part parts[2];
    for (int h = 0; h < 2; h++) {
        const int64_t column = h * BYTE_COLUMNS, count = lesser(channels - column, BYTE_COLUMNS);
        parts[h] = (Part){number, 0, 0, channel + column, count > 0 ? count : 0};
        find_base(line, &parts[h], &columns[h]);
    }
    for (int64_t i = 0; i < conv->result[2] && !pool_is_stopped(); i += RUN_PIXELS) {
        int32_t tiles[2][RUN_PIXELS * BYTE_COLUMNS] __attribute__((aligned(64)));
        const int64_t count = lesser(conv->result[2] - i, RUN_PIXELS);
        weave_columns(
            line, i * conv->stride[2] - conv->before[2],
            (count - 1) * conv->stride[2] + (conv->taps[2] - 1) * conv->dilation[2] + 1, channel,
            woven);
        run_sums(line, woven, weights, count, tiles);
        for (int h = 0; h < 2 && parts[h].columns > 0; h++) {
            parts[h].first = first + i;
            parts[h].count = count;
            finish(conv, &parts[h], &columns[h], tiles[h], scratch);
        }
    }
}

void ISA(lanes_line)(
    const ByteLanes *lanes, const ByteConv *conv, const uint8_t *x, const uint8_t *outside,
    int64_t number, char *scratch) {
    Line line = {.conv = conv, .lanes = lanes, .outside = outside};
    const int64_t of_image = conv->result[0] * conv->result[1];
    const int64_t image = number / of_image, first = number % of_image * conv->result[2];
    int64_t at[AXES];
    window_at(conv, first, at);
    for (int64_t i = 0; i < lanes->lines; i++) {
        const int64_t depth = at[0] + i / conv->taps[1] * conv->dilation[0];
        const int64_t row = at[1] + i % conv->taps[1] * conv->dilation[1];
        if (depth < 0 || depth >= conv->size[0] || row < 0 || row >= conv->size[1]) continue;
        line.lines[i] = x + image * conv->x_batch + depth * conv->x_axis[0] + row * conv->x_axis[1];
    }
    for (int64_t block = 0; block < lanes->blocks; block++)
        block_of(&line, image, first, block, scratch);
}

#else

bool ISA(plan_lanes)(ByteLanes *lanes, const ByteConv *conv, int64_t channels) {
    (void)lanes, (void)conv, (void)channels;
    return false;
}

void ISA(lanes_line)(
    const ByteLanes *lanes, const ByteConv *conv, const uint8_t *x, const uint8_t *outside,
    int64_t line, char *scratch) {
    (void)lanes, (void)conv, (void)x, (void)outside, (void)line, (void)scratch;
}

#endif
