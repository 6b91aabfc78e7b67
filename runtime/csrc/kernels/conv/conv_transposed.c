// Transposed convolutions as matrix products, phase by phase: weights [out][in * taps] times windows
// [in * taps][results], which are read where they lie, in copies of the input that all phases share.
// Results of neighbouring phases are woven while they are in the first cache.
#include <stdlib.h>
#include <string.h>

#include "../movement/weave.h"
#include "transposed.h"

enum {
    SUM_FLOATS = 1 << 13,  // of a group of tiles: the first cache
    WEIGHT_FLOATS = 1 << 16,  // the same of the second one, so that all results of a block go by
    FEW_CHUNKS = 8,  // blocks that threads cannot share evenly: groups of tiles are shared, too
    CHUNK_PRODUCTS = 1 << 17,  // of a chunk at least: 2 us
};

typedef struct {
    const Transposed *state;
    const Run *run;
    const float *weights;
    float *unpacked, *early;
} Job;

// -- preparing ------------------------------------------------------------------------------------

static int64_t blocks_of(const Transposed *state) {
    int64_t blocks = state->conv.batch * state->conv.groups;
    for (int axis = 0; axis < AXES; axis++) blocks *= state->blocks[axis];
    return blocks;
}

// Phases of all axes but the last one.
static int64_t lines_of_phases(const Transposed *state) {
    return state->phases[0] * state->phases[1];
}

static void plan_chunks(Transposed *state) {
    const int64_t across = state->phases[2], blocks = blocks_of(state);
    const int64_t sums = across * state->rows * TILE_COLUMNS;
    const int64_t weights = state->packed_group / state->tiles / lines_of_phases(state) + 1;
    state->group = lesser(SUM_FLOATS / sums, WEIGHT_FLOATS / weights);
    state->group = lesser(greater(state->group, 1), state->tiles);
    const int64_t products = blocks * state->packed_group * state->block[1] * state->block[2];
    state->early = blocks < FEW_CHUNKS && products >= 2 * CHUNK_PRODUCTS;
    if (!state->early) return;
    const int64_t wanted = ceil_div(lesser(FEW_CHUNKS, products / CHUNK_PRODUCTS), blocks);
    const int64_t groups = ceil_div(wanted, lines_of_phases(state));
    state->group = lesser(state->group, greater(1, state->tiles / groups));
}

static void release(void *argument) {
    ISA(release_transposed)(argument);
    free(argument);
}

static int64_t sum_floats(const Transposed *state) {
    return state->phases[2] * state->group * state->rows * TILE_COLUMNS;
}

static void *prepare(Params *params, Needs *needs) {
    Transposed *state = calloc(1, sizeof(Transposed));
    if (!state) return NULL;
    if (!ISA(plan_transposed)(state, params)) {
        release(state);
        return NULL;
    }
    plan_chunks(state);
    const int64_t copied = copied_floats(state);
    const int64_t weights = state->packed ? 0
                                          : padded(state->packed_group * state->conv.groups, 16);
    needs->shared = (weights + (state->early ? copied * blocks_of(state) : 0)) *
                    (int64_t)sizeof(float);
    needs->own = (sum_floats(state) + (state->early ? 0 : copied)) * (int64_t)sizeof(float);
    reads_anywhere(needs, &state->lines.x);
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
    const Conv *lines = &state->lines;
    return lines->x + block->plane / lines->groups * lines->x_batch +
           block->plane % lines->groups * state->in * lines->x_channel;
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
        block.lines += block.first[axis] * state->lines.x_axis[axis];
    return block;
}

static void copy_block(const Transposed *state, const Block *block, float *to) {
    Conv lines = state->lines;
    lines.before[1] -= block->first[1];
    lines.before[2] -= block->first[2];
    Copies copies = state->copies;
    copies.conv = &lines;
    const float *image = image_of(state, block);
    for (int64_t i = 0; i < state->reach[0]; i++, to += state->slice) {
        const int64_t slice = block->first[0] + state->low[0] + i;
        if (slice >= 0 && slice < state->conv.result[0])
            ISA(copy_channels)(&copies, image + slice * lines.x_axis[0], state->in, to);
        else
            memset(to, 0, (size_t)(state->slice + LANES) * sizeof(float));
    }
}

// Results of a line of the block, of all phases of the last axis.
typedef struct {
    int64_t start;  // in the sums
    int64_t place, count;  // in a channel
} Part;

// Where results first .. first + count - 1 of a block belong; those beyond the result are left out.
static int find_parts(
    const Transposed *state, const Block *block, const Phase *phase, int64_t first, int64_t count,
    Part *parts) {
    const Conv *conv = &state->conv;
    int found = 0;
    int64_t column = first % state->block[2], row = first / state->block[2];
    for (int64_t done = 0, length; done < count; done += length, column = 0, row++) {
        length = lesser(state->block[2] - column, count - done);
        const int64_t slice = block->first[0] * conv->stride[0] + phase->first[0];
        const int64_t line = (block->first[1] + row) * conv->stride[1] + phase->first[1];
        const int64_t place = (block->first[2] + column) * conv->stride[2];
        if (slice >= conv->size[0] || line >= conv->size[1]) continue;
        parts[found++] = (Part){
            done, (slice * conv->size[1] + line) * conv->size[2] + place,
            lesser(length * state->phases[2], conv->size[2] - place)};
    }
    return found;
}

static void multiply(
    const Job *job, const Block *block, const Phase *phase, int64_t tile, int64_t end,
    int64_t first, float *sums) {
    const Transposed *state = job->state;
    const float *weights = job->weights + phase->weights +
                           block->plane % state->conv.groups * state->packed_group;
    const float *right[2] = {block->lines + first, NULL};
    if (block->results > first + LANES) right[1] = right[0] + LANES;
    const int64_t step = state->rows * TILE_COLUMNS;
    if (phase->k == 0) memset(sums, 0, (size_t)((end - tile) * step) * sizeof(float));
    for (int64_t done = 0; done < phase->k; done += DEPTH)
        for (int64_t i = tile; i < end; i++)
            ISA(multiply_lines)(
                weights + (i * phase->k + done) * TILE_ROWS, right, phase->offsets + done,
                lesser(phase->k - done, DEPTH), sums + (i - tile) * step, TILE_COLUMNS,
                tile_rows(state, i), done > 0);
}

static void keep(
    const Transposed *state, const Part *part, const float *sums, int64_t apart, float *to) {
    const int64_t across = state->phases[2], whole = part->count / across;
    sums += part->start;
    to += part->place;
    if (across == 1)
        copy_floats(to, sums, whole);
    else
        turn(sums, apart, to, across, across, whole);
    for (int64_t i = whole * across; i < part->count; i++) to[i] = sums[i % across * apart + whole];
}

// Tiles `tile` .. end - 1 of a block, in the phases of one line.
static void make_tiles(
    const Job *job, const Block *block, int64_t line, int64_t tile, int64_t end, float *sums) {
    const Transposed *state = job->state;
    const Conv *conv = &state->conv;
    const Phase *phase = state->phase + line * state->phases[2];
    const int64_t channel = tile * state->rows, apart = (end - tile) * state->rows * TILE_COLUMNS;
    const int64_t rows = lesser(end * state->rows, state->out) - channel;
    const int64_t floats = conv->size[0] * conv->size[1] * conv->size[2];
    float *y = (float *)conv->x + (block->plane * state->out + channel) * floats;
    for (int64_t first = 0; first < block->results; first += TILE_COLUMNS) {
        const int64_t count = lesser(block->results - first, TILE_COLUMNS);
        Part parts[TILE_COLUMNS];
        const int found = find_parts(state, block, phase, first, count, parts);
        if (found == 0) continue;
        for (int64_t i = 0; i < state->phases[2]; i++) {
            multiply(job, block, phase + i, tile, end, first, sums + i * apart);
            const Place place = {
                sums + i * apart, TILE_COLUMNS, block->plane % conv->groups * state->out + channel,
                0};
            ISA(finish)(&conv->epilogue, place, rows, count);
        }
        for (int64_t c = 0; c < rows; c++)
            for (int i = 0; i < found; i++)
                keep(state, parts + i, sums + c * TILE_COLUMNS, apart, y + c * floats);
    }
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

static void make_groups(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const Transposed *state = job->state;
    const int64_t groups = ceil_div(state->tiles, state->group), lines = lines_of_phases(state);
    const int64_t number = chunk / groups / lines, tile = chunk % groups * state->group;
    Block block = block_of(state, number);
    if (!state->in_place) block.lines = job->early + number * copied_floats(state);
    make_tiles(
        job, &block, chunk / groups % lines, tile, lesser(tile + state->group, state->tiles),
        (float *)job->run->own[thread]);
}

static void make_block(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const Transposed *state = job->state;
    float *sums = (float *)job->run->own[thread], *copies = sums + sum_floats(state);
    Block block = block_of(state, chunk);
    if (!state->in_place) {
        copy_block(state, &block, copies);
        block.lines = copies;
    }
    for (int64_t line = 0; line < lines_of_phases(state); line++)
        for (int64_t tile = 0; tile < state->tiles; tile += state->group) {
            if (pool_is_stopped()) return;
            make_tiles(job, &block, line, tile, lesser(tile + state->group, state->tiles), sums);
        }
}

static Failure run_transposed(const void *argument, const Run *run) {
    const Transposed *state = argument;
    const int64_t blocks = blocks_of(state),
                  tiles = state->conv.groups * state->count * state->tiles;
    float *shared = (float *)run->shared;
    Job job = {state, run, state->packed, shared, shared};
    if (!state->packed) {
        job.weights = shared;
        job.early += padded(state->packed_group * state->conv.groups, 16);
        share_chunks(run, tiles, pack, &job);
    }
    if (!state->early) {
        share_chunks(run, blocks, make_block, &job);
        return OK;
    }
    if (!state->in_place) share_chunks(run, blocks, copy_early, &job);
    const int64_t groups = ceil_div(state->tiles, state->group);
    share_chunks(run, blocks * lines_of_phases(state) * groups, make_groups, &job);
    return OK;
}

const Kernel ISA(TRANSPOSED)[] = {
    {"ConvTransposed_f32", prepare, run_transposed, release},
    {NULL, NULL, NULL, NULL},
};
