/* Attention of one head, tile by tile.
 *
 * A tile is 64 queries, one per lane of four vectors: scores lie as (keys, queries), so that the
 * largest score and the sum of a query are taken lane by lane, and keys and values are read where
 * the linear layer before left them. Keys come in blocks of 64. A block above the diagonal is not
 * computed; on it the work is cut into groups of 16 keys, each with the vectors of queries that see
 * any of them.
 *
 * Nothing here is larger than tokens x width: T x T scores exist 64 x 64 at a time. */
#ifndef LS_BACKEND_CPU_ATTENTION_HEAD_H
#define LS_BACKEND_CPU_ATTENTION_HEAD_H

#include <stddef.h>

#include "backend/cpu/ahead.h"
#include "backend/cpu/panel.h"

enum { TILE = PANEL_COLUMNS, KEYS = 64 };

typedef struct attention_shape {
    int64_t heads, kv_heads, width;
    int64_t tokens;
    int64_t row; /* floats of a token in qkv */
    bool causal;
    float scale;
} attention_shape;

/* width rounded up to whole vectors. */
static inline int64_t padded_width(const attention_shape *s)
{
    return (s->width + LANES - 1) / LANES * LANES;
}

/* Floats of scratch that a head takes, forward and backward. */
size_t ls__cpu_attention_scratch(const attention_shape *s);
size_t ls__cpu_attention_grad_scratch(const attention_shape *s);

/* One sample's qkv (T,W), y (T, heads width), logsum (heads,T) or NULL; head in [0, heads). last: no
 * other sample lies behind this one. */
void ls__cpu_attention_head(const attention_shape *s, const float *qkv, int64_t head, bool last,
                            float *y, float *logsum, float *scratch);
/* The heads that share keys and values of kv_head: fills their columns of dqkv (T,W). */
void ls__cpu_attention_grad_group(const attention_shape *s, const float *g, const float *qkv,
                                  const float *y, const float *logsum, int64_t kv_head, bool last,
                                  float *dqkv, float *scratch);

/* --- what both directions share (attention_tile.c) --- */

/* Heads lie side by side, in rows that are far apart, and no cache holds a layer's. So while a tile
 * of one head is computed, that of the next one is asked for, a few rows with every group of keys. */
typedef struct attention_ahead {
    int64_t head, kv_head; /* the next ones */
    int64_t token;         /* the first of so many rows, */
    int64_t rows;          /* 0 = there is none */
    int64_t times;         /* in which they are asked for */
    int nparts;
    ahead parts[8];
} attention_ahead;

/* While queries from `first` on of this head are computed: the same of the head `step` heads on.
 * products: that a block of keys takes, with passes over its scores. */
attention_ahead ls__cpu_attention_ahead(const attention_shape *s, int64_t head, int64_t step,
                                        bool last, int64_t first, int products);
/* x (tokens, row): its columns of a head. */
static inline void ask_for_head(attention_ahead *a, const attention_shape *s, const float *x,
                                int64_t row, int64_t column)
{
    if (a->rows == 0) return;
    a->parts[a->nparts++] = ask_for(x + a->token * row + column, row, a->rows, s->width, a->times);
}

static inline void ask_all(attention_ahead *a)
{
    for (int i = 0; i < a->nparts; i++) ask(&a->parts[i]);
}

/* A block of keys against a tile of queries. */
typedef struct attention_block {
    int64_t first; /* key */
    int64_t keys;
    int64_t vectors;       /* of the tile's queries */
    bool diagonal;         /* key i is query i: only later queries see it */
    attention_ahead *next; /* asked for between its groups */
} attention_block;

/* The block of keys from `first` on for the tile of queries from t on; false when no query sees
 * it. */
bool ls__cpu_attention_block(const attention_shape *s, int64_t t, int64_t first,
                             attention_ahead *next, attention_block *out);

/* On the diagonal: the score of a key that comes after the query becomes -infinity, in the groups
 * that are computed. */
void ls__cpu_attention_hide(const attention_block *b, float *scores);

/* Loops over the parts of a block with the same vectors: groups of 16 keys on the diagonal,
 * else one. */
#define FOR_GROUPS(block, group, size, vector)                                                     \
    for (int64_t group = 0, vector = 0, size = (block)->diagonal ? LANES : (block)->keys;          \
         group < (block)->keys;                                                                    \
         group += size, vector += (block)->diagonal, ask_all((block)->next))

static inline int64_t group_keys(const attention_block *b, int64_t group, int64_t size)
{
    return b->keys - group < size ? b->keys - group : size;
}

/* scores (keys, TILE) = x (tokens, width) panel (width, TILE); x: keys or values where they lie in
 * qkv. Copying them together first was no gain. */
void ls__cpu_attention_scores(const attention_shape *s, const attention_block *b, const float *x,
                              const float *panel, float *scores);
/* sums (width, TILE) += x^T scores; = with the first block of keys */
void ls__cpu_attention_gather(const attention_shape *s, const attention_block *b, const float *x,
                              const float *scores, float *sums);

#endif
