/* Attention, forward, of bf16 numbers on tensor cores: as kernel_attention.cu, but a warp keeps the
 * scores of its 16 queries and the results in registers, and the weights go from one product to the
 * next without leaving them. Dao, "FlashAttention-2" (2023). */
#include <cfloat>

#include "backend/cuda/kernel_attention_half.h"

/* Of a lane's two rows; scores and most are logarithms of base 2. */
struct half_softmax {
    float most[2], sum[2]; /* sum: of this lane's columns */
};

/* scores become scale * scores, -inf where the query does not see the key. */
template <int N>
static __device__ inline void mask_tile(float (&scores)[N][4], float scale,
                                        const attention_shape &s, int64_t query, int64_t key)
{
    const tile_mask mask = mask_of(s, query, TILE, key, N * 8);
    LS_UNROLL
    for (int j = 0; j < N; j++)
        for (int k = 0; k < 4; k++) {
            const int64_t t = query + half_row(k / 2), u = key + half_column(j) + k % 2;
            scores[j][k] = mask.seen(t, u) ? scores[j][k] * scale : -INFINITY;
        }
}

template <int N>
static __device__ inline void soften(float (&scores)[N][4], half_softmax *soft, float (&factor)[2])
{
    LS_UNROLL
    for (int i = 0; i < 2; i++) {
        float most = -FLT_MAX, sum = 0;
        LS_UNROLL
        for (int j = 0; j < N; j++)
            most = fmaxf(most, fmaxf(scores[j][2 * i], scores[j][2 * i + 1]));
        most = fmaxf(soft->most[i], combine_four(most, larger_of()));
        factor[i] = exp2f(soft->most[i] - most);
        LS_UNROLL
        for (int j = 0; j < N; j++)
            for (int k = 2 * i; k < 2 * i + 2; k++) {
                scores[j][k] = exp2f(scores[j][k] - most);
                sum += scores[j][k];
            }
        soft->most[i] = most;
        soft->sum[i] = soft->sum[i] * factor[i] + sum;
    }
}

template <int WIDTH>
static __global__ void __launch_bounds__(HALF_THREADS)
    attention_half(attention_shape s, const void *qkv, bool half, bool rounds, void *y, bool y_half,
                   float *logsum)
{
    typedef half_tile<WIDTH> tile;
    LS_DYNAMIC_SHARED(bf16, memory);
    bf16 *const q = memory, *const k = q + tile::OWN_NUMBERS, *const v = k + tile::OTHER_NUMBERS;
    const tile_place at = place_of(s.tokens, s.heads, true);
    const int kv = at.head / (s.heads / s.kv_heads), column = (int)blockIdx.y * tile::COLUMNS;
    const int64_t row = qkv_row(s), n = s.tokens, end = s.causal ? at.first + TILE : n;
    const head_rows keys = rows_of(qkv, half, rounds, key_at(s, at.sample, kv), row, n, s.width);
    const head_rows values =
        rows_of(qkv, half, rounds, value_at(s, at.sample, kv), row, n, s.width);
    load_tile<WIDTH, TILE>(
        q, at_token(rows_of(qkv, half, rounds, query_at(s, at.sample, at.head), row, n, s.width),
                    at.first));

    half_softmax soft = { { -FLT_MAX, -FLT_MAX }, { 0, 0 } };
    float out[tile::COLUMNS / 8][4] = {}, scores[tile::OTHER / 8][4], factor[2];
    for (int64_t key = 0; key < end && key < n; key += tile::OTHER) {
        __syncthreads();
        load_tile<WIDTH, tile::OTHER>(k, at_token(keys, key));
        load_tile<WIDTH, tile::OTHER>(v, at_token(values, key));
        __syncthreads();
        dot_tiles<WIDTH, tile::OTHER>(scores, q + threadIdx.x / LS_WARP * 16 * tile::STRIDE, k,
                                      s.width);
        mask_tile(scores, s.scale * log2_e, s, at.first, key);
        soften(scores, &soft, factor);
        LS_UNROLL
        for (int c = 0; c < tile::COLUMNS / 8; c++)
            for (int i = 0; i < 4; i++) out[c][i] *= factor[i / 2];
        add_tile<WIDTH, tile::OTHER>(out, scores, v, column, s.width);
    }
    const int64_t head = at.sample * s.heads + at.head;
    for (int i = 0; i < 2; i++) {
        const float sum = combine_four(soft.sum[i], sum_of());
        const int64_t token = at.first + half_row(i);
        factor[i] = 1 / sum;
        if (logsum && threadIdx.x % 4 == 0 && column == 0 && token < n)
            logsum[head * n + token] = soft.most[i] * log_2 + logf(sum);
    }
    put_tile(y, y_half, (at.sample * n * s.heads + at.head) * s.width, (int64_t)s.heads * s.width,
             out, factor, at.first, n, column, s.width);
}

void ls__launch_attention_half(const attention_shape *s, device_in qkv, device_out y, float *logsum,
                               cudaStream_t stream)
{
    with_width(s->width, [&](auto width) {
        constexpr int WIDTH = decltype(width)::value;
        typedef half_tile<WIDTH> tile;
        const size_t nbytes = (tile::OWN_NUMBERS + 2 * tile::OTHER_NUMBERS) * sizeof(bf16);
        const int64_t blocks = s->batch * s->heads * ((s->tokens + TILE - 1) / TILE);
        allow_shared(attention_half<WIDTH>, nbytes);
        LS_LAUNCH(attention_half<WIDTH>,
                  dim3((unsigned)blocks, blocks_for(s->width, tile::COLUMNS)), HALF_THREADS, nbytes,
                  stream, *s, qkv.data, qkv.half, qkv.rounds, y.data, y.half, logsum);
    });
}
