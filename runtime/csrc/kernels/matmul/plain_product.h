// Panels and rows of products of a TYPE, for plain_products.c: included for each.

#define OF(NAME) JOIN(NAME, TYPE)

typedef TYPE OF(Vector) __attribute__((vector_size(VECTOR_BYTES)));
typedef TYPE OF(Loose) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(TYPE)), may_alias));

static void OF(pack_panel)(const State *state, const char *right, int64_t columns, char *to) {
    enum { COLUMNS = PANEL_BYTES / sizeof(TYPE) };
    TYPE *panel = (TYPE *)(void *)to;
    const bool whole = columns == COLUMNS && state->right_column == (int64_t)sizeof(TYPE);
    for (int64_t p = 0; p < state->k; p++, panel += COLUMNS) {
        const char *line = right + p * state->right_along;
        if (whole) {
            memcpy(panel, line, PANEL_BYTES);
            continue;
        }
        for (int64_t j = 0; j < COLUMNS; j++)
            panel[j] = j < columns ? *(const TYPE *)(const void *)(line + j * state->right_column)
                                   : 0;
    }
}

// `rows` rows of a panel's columns; rows that are not there are the last one again.  Sums of slices
// are added up: fewer roundings follow each other.
static void OF(multiply_rows)(
    const State *state, const char *left, const char *from, int64_t rows, int64_t columns,
    char *out) {
    enum { WIDE = VECTOR_BYTES / sizeof(TYPE), COLUMNS = 2 * WIDE };
    const TYPE *panel = (const TYPE *)(const void *)from;
    OF(Vector) totals[ROWS][2] = {{{0}}};
    const char *lines[ROWS];
    for (int64_t i = 0; i < ROWS; i++)
        lines[i] = left + (i < rows ? i : rows - 1) * state->left_row;
    for (int64_t start = 0; start < state->k; start += SLICE) {
        const int64_t end = lesser(start + SLICE, state->k);
        OF(Vector) sums[ROWS][2] = {{{0}}};
        for (int64_t p = start; p < end; p++, panel += COLUMNS) {
            const OF(Vector) first = *(const OF(Loose) *)panel;
            const OF(Vector) second = *(const OF(Loose) *)(panel + WIDE);
            UNROLLED_FOR (int i = 0; i < ROWS; i++) {
                const TYPE value = *(const TYPE *)(const void *)(lines[i] + p * state->left_along);
                sums[i][0] += first * value;
                sums[i][1] += second * value;
            }
        }
        UNROLLED_FOR (int i = 0; i < ROWS; i++) {
            totals[i][0] += sums[i][0];
            totals[i][1] += sums[i][1];
        }
    }
    for (int64_t i = 0; i < rows; i++) {
        TYPE line[COLUMNS];
        memcpy(line, totals[i], sizeof(line));
        for (int64_t j = 0; j < columns; j++)
            *(TYPE *)(void *)(out + i * state->out_row + j * state->out_column) = line[j];
    }
}

#undef OF
#undef TYPE
