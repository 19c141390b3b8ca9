/* Attention of one head, forward: the softmax of a row of scores is never whole; the largest score
 * so far and the sum so far go along, and what was summed before a larger one came is scaled down.
 * Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018). */
#include "backend/cpu/attention_head.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/lanes_math.h"

#include <math.h>
#include <string.h>

/* One tile's queries, transposed, and what they have summed. */
typedef struct tile {
    float *queries;      /* (width, TILE), scaled */
    float *scores;       /* (KEYS, TILE) */
    float *sums;         /* (width, TILE) of exp(score - largest) value */
    float largest[TILE]; /* score so far */
    float total[TILE];   /* of exp(score - largest) */
    float shrink[TILE];  /* exp(largest before - largest now), of the block at hand */
} tile;

size_t ls__cpu_attention_scratch(const attention_shape *s)
{
    return (size_t)(2 * s->width + KEYS) * TILE;
}

/* Scores of one vector of queries become exp(score - largest). True when the largest has grown. */
LS__CPU_CLONES static bool exponentials(float *scores, int64_t keys, float *largest, float *total,
                                        float *shrink)
{
    lanes most, before, sum, factor, s;
    lanes_load(&before, largest);
    most = before;
    for (int64_t i = 0; i < keys; i++) {
        lanes_load(&s, scores + i * TILE);
        lanes_i32 larger = s > most;
        lanes_choose(&most, &larger, &s);
    }
    factor = before - most;
    lanes_exp_falling(&factor);
    lanes_load(&sum, total);
    sum = sum * factor;
    for (int64_t i = 0; i < keys; i++) {
        lanes_load(&s, scores + i * TILE);
        s = s - most;
        lanes_exp_falling(&s);
        sum = sum + s;
        lanes_store(scores + i * TILE, &s);
    }
    lanes_store(largest, &most);
    lanes_store(total, &sum);
    lanes_store(shrink, &factor);
    return memcmp(&most, &before, sizeof most) != 0;
}

LS__CPU_CLONES static void shrink_sums(float *sums, int64_t width, const float *shrink)
{
    lanes factor, s;
    lanes_load(&factor, shrink);
    for (int64_t d = 0; d < width; d++) {
        lanes_load(&s, sums + d * TILE);
        s = s * factor;
        lanes_store(sums + d * TILE, &s);
    }
}

static void attend(tile *t, const attention_block *b, int64_t width)
{
    for (int64_t v = 0; v < b->vectors; v++) {
        int64_t at = v * LANES, keys = ls__cpu_attention_seen(b, v);
        if (b->diagonal) ls__cpu_attention_hide(t->scores + at, at, keys);
        if (exponentials(t->scores + at, keys, t->largest + at, t->total + at, t->shrink + at))
            shrink_sums(t->sums + at, width, t->shrink + at);
    }
}

static void begin(tile *t, int64_t width)
{
    memset(t->sums, 0, (size_t)(width * TILE) * sizeof *t->sums);
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

void ls__cpu_attention_head(const attention_shape *s, const float *qkv, int64_t head, float *y,
                            float *logsum, float *scratch)
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
        begin(&t, width);
        attention_block b;
        for (int64_t key = 0; ls__cpu_attention_block(s, first, key, &b); key += KEYS) {
            ls__cpu_attention_scores(&b, keys, s->row, width, t.queries, t.scores);
            attend(&t, &b, width);
            ls__cpu_attention_gather(&b, values, s->row, width, t.scores, t.sums);
        }
        finish(&t, s, first, y + first * s->heads * width + head * width,
               logsum ? logsum + head * s->tokens + first : NULL);
    }
}
