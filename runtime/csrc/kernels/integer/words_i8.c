#include "words_i8.h"

#include <stdlib.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

// Pixels of a tile: 12 sums with AVX2, 24 with AVX-512, whose products take registers of their own.
#if VECTOR_BYTES == 64
enum { TILE_PIXELS = 12 };
#else
enum { TILE_PIXELS = 6 };
#endif
enum {
    BLOCK_PIXELS = 4 * TILE_PIXELS,  // by all panels, before the next ones
    CHUNK_PAIRS = 1 << 15,  // about: products of vectors that are worth a thread
};

typedef struct {
    const WordConv *words;
    const ByteConv *conv;
    const Run *run;
    const int16_t *weights;
    int16_t *image, *unpacked;
} Job;

// -- preparing ------------------------------------------------------------------------------------

static void join_groups(WordConv *words, const ByteConv *conv) {
    words->joined = 1;
    for (int64_t count = 2; count * conv->panels.n <= LANES; count++)
        if (conv->groups % count == 0) words->joined = count;
    words->groups = conv->groups / words->joined;
    words->in = conv->in * words->joined;
    words->out = conv->panels.n * words->joined;
    words->panels = ceil_div(words->out, BYTE_COLUMNS);
}

// The image as far as windows read it.
static void plan_image(WordConv *words, const ByteConv *conv) {
    int64_t step = conv->groups * conv->in;
    for (int axis = AXES - 1; axis >= 0; axis--) {
        words->axis[axis] = step;
        words->size[axis] = (conv->result[axis] - 1) * conv->stride[axis] +
                            (conv->taps[axis] - 1) * conv->dilation[axis] + 1;
        step *= words->size[axis];
    }
    words->batch = step;
    // The last pair may lack a word.
    words->image_bytes = padded((step * conv->batch + 1) * (int64_t)sizeof(int16_t), 64);
}

// The taps of a line are one run if they lie side by side.
static bool find_runs(WordConv *words, const ByteConv *conv) {
    const int64_t taps = conv->taps[2];
    const bool lines = taps == 1 || (words->groups == 1 && conv->dilation[2] == 1);
    const int64_t of_line = lines ? 1 : taps;
    words->pairs = ceil_div(lines ? taps * words->in : words->in, 2);
    words->runs = conv->window / taps * of_line;
    words->offsets = malloc((size_t)words->runs * sizeof(int64_t));
    if (!words->offsets) return false;
    for (int64_t run = 0; run < words->runs; run++) {
        const int64_t line = run / of_line;
        words->offsets[run] =
            line / conv->taps[1] * conv->dilation[0] * words->axis[0] +
            line % conv->taps[1] * conv->dilation[1] * words->axis[1] +
            run % of_line * conv->dilation[2] * words->axis[2];
    }
    return true;
}

static int64_t panel_words(const WordConv *words) {
    return words->runs * words->pairs * BYTE_COLUMNS * 2;
}

// Packs a panel of weights [out][in][taps].
static void pack_weights(
    const WordConv *words, const ByteConv *conv, int64_t number, int16_t *packed) {
    const ByteSide *side = &conv->panels.right;
    const int64_t group = number / words->panels, first = number % words->panels * BYTE_COLUMNS;
    const int64_t of_run = conv->window / words->runs;
    int16_t *to = packed + number * panel_words(words);
    memset(to, 0, (size_t)panel_words(words) * sizeof(int16_t));
    for (int64_t j = 0; j < lesser(words->out - first, BYTE_COLUMNS); j++) {
        const int64_t out = group * words->out + first + j;
        const int64_t shift = (first + j) / conv->panels.n * conv->in;  // of its group in this one
        const uint8_t *from = conv->w + out * conv->in * conv->window;
        const int32_t zero = zero_point(side, out);
        for (int64_t c = 0; c < conv->in; c++)
            for (int64_t tap = 0; tap < conv->window; tap++, from++) {
                const int64_t word = tap % of_run * words->in + shift + c;
                const int64_t pair = tap / of_run * words->pairs + word / 2;
                to[(pair * BYTE_COLUMNS + j) * 2 + word % 2] =
                    (int16_t)((side->is_signed ? (int8_t)*from : *from) - zero);
            }
    }
}

void ISA(release_words)(WordConv *words) {
    free(words->offsets);
    free(words->weights);
}

bool ISA(plan_words)(WordConv *words, const ByteConv *conv, Needs *needs) {
    join_groups(words, conv);
    plan_image(words, conv);
    if (!find_runs(words, conv)) return false;
    const int64_t panels = words->groups * words->panels;
    words->weight_bytes = panels * panel_words(words) * (int64_t)sizeof(int16_t);
    if (conv->constant && conv->panels.right.is_final) {
        words->weights = aligned_alloc(64, (size_t)padded(words->weight_bytes, 64));
        for (int64_t i = 0; words->weights && i < panels; i++)
            pack_weights(words, conv, i, words->weights);
        if (!words->weights) return false;
    }
    const int64_t blocks = ceil_div(conv->pixels, BLOCK_PIXELS);
    const int64_t work = words->panels * words->runs * words->pairs * BLOCK_PIXELS * 2;
    words->chunks = ceil_div(blocks, greater(1, CHUNK_PAIRS / work));
    needs->shared = words->image_bytes + (words->weights ? 0 : words->weight_bytes);
    needs->own = TILES_BYTES;
    return true;
}

// -- the image ------------------------------------------------------------------------------------

INLINE void widen(
    const uint8_t *from, int64_t step, int64_t count, int32_t zero, int16_t *to, int64_t to_step,
    const bool is_signed) {
    for (int64_t i = 0; i < count; i++)
        to[i * to_step] =
            (int16_t)((is_signed ? (int8_t)from[i * step] : from[i * step]) - zero);
}

// Bytes that lie `step` apart, as words less the zero point.
static void widen_bytes(
    const ByteConv *conv, const uint8_t *from, int64_t step, int64_t count, int16_t *to,
    int64_t to_step) {
    const int32_t zero = zero_point(&conv->panels.left, 0);
    const bool is_signed = conv->panels.left.is_signed;
    if (step == 1 && to_step == 1 && is_signed)
        widen(from, 1, count, zero, to, 1, true);
    else if (step == 1 && to_step == 1)
        widen(from, 1, count, zero, to, 1, false);
    else if (is_signed)
        widen(from, step, count, zero, to, to_step, true);
    else
        widen(from, step, count, zero, to, to_step, false);
}

// Places of the input along an axis, from the first that windows read on.
static void span_of(
    const ByteConv *conv, const WordConv *words, int axis, int64_t *first, int64_t *end) {
    *first = lesser(greater(conv->before[axis], 0), words->size[axis]);
    *end = greater(lesser(conv->before[axis] + conv->size[axis], words->size[axis]), *first);
}

static bool is_inside(const ByteConv *conv, int axis, int64_t place) {
    return place >= conv->before[axis] && place < conv->before[axis] + conv->size[axis];
}

static void image_line(void *context, int64_t line, int thread) {
    (void)thread;
    const Job *job = context;
    const WordConv *words = job->words;
    const ByteConv *conv = job->conv;
    const int64_t row = line % words->size[1], rest = line / words->size[1];
    const int64_t depth = rest % words->size[0], channels = conv->groups * conv->in;
    int16_t *to = job->image + line * words->axis[1];
    int64_t first, end;
    span_of(conv, words, 2, &first, &end);
    if (!is_inside(conv, 0, depth) || !is_inside(conv, 1, row)) first = end = 0;
    const int64_t behind = words->size[2] - end, count = end - first;
    memset(to, 0, (size_t)(first * channels) * sizeof(int16_t));
    memset(to + end * channels, 0, (size_t)(behind * channels) * sizeof(int16_t));
    if (count == 0) return;
    const uint8_t *from = conv->x + rest / words->size[0] * conv->x_batch +
                          (depth - conv->before[0]) * conv->x_axis[0] +
                          (row - conv->before[1]) * conv->x_axis[1] +
                          (first - conv->before[2]) * conv->x_axis[2];
    to += first * channels;
    if (conv->x_channel == 1 && conv->x_axis[2] == channels) {
        widen_bytes(conv, from, 1, count * channels, to, 1);
    } else if (conv->x_channel == 1) {
        for (int64_t i = 0; i < count; i++)
            widen_bytes(conv, from + i * conv->x_axis[2], 1, channels, to + i * channels, 1);
    } else {
        for (int64_t c = 0; c < channels; c++)
            widen_bytes(conv, from + c * conv->x_channel, conv->x_axis[2], count, to + c, channels);
    }
}

// -- products -------------------------------------------------------------------------------------

// What two words of each lane of both add up to when they are multiplied.
static inline Ints pair_products(Ints a, Ints b) {
#if defined(__AVX512BW__)
    return (Ints)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (Ints)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#else
    return (a << 16 >> 16) * (b << 16 >> 16) + (a >> 16) * (b >> 16);
#endif
}

static inline int32_t pair_at(const int16_t *from) {
    int32_t pair;
    memcpy(&pair, from, sizeof(pair));
    return pair;
}

// The sums of so many windows for so many vectors of channels, which are constants.
INLINE void multiply_windows(
    const WordConv *words, const int16_t *const *windows, const int16_t *right, int32_t *out,
    const int pixels, const int vectors) {
    Ints sums[TILE_PIXELS][2];
    UNROLLED_FOR (int p = 0; p < pixels; p++)
        UNROLLED_FOR (int v = 0; v < vectors; v++) sums[p][v] = (Ints){0};
    for (int64_t run = 0; run < words->runs; run++) {
        const int16_t *from[TILE_PIXELS];
        UNROLLED_FOR (int p = 0; p < pixels; p++) from[p] = windows[p] + words->offsets[run];
        for (int64_t pair = 0; pair < words->pairs; pair++, right += 2 * BYTE_COLUMNS) {
            Ints weights[2];
            UNROLLED_FOR (int v = 0; v < vectors; v++)
                weights[v] = *(const LooseInts *)(right + v * 2 * LANES);
            UNROLLED_FOR (int p = 0; p < pixels; p++) {
                const Ints numbers = pair_at(from[p] + 2 * pair) - (Ints){0};
                UNROLLED_FOR (int v = 0; v < vectors; v++)
                    sums[p][v] += pair_products(numbers, weights[v]);
            }
        }
    }
    UNROLLED_FOR (int p = 0; p < pixels; p++)
        UNROLLED_FOR (int v = 0; v < vectors; v++)
            *(LooseInts *)(out + p * BYTE_COLUMNS + v * LANES) = sums[p][v];
}

// Some pixels, of which there may be fewer than TILE_PIXELS: the last one is there again, as often as
// it takes.
static void make_tile(
    const WordConv *words, const int16_t *const *windows, const int16_t *right, int32_t *out,
    int64_t pixels, int64_t columns) {
    const bool few = pixels <= TILE_PIXELS / 2, narrow = columns <= LANES;
    if (few && narrow)
        multiply_windows(words, windows, right, out, TILE_PIXELS / 2, 1);
    else if (few)
        multiply_windows(words, windows, right, out, TILE_PIXELS / 2, 2);
    else if (narrow)
        multiply_windows(words, windows, right, out, TILE_PIXELS, 1);
    else
        multiply_windows(words, windows, right, out, TILE_PIXELS, 2);
}

// Where the windows of pixels first .. first + count - 1 begin, as if there were BLOCK_PIXELS.
static void find_windows(
    const WordConv *words, const ByteConv *conv, const int16_t *image, int64_t first,
    int64_t count, const int16_t **windows) {
    int64_t index[AXES], rest = first;
    for (int axis = AXES - 1; axis >= 0; axis--) {
        index[axis] = rest % conv->result[axis];
        rest /= conv->result[axis];
    }
    for (int64_t i = 0; i < BLOCK_PIXELS; i++) {
        if (i >= count) {
            windows[i] = windows[count - 1];
            continue;
        }
        windows[i] = image;
        for (int axis = 0; axis < AXES; axis++)
            windows[i] += index[axis] * conv->stride[axis] * words->axis[axis];
        for (int axis = AXES - 1; axis >= 0; axis--) {
            if (++index[axis] < conv->result[axis]) break;
            index[axis] = 0;
        }
    }
}

static void make_panel(
    const Job *job, const int16_t *const *windows, int64_t group, int64_t panel, const Part *part,
    char *tiles) {
    const WordConv *words = job->words;
    const ByteConv *conv = job->conv;
    const BytePanels *panels = &conv->panels;
    const int16_t *right = job->weights + (group * words->panels + panel) * panel_words(words);
    int32_t sums[BLOCK_PIXELS * BYTE_COLUMNS] __attribute__((aligned(64)));
    ByteColumns columns = {.base = {0}};
    for (int64_t j = 0; panels->bias && j < part->columns; j++)
        columns.base[j] = (int32_t)(0u - (uint32_t)panels->bias[part->column + j]);
    ISA(find_columns)(&panels->epilogue, part->column, part->columns, &columns);
    for (int64_t i = 0; i < part->count; i += TILE_PIXELS)
        make_tile(
            words, windows + i, right, sums + i * BYTE_COLUMNS, part->count - i, part->columns);
    ISA(finish_bytes)
    (&panels->epilogue, &columns, sums, NULL, ISA(open_part)(conv, part, tiles));
    ISA(close_part)(conv, part, tiles);
}

static void pixels_chunk(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const WordConv *words = job->words;
    const ByteConv *conv = job->conv;
    const int64_t blocks = ceil_div(conv->pixels, BLOCK_PIXELS), share = chunk % words->chunks;
    const int64_t plane = chunk / words->chunks;
    const int64_t group = plane % words->groups, number = plane / words->groups;
    const int16_t *image = job->image + number * words->batch + group * words->in;
    const int64_t last = blocks * (share + 1) / words->chunks;
    for (int64_t block = blocks * share / words->chunks; block < last; block++) {
        const int16_t *windows[BLOCK_PIXELS];
        const int64_t first = block * BLOCK_PIXELS;
        const int64_t count = lesser(conv->pixels - first, BLOCK_PIXELS);
        find_windows(words, conv, image, first, count, windows);
        for (int64_t panel = 0; panel < words->panels; panel++) {
            if (pool_is_stopped()) return;
            const int64_t column = panel * BYTE_COLUMNS;
            const Part part = {
                number, first, count, group * words->out + column,
                lesser(words->out - column, BYTE_COLUMNS)};
            make_panel(job, windows, group, panel, &part, job->run->own[thread]);
        }
    }
}

static void weights_chunk(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    pack_weights(job->words, job->conv, chunk, job->unpacked);
}

void ISA(run_words)(const WordConv *words, const ByteConv *conv, const Run *run) {
    Job job = {words, conv, run, words->weights, (int16_t *)run->shared, NULL};
    share_chunks(run, conv->batch * words->size[0] * words->size[1], image_line, &job);
    if (!words->weights) {
        job.weights = job.unpacked = (int16_t *)(run->shared + words->image_bytes);
        share_chunks(run, words->groups * words->panels, weights_chunk, &job);
    }
    share_chunks(run, conv->batch * words->groups * words->chunks, pixels_chunk, &job);
}
