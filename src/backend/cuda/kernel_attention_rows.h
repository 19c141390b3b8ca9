/* Where the rows of queries, keys, values and results lie, and which of them a block has. For .cu
 * files. */
#ifndef LS_BACKEND_CUDA_KERNEL_ATTENTION_ROWS_H
#define LS_BACKEND_CUDA_KERNEL_ATTENTION_ROWS_H

#include "backend/cuda/kernel_attention.h"
#include "backend/cuda/kernel_device.h"

enum { TILE = 64 }; /* queries or keys of a block */

/* The tokens [first, first + TILE) of one head; those from count on are zeros. */
struct head_rows {
    const void *data; /* of token 0 */
    bool half, rounds;
    int64_t step; /* numbers from token to token */
    int64_t first, count;
    int width;

    __device__ float at(int token, int d) const
    {
        if (first + token >= count || d >= width) return 0;
        const int64_t i = (first + token) * step + d;
        if (half) return to_float(static_cast<const bf16 *>(data)[i]);
        const float x = static_cast<const float *>(data)[i];
        return rounds ? rounded(x) : x;
    }
};

static __device__ inline head_rows rows_of(const void *data, bool half, bool rounds, int64_t from,
                                           int64_t step, int64_t count, int width)
{
    const void *at = half ? static_cast<const void *>(static_cast<const bf16 *>(data) + from)
                          : static_cast<const void *>(static_cast<const float *>(data) + from);
    return head_rows { at, half, rounds, step, 0, count, width };
}

static __device__ inline head_rows at_token(head_rows rows, int64_t first)
{
    rows.first = first;
    return rows;
}

/* --- which tile of which head a block has --- */

struct tile_place {
    int64_t sample;
    int head;
    int64_t first; /* token */
};

/* Blocks are numbered head by head, in a head from the last tile to the first: under a causal mask
 * the later ones have more to do and should start first. */
static __device__ inline tile_place place_of(int64_t tokens, int heads, bool backwards)
{
    const int64_t tiles = (tokens + TILE - 1) / TILE, which = blockIdx.x / tiles;
    const int64_t tile = blockIdx.x % tiles;
    return tile_place { which / heads, (int)(which % heads),
                        (backwards ? tiles - 1 - tile : tile) * TILE };
}

/* Numbers from token to token of qkv. */
static __device__ inline int64_t qkv_row(const attention_shape &s)
{
    return (int64_t)(s.heads + 2 * s.kv_heads) * s.width;
}

static __device__ inline int64_t query_at(const attention_shape &s, int64_t sample, int head)
{
    return sample * s.tokens * qkv_row(s) + (int64_t)head * s.width;
}

static __device__ inline int64_t key_at(const attention_shape &s, int64_t sample, int kv_head)
{
    return query_at(s, sample, s.heads + kv_head);
}

static __device__ inline int64_t value_at(const attention_shape &s, int64_t sample, int kv_head)
{
    return query_at(s, sample, s.heads + s.kv_heads + kv_head);
}

struct output_row { /* of g or y: (B,T,H D) */
    const void *data;
    bool half, rounds;
};

static __device__ inline head_rows output_rows(const attention_shape &s, output_row x,
                                               int64_t sample, int head)
{
    return rows_of(x.data, x.half, x.rounds, (sample * s.tokens * s.heads + head) * s.width,
                   (int64_t)s.heads * s.width, s.tokens, s.width);
}

#endif
