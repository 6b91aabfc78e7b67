// Transposed convolutions as matrix products, phase by phase: weights [out][in * taps] times windows
// [in * taps][results], which are read where they lie, in copies of the input that all phases share.
// Results of neighbouring phases are woven while they are in the first cache.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../movement/weave.h"
#include "transposed.h"

typedef struct {
    const Transposed *state;
    const Run *run;
    const float *weights;
    float *unpacked, *early;
} Job;

// -- preparing ------------------------------------------------------------------------------------

static void release(void *argument) {
    ISA(release_transposed)(argument);
    free(argument);
}

// Vectors are read beyond the last results.
static int64_t sum_floats(const Transposed *state) {
    return state->made * state->channels * TILE_COLUMNS + 16;
}

static int64_t weight_floats(const Transposed *state) {
    return state->packed ? 0 : padded(state->packed_group * state->conv.groups, 16);
}

static void *prepare(Params *params, Needs *needs) {
    Transposed *state = calloc(1, sizeof(Transposed));
    if (!state) return NULL;
    if (!ISA(plan_transposed)(state, params, needs)) {
        release(state);
        return NULL;
    }
    const int64_t copied = copied_floats(state), size = sizeof(float);
    const int64_t early = state->early ? copied * blocks_of(state) : 0;
    needs->shared = (weight_floats(state) + early) * size;
    needs->own = (sum_floats(state) + (state->early ? 0 : copied)) * size;
    reads_anywhere(needs, &state->input);
    writes_anywhere(needs, &state->conv.x);
    return state;
}

// -- running --------------------------------------------------------------------------------------

// Neighbouring results of each phase.
typedef struct {
    int64_t plane;  // number of the image and group
    int64_t first[AXES];
    int64_t results;
    const float *lines;  // what windows read
} Block;

static const float *image_of(const Transposed *state, const Block *block) {
    const Conv *conv = &state->conv;
    return state->input + block->plane / conv->groups * conv->y_batch +
           block->plane % conv->groups * state->in * conv->y_channel;
}

static Block block_of(const Transposed *state, int64_t number) {
    Block block = {.results = 1};
    int64_t count[AXES];
    for (int axis = AXES - 1; axis >= 0; axis--) {
        block.first[axis] = number % state->blocks[axis] * state->block[axis];
        number /= state->blocks[axis];
        count[axis] = lesser(state->block[axis], state->grid[axis] - block.first[axis]);
    }
    block.plane = number;
    block.results = (count[1] - 1) * state->block[2] + count[2];
    block.lines = image_of(state, &block);
    for (int axis = 0; axis < AXES; axis++)
        block.lines += block.first[axis] * state->conv.y_axis[axis];
    return block;
}

static void copy_block(const Transposed *state, const Block *block, float *to) {
    const int64_t kind = state->kinds > 1 ? block->first[1] / state->block[1] : 0;
    Conv lines = state->lines[kind].conv;
    Copies copies = state->lines[kind].copies;
    copies.conv = &lines;
    lines.x = state->input;
    if (state->kinds == 1) lines.before[1] -= block->first[1];
    lines.before[2] -= block->first[2];
    const float *image = image_of(state, block);
    for (int64_t i = 0; i < state->reach[0]; i++, to += state->slice) {
        const int64_t slice = block->first[0] + state->low[0] + i;
        if (slice >= 0 && slice < state->conv.result[0])
            ISA(copy_channels)(&copies, image + slice * lines.x_axis[0], state->in, to);
        else
            memset(to, 0, (size_t)(state->slice + LANES) * sizeof(float));
    }
}

// Results of a line of the block, of all phases of a line.
typedef struct {
    int64_t start;  // in the sums
    int64_t place, count;  // in a channel
} Piece;

// Where results first .. first + count - 1 of a block belong; those beyond the result are left out.
static int find_pieces(
    const Transposed *state, const Block *block, const Phase *phase, int64_t first, int64_t count,
    Piece *pieces) {
    const Conv *conv = &state->conv;
    int found = 0;
    int64_t column = first % state->block[2], row = first / state->block[2];
    for (int64_t done = 0, length; done < count; done += length, column = 0, row++) {
        length = lesser(state->block[2] - column, count - done);
        const int64_t slice = block->first[0] * conv->stride[0] + phase->first[0];
        const int64_t line = (block->first[1] + row) * conv->stride[1] + phase->first[1];
        const int64_t place = (block->first[2] + column) * conv->stride[2];
        if (slice >= conv->size[0] || line >= conv->size[1]) continue;
        pieces[found++] = (Piece){
            done, (slice * conv->size[1] + line) * conv->size[2] + place,
            lesser(length * state->phases[2], conv->size[2] - place)};
    }
    return found;
}

// What is multiplied at once: channels of a block, and where their sums are.
typedef struct {
    const Transposed *state;
    Block block;
    const float *weights;
    int64_t part, channels, rows;
    int64_t first_phase;
    float *sums;  // [phases or 1][channels][joined phases][TILE_COLUMNS]
} Task;

// The sums of up to two vectors of results, of all channels and phases.
static void multiply(const Task *task, int64_t first, int64_t count) {
    const Transposed *state = task->state;
    const float *right[2] = {task->block.lines + first, NULL};
    if (count > LANES) right[1] = right[0] + LANES;
    const int64_t step = task->channels * state->joined * TILE_COLUMNS;
    for (int64_t done = 0; done < state->in; done += state->depth) {
        const int64_t channels = lesser(state->depth, state->in - done);
        float *sums = task->sums;
        for (int64_t i = 0; i < state->made; i += state->joined, sums += step) {
            const Phase *phase = state->phase + task->first_phase + i;
            const float *weights = task->weights + phase->weights + done * phase->taps * TILE_ROWS;
            const int64_t line = phase->taps * state->in * TILE_ROWS;
            if (phase->taps == 0) memset(sums, 0, (size_t)step * sizeof(float));
            for (int64_t row = 0; phase->taps && row < task->rows; row += state->rows)
                ISA(multiply_lines)(
                    weights + row / state->rows * line, right, phase->offsets + done * phase->taps,
                    channels * phase->taps, sums + row * TILE_COLUMNS, TILE_COLUMNS, LANES,
                    (int)lesser(state->rows, task->rows - row), done > 0, NO_ENDING);
        }
    }
}

// Phases of a line woven with what follows sums: `apart` from each other, [phases][results].
static void keep(const Piece *piece, int64_t across, const float *sums, int64_t apart, float *to) {
    const int64_t whole = piece->count / across;
    if (across == 1)
        copy_floats(to, sums, whole);
    else
        turn(sums, apart, to, across, across, whole);
    for (int64_t i = whole * across; i < piece->count; i++)
        to[i] = sums[i % across * apart + whole];
}

// The same of two phases, which get their bias and Relu on the way.
static void keep_two(
    const Piece *piece, const float *sums, int64_t apart, float bias, bool relu, float *to) {
    const Floats least = all_of(relu ? 0 : -INFINITY), added = all_of(bias);
    for (int64_t i = 0; i < piece->count; i += TILE_COLUMNS, sums += LANES) {
        const Floats even = all_at_least(least, load(sums) + added);
        const Floats odd = all_at_least(least, load(sums + apart) + added);
        if (piece->count - i >= TILE_COLUMNS) {
            store(to + i, woven_low(even, odd));
            store(to + i + LANES, woven_high(even, odd));
            continue;
        }
        float line[TILE_COLUMNS];
        store(line, woven_low(even, odd));
        store(line + LANES, woven_high(even, odd));
        copy_floats(to + i, line, piece->count - i);
    }
}

// What follows the sums of a channel, if it is not done on the way.
static void finish_channel(
    const Task *task, int64_t channel, int64_t apart, float bias, int64_t count) {
    static const int64_t steps[] = {sizeof(float), sizeof(float)};
    const Transposed *state = task->state;
    const Epilogue *epilogue = &state->conv.epilogue;
    const Floats least = all_of(epilogue->relu ? 0 : -INFINITY), added = all_of(bias);
    float *sums = task->sums + channel * state->joined * TILE_COLUMNS;
    for (int64_t i = 0; i < state->made; i++, sums += apart) {
        for (int v = 0; v < 2; v++)
            store(sums + v * LANES, all_at_least(least, load(sums + v * LANES) + added));
        if (!epilogue->activation) continue;
        char *in[] = {(char *)sums};
        epilogue->activation((char *)sums, in, steps, count, epilogue->parameters);
    }
}

// Up to two vectors of results to where they belong.
static void keep_results(const Task *task, int64_t first, int64_t count) {
    const Transposed *state = task->state;
    const Conv *conv = &state->conv;
    const Epilogue *epilogue = &conv->epilogue;
    const bool joined = state->joined > 1, two = state->phases[2] == 2 && !epilogue->activation;
    const int64_t apart = TILE_COLUMNS * (joined ? 1 : task->channels);
    const int64_t floats = conv->size[0] * conv->size[1] * conv->size[2];
    const int64_t channel = task->part * state->channels;
    const float *bias = epilogue->row_bias;
    if (bias) bias += task->block.plane % conv->groups * state->out + channel;
    float *y = (float *)conv->x + (task->block.plane * state->out + channel) * floats;
    for (int64_t c = 0; !two && c < task->channels; c++)
        finish_channel(task, c, apart, bias ? bias[c] : 0, count);
    for (int64_t i = 0; i < state->made; i += state->phases[2]) {
        Piece pieces[TILE_COLUMNS];
        const Phase *phase = state->phase + task->first_phase + i;
        const int found = find_pieces(state, &task->block, phase, first, count, pieces);
        const float *sums = task->sums + i * apart;
        for (int64_t c = 0; c < task->channels; c++, sums += state->joined * TILE_COLUMNS)
            for (const Piece *piece = pieces; piece < pieces + found; piece++) {
                const float *from = sums + piece->start;
                float *to = y + c * floats + piece->place;
                if (two)
                    keep_two(piece, from, apart, bias ? bias[c] : 0, epilogue->relu, to);
                else
                    keep(piece, state->phases[2], from, apart, to);
            }
    }
}

// The last vector of what is read in place reaches back, to results that are there already.
static void make_results(const Task *task) {
    const int64_t results = task->block.results;
    for (int64_t first = 0, count; first < results; first += count) {
        count = lesser(results - first, TILE_COLUMNS);
        if (task->state->in_place && count < TILE_COLUMNS) {
            if (count < LANES) first = results - LANES;
            count = LANES;
        }
        multiply(task, first, count);
        keep_results(task, first, count);
    }
}

static Task task_of(const Job *job, Block block, int64_t part, int64_t line, int thread) {
    const Transposed *state = job->state;
    return (Task){
        .state = state,
        .block = block,
        .weights = job->weights + block.plane % state->conv.groups * state->packed_group +
                   part * state->packed_part,
        .part = part,
        .channels = channels_of(state, part),
        .rows = rows_of(state, part),
        .first_phase = line * state->made,
        .sums = (float *)job->run->own[thread],
    };
}

static void pack(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    ISA(pack_transposed)(job->state, chunk, job->unpacked);
}

static void copy_early(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    const Block block = block_of(job->state, chunk);
    copy_block(job->state, &block, job->early + chunk * copied_floats(job->state));
}

static void make_part(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const Transposed *state = job->state;
    const int64_t lines = state->count / state->made, rest = chunk / state->parts;
    Block block = block_of(state, rest / lines);
    if (!state->in_place) block.lines = job->early + rest / lines * copied_floats(state);
    const Task task = task_of(job, block, chunk % state->parts, rest % lines, thread);
    make_results(&task);
}

static void make_block(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const Transposed *state = job->state;
    float *copies = (float *)job->run->own[thread] + sum_floats(state);
    Block block = block_of(state, chunk);
    if (!state->in_place) {
        copy_block(state, &block, copies);
        block.lines = copies;
    }
    for (int64_t line = 0; line < state->count / state->made; line++)
        for (int64_t part = 0; part < state->parts; part++) {
            if (pool_is_stopped()) return;
            const Task task = task_of(job, block, part, line, thread);
            make_results(&task);
        }
}

static Failure run_transposed(const void *argument, const Run *run) {
    const Transposed *state = argument;
    const int64_t blocks = blocks_of(state);
    float *shared = (float *)run->shared;
    Job job = {state, run, state->packed, shared, shared + weight_floats(state)};
    if (!state->packed) {
        job.weights = shared;
        share_chunks(run, weight_tiles(state), pack, &job);
    }
    if (!state->early) {
        share_chunks(run, blocks, make_block, &job);
        return OK;
    }
    if (!state->in_place) share_chunks(run, blocks, copy_early, &job);
    share_chunks(run, blocks * state->count / state->made * state->parts, make_part, &job);
    return OK;
}

const Kernel ISA(TRANSPOSED)[] = {
    {"ConvTransposed_f32", prepare, run_transposed, release},
    {NULL, NULL, NULL, NULL},
};
