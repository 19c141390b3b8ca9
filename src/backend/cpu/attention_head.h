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

/* One sample's qkv (T,W), y (T, heads width), logsum (heads,T) or NULL; head in [0, heads). */
void ls__cpu_attention_head(const attention_shape *s, const float *qkv, int64_t head, float *y,
                            float *logsum, float *scratch);
/* The heads that share keys and values of kv_head: fills their columns of dqkv (T,W). */
void ls__cpu_attention_grad_group(const attention_shape *s, const float *g, const float *qkv,
                                  const float *y, const float *logsum, int64_t kv_head, float *dqkv,
                                  float *scratch);

/* --- what both directions share (attention_tile.c) --- */

/* A block of keys against a tile of queries. */
typedef struct attention_block {
    int64_t first; /* key */
    int64_t keys;
    int64_t vectors; /* of the tile's queries */
    bool diagonal;   /* key i is query i: only later queries see it */
} attention_block;

/* The block of keys from `first` on for the tile of queries from t on; false when no query sees
 * it. */
bool ls__cpu_attention_block(const attention_shape *s, int64_t t, int64_t first,
                             attention_block *out);

/* On the diagonal: the score of a key that comes after the query becomes -infinity, in the groups
 * that are computed. */
void ls__cpu_attention_hide(const attention_block *b, float *scores);

/* Loops over the parts of a block with the same vectors: groups of 16 keys on the diagonal,
 * else one. */
#define FOR_GROUPS(block, group, size, vector)                                                     \
    for (int64_t group = 0, vector = 0, size = (block)->diagonal ? LANES : (block)->keys;          \
         group < (block)->keys; group += size, vector += (block)->diagonal)

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
