/* Attention, backward, in tiles as forward: one launch for queries, whose blocks go through keys,
 * one for keys and values, whose blocks go through the queries of the heads that share them. The
 * scores are computed twice, and nothing is added by two blocks at once: the order of every sum is
 * that of the shape.
 *
 * A block holds up to 128 columns of results; wider heads are divided among blocks. */
#include "backend/cuda/kernel_attention_tile.h"

/* --- g.y of every row --- */

/* A warp per row. along: (B,H,T) */
static __global__ void dot_outputs(attention_shape s, const void *g, bool g_half, bool g_rounds,
                                   const void *y, bool y_half, bool y_rounds, float *along)
{
    typedef row_of<LS_WARP> row;
    const int64_t r = row::index(), head = r / s.tokens;
    if (head >= s.batch * s.heads) return;
    const head_rows gs =
        at_token(output_rows(s, { g, g_half, g_rounds }, head / s.heads, (int)(head % s.heads)),
                 r % s.tokens);
    const head_rows ys =
        at_token(output_rows(s, { y, y_half, y_rounds }, head / s.heads, (int)(head % s.heads)),
                 r % s.tokens);
    float sum = 0;
    for (int d = row::lane(); d < s.width; d += LS_WARP) sum += gs.at(0, d) * ys.at(0, d);
    sum = row::combine(sum, sum_of());
    if (row::lane() == 0) along[r] = sum;
}

/* --- what both passes compute --- */

/* Of a pair of a query and a key: what the forward pass left of the query. */
struct query_sums {
    const float *logsum, *along; /* (T) of the head */
};

/* p = exp(scale s - logsum), 0 where the query does not see the key */
static __device__ inline float weight_of(const attention_shape &s, const query_sums &sums,
                                         float score, int64_t t, int64_t u)
{
    const bool seen = t < s.tokens && u < s.tokens && (!s.causal || u <= t);
    return seen ? expf(score * s.scale - sums.logsum[t]) : 0;
}

/* ds = scale p (dp - r) */
static __device__ inline float slope_of(const attention_shape &s, const query_sums &sums, float p,
                                        float dp, int64_t t, int64_t u)
{
    const bool seen = t < s.tokens && u < s.tokens && (!s.causal || u <= t);
    return seen ? s.scale * p * (dp - sums.along[t]) : 0;
}

/* --- queries: rows are queries, columns keys --- */

template <int GROUPS>
static __global__ void grad_queries(attention_shape s, const void *g, bool g_half, bool g_rounds,
                                    const void *qkv, bool half, bool rounds, const float *logsum,
                                    const float *along, void *dqkv, bool d_half)
{
    __shared__ tile_memory memory;
    const tile_place at = place_of(s.tokens, s.heads, true);
    const int kv = at.head / (s.heads / s.kv_heads), column = (int)blockIdx.y * GROUPS * TILE;
    const int64_t row = qkv_row(s), n = s.tokens, head = at.sample * s.heads + at.head;
    const int64_t from = query_at(s, at.sample, at.head);
    const head_rows queries = at_token(rows_of(qkv, half, rounds, from, row, n, s.width), at.first);
    const head_rows slopes =
        at_token(output_rows(s, { g, g_half, g_rounds }, at.sample, at.head), at.first);
    const head_rows keys = rows_of(qkv, half, rounds, key_at(s, at.sample, kv), row, n, s.width);
    const head_rows values =
        rows_of(qkv, half, rounds, value_at(s, at.sample, kv), row, n, s.width);
    const query_sums sums = { logsum + head * n, along + head * n };
    const int64_t end = s.causal && at.first + TILE < n ? at.first + TILE : n;
    const float one[SIDE] = { 1, 1, 1, 1 };

    float dq[GROUPS][SIDE][SIDE] = {}, p[SIDE][SIDE], dp[SIDE][SIDE];
    for (int64_t key = 0; key < end; key += TILE) {
        dot_rows(p, queries, at_token(keys, key), &memory);
        dot_rows(dp, slopes, at_token(values, key), &memory);
        for (int i = 0; i < SIDE; i++)
            for (int j = 0; j < SIDE; j++) {
                const int64_t t = at.first + tile_y() + i, u = key + tile_x() + j;
                p[i][j] = weight_of(s, sums, p[i][j], t, u);
                p[i][j] = slope_of(s, sums, p[i][j], dp[i][j], t, u);
            }
        store_weights(&memory, p);
        add_weighted(dq, at_token(keys, key), column, &memory);
    }
    put_rows(dqkv, d_half, from, row, dq, one, at.first, n, column, s.width);
}

/* --- keys and values: rows are keys, columns queries --- */

/* One head's part. */
template <int GROUPS>
static __device__ inline void
add_head(float (&dk)[GROUPS][SIDE][SIDE], float (&dv)[GROUPS][SIDE][SIDE], const attention_shape &s,
         const head_rows &keys, const head_rows &values, const head_rows &queries,
         const head_rows &slopes, const query_sums &sums, int column, tile_memory *memory)
{
    float p[SIDE][SIDE], dp[SIDE][SIDE];
    for (int64_t query = s.causal ? keys.first : 0; query < s.tokens; query += TILE) {
        dot_rows(p, keys, at_token(queries, query), memory);
        for (int i = 0; i < SIDE; i++)
            for (int j = 0; j < SIDE; j++)
                p[i][j] =
                    weight_of(s, sums, p[i][j], query + tile_x() + j, keys.first + tile_y() + i);
        store_weights(memory, p);
        add_weighted(dv, at_token(slopes, query), column, memory);
        dot_rows(dp, values, at_token(slopes, query), memory);
        for (int i = 0; i < SIDE; i++)
            for (int j = 0; j < SIDE; j++)
                p[i][j] = slope_of(s, sums, p[i][j], dp[i][j], query + tile_x() + j,
                                   keys.first + tile_y() + i);
        store_weights(memory, p);
        add_weighted(dk, at_token(queries, query), column, memory);
    }
}

template <int GROUPS>
static __global__ void grad_keys(attention_shape s, const void *g, bool g_half, bool g_rounds,
                                 const void *qkv, bool half, bool rounds, const float *logsum,
                                 const float *along, void *dqkv, bool d_half)
{
    __shared__ tile_memory memory;
    const tile_place at = place_of(s.tokens, s.kv_heads, false);
    const int group = s.heads / s.kv_heads, column = (int)blockIdx.y * GROUPS * TILE;
    const int64_t row = qkv_row(s), n = s.tokens;
    const int64_t key = key_at(s, at.sample, at.head), value = value_at(s, at.sample, at.head);
    const head_rows keys = at_token(rows_of(qkv, half, rounds, key, row, n, s.width), at.first);
    const head_rows values = at_token(rows_of(qkv, half, rounds, value, row, n, s.width), at.first);
    const float one[SIDE] = { 1, 1, 1, 1 };
    float dk[GROUPS][SIDE][SIDE] = {}, dv[GROUPS][SIDE][SIDE] = {};
    for (int h = at.head * group; h < (at.head + 1) * group; h++) {
        const int64_t head = at.sample * s.heads + h;
        const query_sums sums = { logsum + head * n, along + head * n };
        add_head(dk, dv, s, keys, values,
                 rows_of(qkv, half, rounds, query_at(s, at.sample, h), row, n, s.width),
                 output_rows(s, { g, g_half, g_rounds }, at.sample, h), sums, column, &memory);
    }
    put_rows(dqkv, d_half, key, row, dk, one, at.first, n, column, s.width);
    put_rows(dqkv, d_half, value, row, dv, one, at.first, n, column, s.width);
}

/* --- launches --- */

template <int GROUPS>
static void launch(const attention_shape *s, const attention_backward *a, cudaStream_t stream)
{
    const int64_t tiles = (s->tokens + TILE - 1) / TILE;
    const unsigned columns = blocks_for(s->width, GROUPS * TILE);
    LS_LAUNCH(grad_queries<GROUPS>, dim3((unsigned)(s->batch * s->heads * tiles), columns),
              LS_BLOCK, 0, stream, *s, a->g.data, a->g.half, a->g.rounds, a->qkv.data, a->qkv.half,
              a->qkv.rounds, a->logsum, a->along, a->dqkv.data, a->dqkv.half);
    LS_LAUNCH(grad_keys<GROUPS>, dim3((unsigned)(s->batch * s->kv_heads * tiles), columns),
              LS_BLOCK, 0, stream, *s, a->g.data, a->g.half, a->g.rounds, a->qkv.data, a->qkv.half,
              a->qkv.rounds, a->logsum, a->along, a->dqkv.data, a->dqkv.half);
}

void ls__launch_attention_grad(const attention_shape *s, const attention_backward *a,
                               cudaStream_t stream)
{
    LS_LAUNCH(dot_outputs, blocks_for(s->batch * s->heads * s->tokens, LS_WARPS), LS_BLOCK, 0,
              stream, *s, a->g.data, a->g.half, a->g.rounds, a->y.data, a->y.half, a->y.rounds,
              a->along);
    if ((a->qkv.half || a->qkv.rounds) && s->width <= LS__ATTENTION_HALF_WIDEST)
        ls__launch_attention_grad_half(s, a, stream);
    else if (s->width <= TILE)
        launch<1>(s, a, stream);
    else
        launch<2>(s, a, stream);
}
