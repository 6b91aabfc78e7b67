#include "words_i8.h"

#include <stdlib.h>

enum {
    CHUNK_PAIRS = 1 << 15,  // about: products of vectors that are worth a thread
    FEW_GROUPS = 3,  // of one channel, that are joined all the same
};

typedef uint32_t LoosePair __attribute__((may_alias, aligned(2)));

typedef struct {
    const WordConv *words;
    const ByteConv *conv;
    const Run *run;
    const int16_t *weights;
    int16_t *image, *unpacked;
} Job;

// -- preparing ------------------------------------------------------------------------------------

static void join_groups(WordConv *words, const ByteConv *conv) {
    int64_t joined = 1;
    for (int64_t count = 2; count * conv->panels.n <= LANES; count++)
        if (conv->groups % count == 0) joined = count;
    words->woven = conv->in == 1 && conv->panels.n == 1 && conv->groups > FEW_GROUPS;
    if (words->woven) joined = conv->groups;
    words->groups = conv->groups / joined;
    words->in = conv->in * joined;
    words->out = conv->panels.n * joined;
    words->panels = ceil_div(words->out, BYTE_COLUMNS);
}

// The image as far as windows read it, and what the last vectors read beyond its end.  False if that is
// more than memory can be addressed with.
static bool plan_image(WordConv *words, const ByteConv *conv) {
    int64_t step = conv->groups * conv->in * (words->woven ? 2 : 1);
    for (int axis = AXES - 1; axis >= 0; axis--) {
        words->axis[axis] = step;
        words->size[axis] = (conv->result[axis] - 1) * conv->stride[axis] +
                            (conv->taps[axis] - 1) * conv->dilation[axis] + 1;
        step = size_of(step, words->size[axis], 1);
        if (step < 0 || step > MOST_BYTES) return false;
    }
    words->batch = step;
    step = size_of(step, conv->batch, 1);
    words->neighbour = conv->taps[2] > 1 ? conv->dilation[2] : 0;
    words->image_bytes = padded((step + 2 * BYTE_COLUMNS) * (int64_t)sizeof(int16_t), 64);
    return step >= 0 && step <= MOST_BYTES;
}

// The taps of a line are one run if they lie side by side; those that are woven go by twos.
static bool find_runs(WordConv *words, const ByteConv *conv) {
    const int64_t taps = conv->taps[2];
    const bool beside = taps == 1 || (words->groups == 1 && conv->dilation[2] == 1);
    const int64_t of_run = words->woven ? 2 : beside ? taps : 1, of_line = ceil_div(taps, of_run);
    words->pairs = words->woven ? 1 : ceil_div(of_run * words->in, 2);
    words->runs = conv->window / taps * of_line;
    words->offsets = malloc((size_t)words->runs * sizeof(int64_t));
    if (!words->offsets) return false;
    for (int64_t run = 0; run < words->runs; run++) {
        const int64_t line = run / of_line;
        words->offsets[run] = line / conv->taps[1] * conv->dilation[0] * words->axis[0] +
                              line % conv->taps[1] * conv->dilation[1] * words->axis[1] +
                              run % of_line * of_run * conv->dilation[2] * words->axis[2];
    }
    return true;
}

static int64_t panel_words(const WordConv *words) {
    return word_place(words->runs * words->pairs * 2, 0);
}

// Packs a panel of weights [out][in][taps].
static void pack_weights(
    const WordConv *words, const ByteConv *conv, int64_t number, int16_t *packed) {
    const ByteSide *side = &conv->panels.right;
    const int64_t group = number / words->panels, first = number % words->panels * BYTE_COLUMNS;
    const int64_t taps = conv->taps[2], of_line = words->runs / (conv->window / taps);
    const int64_t of_run = ceil_div(taps, of_line);
    int16_t *to = packed + number * panel_words(words);
    memset(to, 0, (size_t)panel_words(words) * sizeof(int16_t));
    for (int64_t j = 0; j < lesser(words->out - first, BYTE_COLUMNS); j++) {
        const int64_t out = group * words->out + first + j;
        const int64_t in = words->woven ? 1 : words->in;
        const int64_t shift = words->woven ? 0 : (first + j) / conv->panels.n * conv->in;
        const uint8_t *from = conv->w + out * conv->in * conv->window;
        const int32_t zero = zero_point(side, out);
        for (int64_t c = 0; c < conv->in; c++)
            for (int64_t tap = 0; tap < conv->window; tap++, from++) {
                const int64_t run = tap / taps * of_line + tap % taps / of_run;
                const int64_t word = tap % taps % of_run * in + shift + c;
                to[word_place(run * words->pairs * 2 + word, j)] =
                    (int16_t)((side->is_signed ? (int8_t)*from : *from) - zero);
            }
    }
}

void ISA(release_words)(WordConv *words) {
    free(words->offsets);
    free(words->weights);
}

// Bytes of a line that is still to be woven.
static int64_t line_bytes(const WordConv *words) {
    return words->woven ? padded((words->size[2] + words->neighbour) * words->in * 2, 64) : 0;
}

bool ISA(plan_words)(WordConv *words, const ByteConv *conv, Needs *needs) {
    join_groups(words, conv);
    if (!plan_image(words, conv) || !find_runs(words, conv)) return false;
    const int64_t panels = words->groups * words->panels;
    words->weight_bytes = panels * panel_words(words) * (int64_t)sizeof(int16_t);
    if (conv->constant && conv->panels.right.is_final) {
        words->weights = aligned_alloc(64, (size_t)padded(words->weight_bytes, 64));
        for (int64_t i = 0; words->weights && i < panels; i++)
            pack_weights(words, conv, i, words->weights);
        if (!words->weights) return false;
    }
    const int64_t blocks = ceil_div(conv->pixels, WORD_BLOCK);
    const int64_t work = words->panels * words->runs * words->pairs * WORD_BLOCK * 2;
    words->chunks = ceil_div(blocks, greater(1, CHUNK_PAIRS / work));
    needs->shared = words->image_bytes + (words->weights ? 0 : words->weight_bytes);
    needs->own = greater(TILES_BYTES, line_bytes(words));
    return true;
}

// -- the image ------------------------------------------------------------------------------------

// Columns of the image that come from the input: first .. end - 1.
static void find_columns(
    const WordConv *words, const ByteConv *conv, int64_t *first, int64_t *end) {
    *first = lesser(greater(conv->before[2], 0), words->size[2]);
    *end = greater(lesser(conv->before[2] + conv->size[2], words->size[2]), *first);
}

static bool is_inside(const ByteConv *conv, int axis, int64_t place) {
    return place >= conv->before[axis] && place < conv->before[axis] + conv->size[axis];
}

// Widens columns of a line whose first lies at `from`.
static void widen_columns(const ByteConv *conv, const uint8_t *from, int64_t count, int16_t *to) {
    const int32_t zero = zero_point(&conv->panels.left, 0);
    const bool is_signed = conv->panels.left.is_signed;
    const int64_t channels = conv->groups * conv->in, step = conv->x_axis[2];
    if (conv->x_channel == 1 && step == channels) {
        ISA(widen_bytes)(from, 1, count * channels, is_signed, zero, to, 1);
        return;
    }
    for (int64_t i = 0; conv->x_channel == 1 && i < count; i++)
        ISA(widen_bytes)(from + i * step, 1, channels, is_signed, zero, to + i * channels, 1);
    for (int64_t c = 0; conv->x_channel != 1 && c < channels; c++)
        ISA(widen_bytes)(
            from + c * conv->x_channel, step, count, is_signed, zero, to + c, channels);
}

// A line of the image, without what it is woven with.
static void make_line(const WordConv *words, const ByteConv *conv, int64_t line, int16_t *to) {
    const int64_t row = line % words->size[1], rest = line / words->size[1];
    const int64_t depth = rest % words->size[0], channels = conv->groups * conv->in;
    int64_t first, end;
    find_columns(words, conv, &first, &end);
    if (!is_inside(conv, 0, depth) || !is_inside(conv, 1, row)) first = end = 0;
    memset(to, 0, (size_t)(first * channels) * sizeof(int16_t));
    memset(to + end * channels, 0, (size_t)((words->size[2] - end) * channels) * sizeof(int16_t));
    if (first == end) return;
    const uint8_t *from = conv->x + rest / words->size[0] * conv->x_batch +
                          (depth - conv->before[0]) * conv->x_axis[0] +
                          (row - conv->before[1]) * conv->x_axis[1] +
                          (first - conv->before[2]) * conv->x_axis[2];
    widen_columns(conv, from, end - first, to + first * channels);
}

static void image_line(void *context, int64_t line, int thread) {
    const Job *job = context;
    const WordConv *words = job->words;
    int16_t *to = job->image + line * words->axis[1];
    if (!words->woven) {
        make_line(words, job->conv, line, to);
        return;
    }
    const int64_t count = words->size[2] * words->in, apart = words->neighbour * words->in;
    int16_t *single = (int16_t *)job->run->own[thread];
    make_line(words, job->conv, line, single);
    memset(single + count, 0, (size_t)apart * sizeof(int16_t));
    LoosePair *pairs = (LoosePair *)to;
    INDEPENDENT_FOR (int64_t i = 0; i < count; i++)
        pairs[i] = (uint16_t)single[i] | (uint32_t)(uint16_t)single[i + apart] << 16;
}

// -- products -------------------------------------------------------------------------------------

// Where the windows of pixels first .. first + count - 1 begin, as if there were WORD_BLOCK.
static void find_windows(
    const WordConv *words, const ByteConv *conv, const int16_t *image, int64_t first, int64_t count,
    const int16_t **windows) {
    int64_t index[AXES], rest = first;
    for (int axis = AXES - 1; axis >= 0; axis--) {
        index[axis] = rest % conv->result[axis];
        rest /= conv->result[axis];
    }
    for (int64_t i = 0; i < WORD_BLOCK; i++) {
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

static void pixels_chunk(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const WordConv *words = job->words;
    const ByteConv *conv = job->conv;
    const int64_t blocks = ceil_div(conv->pixels, WORD_BLOCK), share = chunk % words->chunks;
    const int64_t plane = chunk / words->chunks;
    const int64_t group = plane % words->groups, number = plane / words->groups;
    const int16_t *image = job->image + number * words->batch + group * words->in;
    const int64_t last = blocks * (share + 1) / words->chunks;
    char *tiles = job->run->own[thread];
    for (int64_t block = blocks * share / words->chunks; block < last; block++) {
        const int16_t *windows[WORD_BLOCK];
        const int64_t first = block * WORD_BLOCK;
        const int64_t count = lesser(conv->pixels - first, WORD_BLOCK);
        find_windows(words, conv, image, first, count, windows);
        for (int64_t panel = 0; panel < words->panels; panel++) {
            if (pool_is_stopped()) return;
            const int64_t column = panel * BYTE_COLUMNS;
            const Part part = {
                number, first, count, group * words->out + column,
                lesser(words->out - column, BYTE_COLUMNS)};
            const WordTile tile = {
                .offsets = words->offsets,
                .runs = words->runs,
                .pairs = words->pairs,
                .right = job->weights + (group * words->panels + panel) * panel_words(words),
                .woven = words->woven,
                .first = words->woven ? 2 * column : 0,
            };
            ISA(multiply_word_panel)(
                &conv->panels, tile, windows, part.column, ISA(open_part)(conv, &part, tiles));
            ISA(close_part)(conv, &part, tiles);
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
