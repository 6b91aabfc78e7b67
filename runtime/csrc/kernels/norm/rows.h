// What kernels along an axis of floats have in common, [rows][length][inner], contiguous: they go by
// pieces, which are rows, blocks of columns that lie side by side, or panels of several rows (lines.h).
#ifndef POPC_ROWS_H
#define POPC_ROWS_H

#include <stdlib.h>

#include "../../kernel.h"
#include "../support/lines.h"

enum {
    ROW_WORK = 1 << 14,  // elements of a chunk: see sizes.h
    COLUMN_BLOCK = 128,  // columns that are gone down together: lines of 512 bytes
};

typedef struct {
    int64_t rows, length, inner;
    const float *x;
    float *y;
    int64_t outers;  // rows of a panel, 0 if there are none
    int64_t blocks;  // of columns, in a row
    int64_t pieces, unit;  // and how many of them a chunk has
} Rows;

// Columns: the first element of each, at what distance others follow, and where it ends up.
typedef struct {
    const float *x;
    float *y;
    int64_t step, count;
} Columns;

// `reduces`: the result has one element for each row and column.
static inline bool read_rows(Rows *rows, Params *params, bool reduces) {
    const Tensor x = next_tensor(params), y = next_tensor(params);
    rows->rows = next_int(params);
    rows->length = next_int(params);
    rows->inner = next_int(params);
    rows->x = (const float *)x.data;
    rows->y = (float *)y.data;
    const int64_t all = size_of(rows->rows, rows->length, rows->inner);
    const int64_t results = reduces ? size_of(rows->rows, rows->inner, 1) : all;
    return !params->bad && all > 0 && holds(&x, F32, all) && holds(&y, F32, results);
}

// Pieces of rows, of which one with columns has up to `block`; what a thread needs for a panel.
static inline int64_t cut_rows(Rows *rows, int64_t block) {
    rows->outers =
        outers_of_panel(rows->rows, rows->length, rows->inner, sizeof(float), SHORT_LINE);
    rows->blocks = ceil_div(rows->inner, block);
    rows->pieces = rows->outers ? ceil_div(rows->rows, rows->outers) : rows->rows * rows->blocks;
    const int64_t columns = rows->outers ? rows->outers * rows->inner : lesser(rows->inner, block);
    rows->unit = ceil_div(ROW_WORK, columns * rows->length);
    return rows->outers ? columns * rows->length * (int64_t)sizeof(float) : 0;
}

// The state of a kernel that needs nothing else; NULL if its operands are no such rows.
static inline void *prepare_rows(Params *params, Needs *needs, bool reduces, int64_t block) {
    Rows *rows = calloc(1, sizeof(Rows));
    if (!rows || !read_rows(rows, params, reduces)) {
        free(rows);
        return NULL;
    }
    reads_anywhere(needs, &rows->x);
    writes_anywhere(needs, &rows->y);
    needs->own = cut_rows(rows, block);
    return rows;
}

static inline int64_t rows_of_panel(const Rows *rows, int64_t piece) {
    return lesser(rows->outers, rows->rows - piece * rows->outers);
}

// Rows of a panel from the element `begin` of each on, `n` of them.
static inline void read_panel(
    const Rows *rows, int64_t piece, int64_t begin, int64_t n, float *panel) {
    const int64_t size = rows->length * rows->inner, run = rows->inner * (int64_t)sizeof(float);
    const float *from = rows->x + piece * rows->outers * size + begin * rows->inner;
    fill_panel(
        (const char *)from, size * (int64_t)sizeof(float), rows_of_panel(rows, piece), n, run,
        (char *)panel, rows->outers * run);
}

static inline void write_panel(const Rows *rows, int64_t piece, const float *panel) {
    const int64_t size = rows->length * rows->inner, run = rows->inner * (int64_t)sizeof(float);
    empty_panel(
        (const char *)panel, rows->outers * run, (char *)(rows->y + piece * rows->outers * size),
        size * (int64_t)sizeof(float), rows_of_panel(rows, piece), rows->length, run);
}

// A block of columns where they lie, which end up in the same place of the result.
static inline Columns columns_of(const Rows *rows, int64_t piece, int64_t block) {
    const int64_t begin = piece % rows->blocks * block;
    const int64_t place = piece / rows->blocks * rows->length * rows->inner + begin;
    const int64_t count = lesser(rows->inner - begin, block);
    return (Columns){rows->x + place, rows->y + place, rows->inner, count};
}

typedef void (*PieceFn)(const Rows *rows, int64_t piece, float *panel);

typedef struct {
    const Rows *rows;
    const Run *run;
    PieceFn work;
} RowsJob;

static inline void some_pieces(void *context, int64_t chunk, int thread) {
    const RowsJob *job = context;
    const Rows *rows = job->rows;
    const int64_t end = lesser((chunk + 1) * rows->unit, rows->pieces);
    for (int64_t piece = chunk * rows->unit; piece < end; piece++)
        job->work(rows, piece, (float *)(void *)job->run->own[thread]);
}

static inline Failure for_pieces(const Rows *rows, const Run *run, PieceFn work) {
    RowsJob job = {rows, run, work};
    share_chunks(run, ceil_div(rows->pieces, rows->unit), some_pieces, &job);
    return OK;
}

#endif
