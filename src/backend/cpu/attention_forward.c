/* Attention of one head, forward: the softmax of a row of scores is never whole; the largest score
 * so far and the sum so far go along, and what was summed before a larger one came is scaled down.
 * Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018). */
#include "backend/cpu/attention_head.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/lanes_math.h"

#include <math.h>
#include <string.h>

enum { PRODUCTS = 4 /* of a block: scores, two passes over them, what is summed */ };

/* One tile's queries, transposed, and what they have summed. */
typedef struct tile {
    float *queries;      /* (width, TILE), scaled */
    float *scores;       /* (KEYS, TILE) */
    float *sums;         /* (width, TILE) of exp(score - largest) value */
    float largest[TILE]; /* score so far */
    float total[TILE];   /* of exp(score - largest) */
} tile;

size_t ls__cpu_attention_scratch(const attention_shape *s)
{
    return (size_t)(2 * s->width + KEYS) * TILE;
}

/* The largest of `rows` scores of each query, and of what is known already. */
LANES_INLINE void raise_each(const float *scores, int64_t rows, float *largest, const int n)
{
    lanes most[PANEL_VECTORS], s;
    LANES_EACH(v, n) lanes_load(&most[v], largest + v * LANES);
    for (int64_t i = 0; i < rows; i++) LANES_EACH(v, n)
        {
            lanes_load(&s, scores + i * TILE + v * LANES);
            lanes_raise(&most[v], &s);
        }
    LANES_EACH(v, n) lanes_store(largest + v * LANES, &most[v]);
}

LS__CPU_CLONES static void raise_largest(const float *scores, int64_t rows, int64_t vectors,
                                         float *largest)
{
    if (vectors == 4) raise_each(scores, rows, largest, 4);
    if (vectors == 3) raise_each(scores, rows, largest, 3);
    if (vectors == 2) raise_each(scores, rows, largest, 2);
    if (vectors == 1) raise_each(scores, rows, largest, 1);
}

/* Scores become exp(score - largest), which are added to total. */
LANES_INLINE void exponentials_each(float *scores, int64_t rows, const float *largest, float *total,
                                    const int n)
{
    lanes most[PANEL_VECTORS], sum[PANEL_VECTORS], s[PANEL_VECTORS];
    LANES_EACH(v, n) lanes_load(&most[v], largest + v * LANES);
    LANES_EACH(v, n) lanes_load(&sum[v], total + v * LANES);
    for (int64_t i = 0; i < rows; i++, scores += TILE) {
        LANES_EACH(v, n) lanes_load(&s[v], scores + v * LANES);
        LANES_EACH(v, n) s[v] = s[v] - most[v];
        lanes_exp_falling_each(s, n);
        LANES_EACH(v, n) sum[v] = sum[v] + s[v];
        LANES_EACH(v, n) lanes_store(scores + v * LANES, &s[v]);
    }
    LANES_EACH(v, n) lanes_store(total + v * LANES, &sum[v]);
}

LS__CPU_CLONES static void exponentials(float *scores, int64_t rows, int64_t vectors,
                                        const float *largest, float *total)
{
    if (vectors == 4) exponentials_each(scores, rows, largest, total, 4);
    if (vectors == 3) exponentials_each(scores, rows, largest, total, 3);
    if (vectors == 2) exponentials_each(scores, rows, largest, total, 2);
    if (vectors == 1) exponentials_each(scores, rows, largest, total, 1);
}

/* A vector of queries found larger scores: what it has summed shrinks. */
LS__CPU_CLONES static void shrink(const float *before, const float *largest, float *total,
                                  float *sums, int64_t width)
{
    lanes factor, most, s;
    lanes_load(&factor, before);
    lanes_load(&most, largest);
    factor = factor - most;
    lanes_exp_falling(&factor);
    lanes_load(&s, total);
    s = s * factor;
    lanes_store(total, &s);
    for (int64_t d = 0; d < width; d++, sums += TILE) {
        lanes_load(&s, sums);
        s = s * factor;
        lanes_store(sums, &s);
    }
}

static void attend(tile *t, const attention_block *b, int64_t width)
{
    float before[TILE];
    memcpy(before, t->largest, sizeof before);
    if (b->diagonal) ls__cpu_attention_hide(b, t->scores);
    FOR_GROUPS(b, group, size, vector)
    raise_largest(t->scores + group * TILE + vector * LANES, group_keys(b, group, size),
                  b->vectors - vector, t->largest + vector * LANES);
    for (int64_t at = 0; b->first > 0 && at < b->vectors * LANES; at += LANES)
        if (memcmp(before + at, t->largest + at, LANES * sizeof *before) != 0)
            shrink(before + at, t->largest + at, t->total + at, t->sums + at, width);
    FOR_GROUPS(b, group, size, vector)
    exponentials(t->scores + group * TILE + vector * LANES, group_keys(b, group, size),
                 b->vectors - vector, t->largest + vector * LANES, t->total + vector * LANES);
}

static void begin(tile *t)
{
    for (int i = 0; i < TILE; i++) {
        t->largest[i] = -INFINITY;
        t->total[i] = 0;
    }
}

static void finish(tile *t, const attention_shape *s, int64_t first, float *y, float *logsum)
{
    int64_t queries = s->tokens - first < TILE ? s->tokens - first : TILE;
    float inverse[TILE];
    for (int i = 0; i < TILE; i++) inverse[i] = 1 / t->total[i];
    ls__cpu_panel_store(t->sums, TILE, queries, s->width, inverse, y, s->heads * s->width);
    for (int64_t i = 0; logsum && i < queries; i++)
        logsum[i] = (float)((double)t->largest[i] + log((double)t->total[i]));
}

static attention_ahead expect(const attention_shape *s, const float *qkv, const float *y,
                              int64_t head, bool last, int64_t first)
{
    attention_ahead next = ls__cpu_attention_ahead(s, head, 1, last, first, PRODUCTS);
    ask_for_head(&next, s, qkv, s->row, next.head * s->width);
    ask_for_head(&next, s, qkv, s->row, (s->heads + next.kv_head) * s->width);
    ask_for_head(&next, s, qkv, s->row, (s->heads + s->kv_heads + next.kv_head) * s->width);
    ask_for_head(&next, s, y, s->heads * s->width, next.head * s->width);
    return next;
}

void ls__cpu_attention_head(const attention_shape *s, const float *qkv, int64_t head, bool last,
                            float *y, float *logsum, float *scratch)
{
    int64_t kv_head = head / (s->heads / s->kv_heads), width = s->width;
    const float *queries = qkv + head * width, *keys = qkv + (s->heads + kv_head) * width;
    const float *values = keys + s->kv_heads * width;
    tile t = { .queries = scratch,
               .sums = scratch + width * TILE,
               .scores = scratch + 2 * width * TILE };
    for (int64_t first = 0; first < s->tokens; first += TILE) {
        int64_t count = s->tokens - first < TILE ? s->tokens - first : TILE;
        ls__cpu_panel_load(queries + first * s->row, s->row, count, width, s->scale, t.queries,
                           TILE);
        begin(&t);
        attention_ahead next = expect(s, qkv, y, head, last, first);
        attention_block b;
        for (int64_t key = 0; ls__cpu_attention_block(s, first, key, &next, &b); key += KEYS) {
            ls__cpu_attention_scores(s, &b, keys, t.queries, t.scores);
            attend(&t, &b, width);
            ls__cpu_attention_gather(s, &b, values, t.scores, t.sums);
        }
        finish(&t, s, first, y + first * s->heads * width + head * width,
               logsum ? logsum + head * s->tokens + first : NULL);
    }
}
