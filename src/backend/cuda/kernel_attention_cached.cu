/* Attention over a cache of keys and values, while decoding: a block per new token and head. Its
 * warps take 32 keys at a time in turn, each with a softmax of its own that is corrected when a
 * larger score comes along, and are put together in order at the end. Bound by reading the cache,
 * which is read once per head. */
#include <cfloat>

#include "backend/cuda/kernel_attention.h"
#include "backend/cuda/kernel_device.h"
#include "backend/cuda/kernel_integers.h"

static __device__ inline float factor_at(const void *data, bool half, bool rounds, int64_t i)
{
    if (half) return to_float(static_cast<const bf16 *>(data)[i]);
    const float x = static_cast<const float *>(data)[i];
    return rounds ? rounded(x) : x;
}

/* The row of the cache that a new token gets; -1 after noting one beyond it. */
static __device__ inline int64_t row_of_token(const attention_shape &s, const int32_t *position,
                                              int64_t token, int64_t rows, cuda_values *values)
{
    const int64_t sample = token / s.tokens, row = position[sample] + token % s.tokens;
    if (position[sample] >= 0 && row < rows) return row;
    note_failure(values, sample, true);
    return -1;
}

/* --- new keys and values into the cache: a block per token --- */

static __global__ void put_in_cache(attention_shape s, const void *qkv, bool half, bool rounds,
                                    float *cache, const int32_t *position, int64_t rows,
                                    cuda_values *values)
{
    const int64_t token = blockIdx.x, row = row_of_token(s, position, token, rows, values);
    const int both = 2 * s.kv_heads * s.width, queries = s.heads * s.width;
    if (row < 0) return;
    cache += (token / s.tokens * rows + row) * both;
    for (int i = (int)threadIdx.x; i < both; i += LS_BLOCK)
        cache[i] = factor_at(qkv, half, rounds, token * (queries + both) + queries + i);
}

/* --- attention --- */

enum { HELD = 8, COLUMNS = HELD * LS_WARP }; /* columns of y that a lane, a warp holds */

/* What a warp knows of its keys. */
struct partial_softmax {
    float most, sum;
    float out[HELD];
};

/* Scores of up to 32 keys, key k in lane k; -inf in the others. */
static __device__ inline float score_keys(const float *query, const float *keys, int64_t step,
                                          int n, int width, float scale)
{
    const int lane = (int)threadIdx.x % LS_WARP;
    float score = -INFINITY;
    for (int k = 0; k < n; k++) {
        float sum = 0;
        for (int d = lane; d < width; d += LS_WARP) sum += query[d] * keys[k * step + d];
        sum = warp_combine(sum, sum_of());
        if (lane == k) score = sum * scale;
    }
    return score;
}

/* values: of the same keys, from the block's first column on */
static __device__ inline void add_keys(partial_softmax *soft, float score, const float *values,
                                       int64_t step, int n, int columns)
{
    const int lane = (int)threadIdx.x % LS_WARP;
    const float most = fmaxf(soft->most, warp_combine(score, larger_of()));
    const float factor = expf(soft->most - most), weight = expf(score - most);
    soft->most = most;
    soft->sum = soft->sum * factor + warp_combine(weight, sum_of());
    for (int c = 0; c < HELD; c++) soft->out[c] *= factor;
    for (int k = 0; k < n; k++) {
        const float w = __shfl_sync(0xffffffffu, weight, k);
        for (int c = 0; c < HELD; c++)
            if (lane + c * LS_WARP < columns)
                soft->out[c] += w * values[k * step + lane + c * LS_WARP];
    }
}

/* The warps' parts, added up in order: column i of y. */
static __device__ inline float put_together(const float (*out)[COLUMNS], const float *most,
                                            const float *sum, int i)
{
    float all = most[0], total = 0, y = 0;
    for (int w = 1; w < LS_WARPS; w++) all = fmaxf(all, most[w]);
    for (int w = 0; w < LS_WARPS; w++) {
        const float factor = expf(most[w] - all);
        total += factor * sum[w];
        y += factor * out[w][i];
    }
    return y / total;
}

/* Blocks: token and head; blockIdx.y: COLUMNS of y. */
static __global__ void attend(attention_shape s, const void *qkv, bool half, bool rounds,
                              const float *cache, const int32_t *position, int64_t rows, void *y,
                              bool y_half)
{
    LS_DYNAMIC_SHARED(float, query); /* (width) */
    __shared__ float out[LS_WARPS][COLUMNS], most[LS_WARPS], sum[LS_WARPS];
    const int64_t token = blockIdx.x / s.heads;
    const int head = (int)(blockIdx.x % s.heads), first = (int)blockIdx.y * COLUMNS;
    const int warp = (int)threadIdx.x / LS_WARP, lane = (int)threadIdx.x % LS_WARP;
    const int columns = s.width - first < COLUMNS ? s.width - first : COLUMNS;
    const int64_t step = 2 * s.kv_heads * s.width;
    int64_t end = position[token / s.tokens] + token % s.tokens + 1;
    if (end > rows) end = rows; /* noted */
    cache += token / s.tokens * rows * step + head / (s.heads / s.kv_heads) * s.width;
    const int64_t from = token * ((int64_t)s.heads * s.width + step) + (int64_t)head * s.width;
    for (int d = (int)threadIdx.x; d < s.width; d += LS_BLOCK)
        query[d] = factor_at(qkv, half, rounds, from + d);
    __syncthreads();

    partial_softmax soft = { -FLT_MAX, 0, {} };
    for (int64_t key = warp * LS_WARP; key < end; key += LS_BLOCK) {
        const int n = end - key < LS_WARP ? (int)(end - key) : LS_WARP;
        const float *keys = cache + key * step;
        const float score = score_keys(query, keys, step, n, s.width, s.scale);
        add_keys(&soft, score, keys + s.kv_heads * s.width + first, step, n, columns);
    }
    for (int c = 0; c < HELD; c++) out[warp][lane + c * LS_WARP] = soft.out[c];
    if (lane == 0) {
        most[warp] = soft.most;
        sum[warp] = soft.sum;
    }
    __syncthreads();
    const int64_t to = (token * s.heads + head) * s.width + first;
    for (int i = (int)threadIdx.x; i < columns; i += LS_BLOCK) {
        const float value = put_together(out, most, sum, i);
        if (y_half)
            store(static_cast<bf16 *>(y) + to + i, value);
        else
            static_cast<float *>(y)[to + i] = value;
    }
}

void ls__launch_attention_cached(const attention_shape *s, const attention_decode *a,
                                 cudaStream_t stream)
{
    const int64_t tokens = s->batch * s->tokens;
    LS_LAUNCH(put_in_cache, (unsigned)tokens, LS_BLOCK, 0, stream, *s, a->qkv.data, a->qkv.half,
              a->qkv.rounds, a->cache, a->position, a->rows, a->values);
    LS_LAUNCH(attend, dim3((unsigned)(tokens * s->heads), blocks_for(s->width, COLUMNS)), LS_BLOCK,
              (size_t)s->width * sizeof(float), stream, *s, a->qkv.data, a->qkv.half, a->qkv.rounds,
              a->cache, a->position, a->rows, a->y.data, a->y.half);
}
