/* Attention, backward, of bf16 numbers on tensor cores: as kernel_attention_grad.cu, one launch for
 * queries and one for keys and values; p and ds go from one product to the next in registers, and
 * are rounded on the way. */
#include "backend/cuda/kernel_attention_half.h"

/* --- queries --- */

template <int WIDTH>
static __global__ void __launch_bounds__(HALF_THREADS)
    grad_queries_half(attention_shape s, const void *g, bool g_half, bool g_rounds, const void *qkv,
                      bool half, bool rounds, const float *logsum, const float *along, void *dqkv,
                      bool d_half)
{
    typedef half_tile<WIDTH> tile;
    LS_DYNAMIC_SHARED(bf16, memory);
    bf16 *const q = memory, *const slopes = q + tile::OWN_NUMBERS;
    bf16 *const k = slopes + tile::OWN_NUMBERS, *const v = k + tile::OTHER_NUMBERS;
    const tile_place at = place_of(s.tokens, s.heads, true);
    const int kv = at.head / (s.heads / s.kv_heads), column = (int)blockIdx.y * tile::COLUMNS;
    const int mine = (int)threadIdx.x / LS_WARP * 16 * tile::STRIDE;
    const int64_t row = qkv_row(s), n = s.tokens, end = s.causal ? at.first + TILE : n;
    const int64_t from = query_at(s, at.sample, at.head), head = at.sample * s.heads + at.head;
    const head_rows keys = rows_of(qkv, half, rounds, key_at(s, at.sample, kv), row, n, s.width);
    const head_rows values =
        rows_of(qkv, half, rounds, value_at(s, at.sample, kv), row, n, s.width);
    load_tile<WIDTH, TILE>(q,
                           at_token(rows_of(qkv, half, rounds, from, row, n, s.width), at.first));
    load_tile<WIDTH, TILE>(
        slopes, at_token(output_rows(s, { g, g_half, g_rounds }, at.sample, at.head), at.first));
    float sums[2], dots[2]; /* of the lane's two rows */
    for (int i = 0; i < 2; i++) {
        const int64_t token = at.first + half_row(i);
        sums[i] = token < n ? logsum[head * n + token] * log2_e : 0;
        dots[i] = token < n ? along[head * n + token] : 0;
    }

    const float one[2] = { 1, 1 }, scale = s.scale * log2_e;
    float dq[tile::COLUMNS / 8][4] = {}, p[tile::OTHER / 8][4], dp[tile::OTHER / 8][4];
    for (int64_t key = 0; key < end && key < n; key += tile::OTHER) {
        const tile_mask mask = mask_of(s, at.first, TILE, key, tile::OTHER);
        __syncthreads();
        load_tile<WIDTH, tile::OTHER>(k, at_token(keys, key));
        load_tile<WIDTH, tile::OTHER>(v, at_token(values, key));
        __syncthreads();
        dot_tiles<WIDTH, tile::OTHER>(p, q + mine, k, s.width);
        dot_tiles<WIDTH, tile::OTHER>(dp, slopes + mine, v, s.width);
        LS_UNROLL
        for (int j = 0; j < tile::OTHER / 8; j++)
            for (int i = 0; i < 4; i++) {
                const int64_t t = at.first + half_row(i / 2), u = key + half_column(j) + i % 2;
                const float weight = exp2f(p[j][i] * scale - sums[i / 2]);
                const float slope = s.scale * weight * (dp[j][i] - dots[i / 2]);
                p[j][i] = mask.seen(t, u) ? slope : 0;
            }
        add_tile<WIDTH, tile::OTHER>(dq, p, k, column, s.width);
    }
    put_tile(dqkv, d_half, from, row, dq, one, at.first, n, column, s.width);
}

/* --- keys and values --- */

/* What lies in shared memory: the block's keys and values, a tile of queries and of the slopes of
 * their results, and for these queries the logarithms of sums (base 2) and g.y. */
template <int WIDTH> struct keys_memory {
    bf16 *keys, *values, *queries, *slopes;
    float *logsum, *along;
};

template <int WIDTH> static __device__ inline keys_memory<WIDTH> lay_out(bf16 *memory)
{
    typedef half_tile<WIDTH> tile;
    bf16 *const queries = memory + 2 * tile::OWN_NUMBERS;
    float *const sums = reinterpret_cast<float *>(queries + 2 * tile::OTHER_NUMBERS);
    return keys_memory<WIDTH> { memory,  memory + tile::OWN_NUMBERS,
                                queries, queries + tile::OTHER_NUMBERS,
                                sums,    sums + tile::OTHER };
}

/* The part of one tile of queries, which is loaded: rows are keys, columns queries. */
template <int WIDTH>
static __device__ inline void add_queries(float (&dk)[half_tile<WIDTH>::COLUMNS / 8][4],
                                          float (&dv)[half_tile<WIDTH>::COLUMNS / 8][4],
                                          const attention_shape &s, const keys_memory<WIDTH> &m,
                                          int64_t key, int64_t query, int column)
{
    typedef half_tile<WIDTH> tile;
    const int mine = (int)threadIdx.x / LS_WARP * 16 * tile::STRIDE;
    const tile_mask mask = mask_of(s, query, tile::OTHER, key, TILE);
    const float scale = s.scale * log2_e;
    float p[tile::OTHER / 8][4], dp[tile::OTHER / 8][4];
    dot_tiles<WIDTH, tile::OTHER>(p, m.keys + mine, m.queries, s.width);
    LS_UNROLL
    for (int j = 0; j < tile::OTHER / 8; j++)
        for (int i = 0; i < 4; i++) {
            const int place = half_column(j) + i % 2;
            const float weight = exp2f(p[j][i] * scale - m.logsum[place]);
            p[j][i] = mask.seen(query + place, key + half_row(i / 2)) ? weight : 0;
        }
    add_tile<WIDTH, tile::OTHER>(dv, p, m.slopes, column, s.width);
    dot_tiles<WIDTH, tile::OTHER>(dp, m.values + mine, m.slopes, s.width);
    LS_UNROLL
    for (int j = 0; j < tile::OTHER / 8; j++)
        for (int i = 0; i < 4; i++) {
            const int place = half_column(j) + i % 2;
            const float slope = s.scale * p[j][i] * (dp[j][i] - m.along[place]);
            p[j][i] = mask.seen(query + place, key + half_row(i / 2)) ? slope : 0;
        }
    add_tile<WIDTH, tile::OTHER>(dk, p, m.queries, column, s.width);
}

template <int WIDTH>
static __global__ void __launch_bounds__(HALF_THREADS)
    grad_keys_half(attention_shape s, const void *g, bool g_half, bool g_rounds, const void *qkv,
                   bool half, bool rounds, const float *logsum, const float *along, void *dqkv,
                   bool d_half)
{
    typedef half_tile<WIDTH> tile;
    LS_DYNAMIC_SHARED(bf16, memory);
    const keys_memory<WIDTH> m = lay_out<WIDTH>(memory);
    const tile_place at = place_of(s.tokens, s.kv_heads, false);
    const int group = s.heads / s.kv_heads, column = (int)blockIdx.y * tile::COLUMNS;
    const int64_t row = qkv_row(s), n = s.tokens;
    const int64_t key = key_at(s, at.sample, at.head), value = value_at(s, at.sample, at.head);
    load_tile<WIDTH, TILE>(m.keys,
                           at_token(rows_of(qkv, half, rounds, key, row, n, s.width), at.first));
    load_tile<WIDTH, TILE>(m.values,
                           at_token(rows_of(qkv, half, rounds, value, row, n, s.width), at.first));

    const float one[2] = { 1, 1 };
    float dk[tile::COLUMNS / 8][4] = {}, dv[tile::COLUMNS / 8][4] = {};
    for (int h = at.head * group; h < (at.head + 1) * group; h++) {
        const int64_t head = (at.sample * s.heads + h) * n;
        const head_rows queries =
            rows_of(qkv, half, rounds, query_at(s, at.sample, h), row, n, s.width);
        const head_rows slopes = output_rows(s, { g, g_half, g_rounds }, at.sample, h);
        for (int64_t query = s.causal ? at.first : 0; query < n; query += tile::OTHER) {
            __syncthreads();
            load_tile<WIDTH, tile::OTHER>(m.queries, at_token(queries, query));
            load_tile<WIDTH, tile::OTHER>(m.slopes, at_token(slopes, query));
            for (int i = (int)threadIdx.x; i < tile::OTHER; i += HALF_THREADS) {
                m.logsum[i] = query + i < n ? logsum[head + query + i] * log2_e : 0;
                m.along[i] = query + i < n ? along[head + query + i] : 0;
            }
            __syncthreads();
            add_queries<WIDTH>(dk, dv, s, m, at.first, query, column);
        }
    }
    put_tile(dqkv, d_half, key, row, dk, one, at.first, n, column, s.width);
    put_tile(dqkv, d_half, value, row, dv, one, at.first, n, column, s.width);
}

/* --- launches --- */

void ls__launch_attention_grad_half(const attention_shape *s, const attention_backward *a,
                                    cudaStream_t stream)
{
    with_width(s->width, [&](auto width) {
        constexpr int WIDTH = decltype(width)::value;
        typedef half_tile<WIDTH> tile;
        const size_t nbytes = 2 * (tile::OWN_NUMBERS + tile::OTHER_NUMBERS) * sizeof(bf16);
        const size_t sums = 2 * tile::OTHER * sizeof(float);
        const int64_t tiles = (s->tokens + TILE - 1) / TILE;
        const unsigned columns = blocks_for(s->width, tile::COLUMNS);
        allow_shared(grad_queries_half<WIDTH>, nbytes);
        allow_shared(grad_keys_half<WIDTH>, nbytes + sums);
        LS_LAUNCH(grad_queries_half<WIDTH>, dim3((unsigned)(s->batch * s->heads * tiles), columns),
                  HALF_THREADS, nbytes, stream, *s, a->g.data, a->g.half, a->g.rounds, a->qkv.data,
                  a->qkv.half, a->qkv.rounds, a->logsum, a->along, a->dqkv.data, a->dqkv.half);
        LS_LAUNCH(grad_keys_half<WIDTH>, dim3((unsigned)(s->batch * s->kv_heads * tiles), columns),
                  HALF_THREADS, nbytes + sums, stream, *s, a->g.data, a->g.half, a->g.rounds,
                  a->qkv.data, a->qkv.half, a->qkv.rounds, a->logsum, a->along, a->dqkv.data,
                  a->dqkv.half);
    });
}
