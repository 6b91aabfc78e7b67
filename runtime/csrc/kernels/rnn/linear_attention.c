// Linear attention: a state of each head that forgets, learns a token, and answers its queries.
//
// Columns of a state do not depend on each other.  Some of them, all rows, stay in the first cache of a
// thread for all tokens.  A pass over them forgets, learns and answers a token, and finds what the state
// knows of the next one's key.
#include <stdlib.h>

#include "../../kernel.h"
#include "../support/partial.h"
#include "../support/simd.h"
#include "../support/sizes.h"

enum { VECTORS = LANES == 16 ? 4 : 2, WIDTH = VECTORS * LANES };

typedef struct {
    const float *state, *q, *k, *v;
    const float *decay, *beta;  // NULL: absent
    float *answers, *last;
    int64_t tokens, heads;  // of all samples
    int64_t queries, keys, values;
    int64_t decays;  // of a head and token: one, or one for each key
    int64_t blocks;  // of columns of a head
} Attention;

static bool read_attention(Attention *attention, Params *params) {
    Tensor all[8];
    for (int i = 0; i < 8; i++)
        all[i] = i == 4 || i == 5 ? maybe_tensor(params) : next_tensor(params);
    const Tensor state = all[0], q = all[1], decay = all[4];
    if (params->bad || state.rank != 4 || q.rank != 5 || (decay.data && decay.rank != 5))
        return false;
    const int64_t T = q.dims[0], heads = size_of(state.dims[0], state.dims[1], 1);
    const int64_t K = state.dims[2], V = state.dims[3], Q = q.dims[3], rows = size_of(T, heads, 1);
    const int64_t decays = decay.data ? decay.dims[3] : 1, inner = size_of(K, V, 1);
    const bool fits =
        T > 0 && heads > 0 && inner > 0 && Q > 0 && (decays == 1 || decays == K) &&
        holds(&state, F32, size_of(heads, inner, 1)) && holds(&q, F32, size_of(rows, Q, K)) &&
        holds(&all[2], F32, size_of(rows, K, 1)) && holds(&all[3], F32, size_of(rows, V, 1)) &&
        may_hold(&decay, F32, size_of(rows, decays, 1)) && may_hold(&all[5], F32, rows) &&
        holds(&all[6], F32, size_of(rows, Q, V)) && holds(&all[7], F32, size_of(heads, inner, 1));
    if (!fits) return false;
    const float *at[8];
    for (int i = 0; i < 8; i++) at[i] = (const float *)(const void *)all[i].data;
    *attention = (Attention){
        at[0],
        at[1],
        at[2],
        at[3],
        at[4],
        at[5],
        (float *)(void *)all[6].data,
        (float *)(void *)all[7].data,
        T,
        heads,
        Q,
        K,
        V,
        decays,
        ceil_div(V, WIDTH)};
    return true;
}

static void *prepare(Params *params, Needs *needs) {
    Attention *attention = calloc(1, sizeof(Attention));
    if (!attention || !read_attention(attention, params)) {
        free(attention);
        return NULL;
    }
    const float **places[] = {&attention->state, &attention->q,     &attention->k,
                              &attention->v,     &attention->decay, &attention->beta};
    for (int i = 0; i < 6; i++) reads_anywhere(needs, places[i]);
    writes_anywhere(needs, &attention->answers);
    writes_anywhere(needs, &attention->last);
    // Columns of a state, the decay of each row, and the next key as the state before it meets it.
    needs->own = attention->keys * (WIDTH + 2) * (int64_t)sizeof(float);
    return attention;
}

typedef struct { Floats at[VECTORS]; } Line;

INLINE Line zeros(void) {
    Line line;
    UNROLLED_FOR (int v = 0; v < VECTORS; v++) line.at[v] = (Floats){0};
    return line;
}

static Line load_line(const float *from, int64_t count) {
    Line line = zeros();
    for (int v = 0; v < VECTORS && v * LANES < count; v++)
        line.at[v] = count - v * LANES >= LANES ? load(from + v * LANES)
                                                : load_some(from + v * LANES, count - v * LANES);
    return line;
}

static void store_line(float *to, const Line *line, int64_t count) {
    for (int v = 0; v < VECTORS && v * LANES < count; v++) {
        if (count - v * LANES >= LANES)
            store(to + v * LANES, line->at[v]);
        else
            store_some(to + v * LANES, line->at[v], count - v * LANES);
    }
}

// The product of a line and the columns.
static Line product_with(const float *line, const float *columns, int64_t keys) {
    Line sums = zeros();
    for (int64_t i = 0; i < keys; i++, columns += WIDTH) {
        const Floats factor = all_of(line[i]);
        UNROLLED_FOR (int v = 0; v < VECTORS; v++) sums.at[v] += factor * load(columns + v * LANES);
    }
    return sums;
}

// A token: its key, what it learns and asks.  `known` becomes what the state knows of the next one.
static Line take_token(
    float *columns, int64_t keys, const float *decay, const float *key, const Line *learnt,
    const float *query, const float *next, Line *known) {
    const Line news = *learnt;
    Line answer = zeros(), found = zeros();
    for (int64_t i = 0; i < keys; i++, columns += WIDTH) {
        const Floats fades = all_of(decay[i]), k = all_of(key[i]);
        const Floats q = all_of(query[i]), n = all_of(next[i]);
        UNROLLED_FOR (int v = 0; v < VECTORS; v++) {
            const Floats value = fades * load(columns + v * LANES) + k * news.at[v];
            store(columns + v * LANES, value);
            answer.at[v] += q * value;
            found.at[v] += n * value;
        }
    }
    *known = found;
    return answer;
}

// The decays of a token, and its key as the state before it meets it.
static void fill_decays(const Attention *attention, int64_t row, float *decays) {
    const float *decay = attention->decay ? attention->decay + row * attention->decays : NULL;
    for (int64_t i = 0; i < attention->keys; i++)
        decays[i] = !decay ? 1 : decay[attention->decays > 1 ? i : 0];
}

static void fill_key(const Attention *attention, int64_t row, float *key) {
    const float *decay = attention->decay ? attention->decay + row * attention->decays : NULL;
    const float *k = attention->k + row * attention->keys;
    for (int64_t i = 0; i < attention->keys; i++)
        key[i] = !decay ? k[i] : k[i] * decay[attention->decays > 1 ? i : 0];
}

static Line learnt_by(
    const Attention *attention, int64_t row, int64_t column, int64_t count, const Line *known) {
    Line line = load_line(attention->v + row * attention->values + column, count);
    if (!attention->beta) return line;
    const Floats beta = all_of(attention->beta[row]);
    for (int v = 0; v < VECTORS; v++) line.at[v] = beta * (line.at[v] - known->at[v]);
    return line;
}

// Of all tokens, the columns of a head from one on; rows of `columns` are WIDTH floats.
static void take_tokens(
    const Attention *attention, int64_t head, int64_t column, int64_t count, float *columns) {
    const int64_t K = attention->keys, V = attention->values, Q = attention->queries;
    float *decays = columns + K * WIDTH, *next = decays + K;
    fill_key(attention, head, next);
    Line known = product_with(next, columns, K);
    for (int64_t t = 0; t < attention->tokens && !pool_is_stopped(); t++) {
        const int64_t row = t * attention->heads + head;
        const Line learnt = learnt_by(attention, row, column, count, &known);
        fill_decays(attention, row, decays);
        if (t + 1 < attention->tokens) fill_key(attention, row + attention->heads, next);
        const float *query = attention->q + row * Q * K;
        float *answers = attention->answers + row * Q * V + column;
        const Line first =
            take_token(columns, K, decays, attention->k + row * K, &learnt, query, next, &known);
        store_line(answers, &first, count);
        for (int64_t i = 1; i < Q; i++) {
            const Line answer = product_with(query + i * K, columns, K);
            store_line(answers + i * V, &answer, count);
        }
    }
}

typedef struct {
    const Attention *attention;
    const Run *run;
} Job;

static void some_columns(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const Attention *attention = job->attention;
    const int64_t head = chunk / attention->blocks, column = chunk % attention->blocks * WIDTH;
    const int64_t K = attention->keys, V = attention->values, count = lesser(WIDTH, V - column);
    float *columns = (float *)(void *)job->run->own[thread];
    for (int64_t i = 0; i < K; i++) {
        const Line line = load_line(attention->state + (head * K + i) * V + column, count);
        for (int v = 0; v < VECTORS; v++) store(columns + i * WIDTH + v * LANES, line.at[v]);
    }
    take_tokens(attention, head, column, count, columns);
    for (int64_t i = 0; i < K; i++) {
        const Line line = load_line(columns + i * WIDTH, WIDTH);
        store_line(attention->last + (head * K + i) * V + column, &line, count);
    }
}

static Failure run_attention(const void *state, const Run *run) {
    const Attention *attention = state;
    Job job = {attention, run};
    share_chunks(run, attention->heads * attention->blocks, some_columns, &job);
    return OK;
}

const Kernel ISA(LINEAR_ATTENTIONS)[] = {
    {"LinearAttention_f32", prepare, run_attention, NULL},
    {NULL, NULL, NULL, NULL},
};
