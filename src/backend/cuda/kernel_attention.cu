/* Attention, forward: a block has 64 queries of one head and goes through the keys and values 64 at
 * a time; the softmax is corrected when a larger score comes along. Scores never leave the chip.
 * Dao et al., "FlashAttention" (2022); Milakov and Gimelshein, "Online normalizer calculation for
 * softmax" (2018).
 *
 * In f32 on the ordinary units; bf16 numbers go to tensor cores (kernel_attention_half.cu), unless
 * heads are wider than what fits there. A block holds up to 256 columns of results; wider heads are
 * divided among blocks, which compute the same scores. */
#include <cfloat>

#include "backend/cuda/kernel_attention_tile.h"

/* The softmax of the rows of a thread so far. */
struct running_softmax {
    float most[SIDE], sum[SIDE]; /* sum: of this thread's columns */
};

/* scores become exp(score - most); factor: what older sums are multiplied by. */
static __device__ inline void soften(float (&scores)[SIDE][SIDE], running_softmax *soft,
                                     float (&factor)[SIDE])
{
    for (int i = 0; i < SIDE; i++) {
        float most = -FLT_MAX, sum = 0;
        for (int j = 0; j < SIDE; j++) most = fmaxf(most, scores[i][j]);
        most = fmaxf(soft->most[i], combine_across(most, larger_of()));
        factor[i] = expf(soft->most[i] - most);
        for (int j = 0; j < SIDE; j++) {
            scores[i][j] = expf(scores[i][j] - most);
            sum += scores[i][j];
        }
        soft->most[i] = most;
        soft->sum[i] = soft->sum[i] * factor[i] + sum;
    }
}

/* A key that the query does not see weighs nothing. */
static __device__ inline void mask(float (&scores)[SIDE][SIDE], const attention_shape &s,
                                   int64_t query, int64_t key)
{
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) {
            const int64_t t = query + tile_y() + i, u = key + tile_x() + j;
            const bool seen = u < s.tokens && (!s.causal || u <= t);
            scores[i][j] = seen ? scores[i][j] * s.scale : -INFINITY;
        }
}

template <int GROUPS>
static __global__ void attention(attention_shape s, const void *qkv, bool half, bool rounds,
                                 void *y, bool y_half, float *logsum)
{
    __shared__ tile_memory memory;
    const tile_place at = place_of(s.tokens, s.heads, true);
    const int kv = at.head / (s.heads / s.kv_heads), column = (int)blockIdx.y * GROUPS * TILE;
    const int64_t row = qkv_row(s), n = s.tokens;
    const head_rows queries = at_token(
        rows_of(qkv, half, rounds, query_at(s, at.sample, at.head), row, n, s.width), at.first);
    const head_rows keys = rows_of(qkv, half, rounds, key_at(s, at.sample, kv), row, n, s.width);
    const head_rows values =
        rows_of(qkv, half, rounds, value_at(s, at.sample, kv), row, n, s.width);
    const int64_t end = s.causal && at.first + TILE < n ? at.first + TILE : n;

    running_softmax soft = {};
    float out[GROUPS][SIDE][SIDE] = {}, scores[SIDE][SIDE], factor[SIDE];
    for (int i = 0; i < SIDE; i++) soft.most[i] = -FLT_MAX; /* -inf - -inf would be NaN */
    for (int64_t key = 0; key < end; key += TILE) {
        dot_rows(scores, queries, at_token(keys, key), &memory);
        mask(scores, s, at.first, key);
        soften(scores, &soft, factor);
        store_weights(&memory, scores);
        LS_UNROLL
        for (int c = 0; c < GROUPS; c++)
            for (int i = 0; i < SIDE; i++)
                for (int j = 0; j < SIDE; j++) out[c][i][j] *= factor[i];
        add_weighted(out, at_token(values, key), column, &memory);
    }
    for (int i = 0; i < SIDE; i++) {
        const float sum = combine_across(soft.sum[i], sum_of());
        const int64_t token = at.first + tile_y() + i;
        factor[i] = 1 / sum;
        if (logsum && tile_x() == 0 && column == 0 && token < n)
            logsum[(at.sample * s.heads + at.head) * n + token] = soft.most[i] + logf(sum);
    }
    put_rows(y, y_half, (at.sample * n * s.heads + at.head) * s.width, (int64_t)s.heads * s.width,
             out, factor, at.first, n, column, s.width);
}

template <int GROUPS>
static void launch(const attention_shape *s, device_in qkv, device_out y, float *logsum,
                   cudaStream_t stream)
{
    const int64_t tiles = (s->tokens + TILE - 1) / TILE;
    LS_LAUNCH(attention<GROUPS>,
              dim3((unsigned)(s->batch * s->heads * tiles), blocks_for(s->width, GROUPS * TILE)),
              LS_BLOCK, 0, stream, *s, qkv.data, qkv.half, qkv.rounds, y.data, y.half, logsum);
}

void ls__launch_attention(const attention_shape *s, device_in qkv, device_out y, float *logsum,
                          cudaStream_t stream)
{
    if ((qkv.half || qkv.rounds) && s->width <= LS__ATTENTION_HALF_WIDEST)
        ls__launch_attention_half(s, qkv, y, logsum, stream);
    else if (s->width <= TILE)
        launch<1>(s, qkv, y, logsum, stream);
    else if (s->width <= 2 * TILE)
        launch<2>(s, qkv, y, logsum, stream);
    else
        launch<4>(s, qkv, y, logsum, stream);
}
