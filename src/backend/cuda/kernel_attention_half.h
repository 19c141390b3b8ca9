/* Tiles of attention in bf16 on tensor cores: a block of four warps has 64 queries or keys, 16 of
 * them a warp, and goes through the other side a tile at a time. For .cu files.
 *
 * Tiles lie in shared memory row by row, padded so that the eight rows of a small matrix fall into
 * different banks. A product's sums are again a factor of the next one, in the same registers. */
#ifndef LS_BACKEND_CUDA_KERNEL_ATTENTION_HALF_H
#define LS_BACKEND_CUDA_KERNEL_ATTENTION_HALF_H

#include "backend/cuda/kernel_attention_rows.h"
#include "backend/cuda/kernel_mma.h"

enum { HALF_THREADS = 128, HALF_WIDEST = LS__ATTENTION_HALF_WIDEST };

/* Of heads of at most WIDTH numbers. */
template <int WIDTH> struct half_tile {
    enum {
        OTHER = WIDTH <= 128 ? 64 : 16,       /* rows of the other side at a time: a block may have
                                                 99 KB of shared memory on GPUs that are not for
                                                 data centres */
        COLUMNS = WIDTH <= 128 ? WIDTH : 128, /* of results that a block holds */
        STRIDE = WIDTH + 8,                   /* numbers from row to row in shared memory */
        OWN_NUMBERS = TILE * STRIDE,          /* of a tile of this side */
        OTHER_NUMBERS = OTHER * STRIDE
    };
};

/* --- shared memory --- */

/* ROWS tokens; tokens and numbers that there are not are zeros. */
template <int WIDTH, int ROWS>
static __device__ inline void load_tile(bf16 *to, const head_rows &rows)
{
    const bool packed = rows.half && rows.width % 8 == 0 && (uintptr_t)rows.data % 16 == 0;
    for (int i = (int)threadIdx.x; i < ROWS * WIDTH / 8; i += HALF_THREADS) {
        const int token = i / (WIDTH / 8), d = i % (WIDTH / 8) * 8;
        pack<bf16, 8> v;
        if (packed && d < rows.width && rows.first + token < rows.count)
            v = *reinterpret_cast<const pack<bf16, 8> *>(static_cast<const bf16 *>(rows.data) +
                                                         (rows.first + token) * rows.step + d);
        else
            for (int k = 0; k < 8; k++) v.at[k] = __float2bfloat16_rn(rows.at(token, d + k));
        *reinterpret_cast<pack<bf16, 8> *>(to + token * half_tile<WIDTH>::STRIDE + d) = v;
    }
}

/* --- places of a lane's sums: row of the block's 64, column of the tile --- */

static __device__ inline int half_row(int i)
{
    return (int)threadIdx.x / LS_WARP * 16 + (int)threadIdx.x % LS_WARP / 4 + 8 * i;
}

static __device__ inline int half_column(int j)
{
    return 8 * j + (int)threadIdx.x % 4 * 2;
}

/* --- which pairs of a query and a key weigh anything --- */

struct tile_mask {
    int64_t tokens;
    bool causal, whole; /* whole: all queries of the tile see all keys */

    __device__ bool seen(int64_t query, int64_t key) const
    {
        return whole || (query < tokens && key < tokens && (!causal || key <= query));
    }
};

/* Of `queries` queries from the first one, and `keys` keys. */
static __device__ inline tile_mask mask_of(const attention_shape &s, int64_t query, int queries,
                                           int64_t key, int keys)
{
    const bool inside = query + queries <= s.tokens && key + keys <= s.tokens;
    return tile_mask { s.tokens, s.causal, inside && (!s.causal || key + keys <= query + 1) };
}

/* --- products --- */

/* sum = left right^T: left: the warp's 16 rows, right: N rows. */
template <int WIDTH, int N>
static __device__ inline void dot_tiles(float (&sum)[N / 8][4], const bf16 *left, const bf16 *right,
                                        int width)
{
    const int stride = half_tile<WIDTH>::STRIDE;
    uint32_t a[4], b[4];
    LS_UNROLL
    for (int j = 0; j < N / 8; j++)
        for (int k = 0; k < 4; k++) sum[j][k] = 0;
    LS_UNROLL
    for (int d = 0; d < WIDTH; d += 16) {
        if (d >= width) continue;
        load_matrices<false, DOWN>(a, left + d, stride);
        LS_UNROLL
        for (int j = 0; j < N / 16; j++) {
            load_matrices<false, ACROSS>(b, right + j * 16 * stride + d, stride);
            mma(sum[2 * j], a, b[0], b[1]);
            mma(sum[2 * j + 1], a, b[2], b[3]);
        }
    }
}

/* sum += w rows, rounding w: rows: N rows of which the columns from first on are taken. */
template <int WIDTH, int N>
static __device__ inline void add_tile(float (&sum)[half_tile<WIDTH>::COLUMNS / 8][4],
                                       const float (&w)[N / 8][4], const bf16 *rows, int first,
                                       int width)
{
    const int stride = half_tile<WIDTH>::STRIDE;
    uint32_t b[4];
    LS_UNROLL
    for (int k = 0; k < N / 16; k++) {
        const uint32_t a[4] = { pair_of(w[2 * k][0], w[2 * k][1]),
                                pair_of(w[2 * k][2], w[2 * k][3]),
                                pair_of(w[2 * k + 1][0], w[2 * k + 1][1]),
                                pair_of(w[2 * k + 1][2], w[2 * k + 1][3]) };
        LS_UNROLL
        for (int c = 0; c < half_tile<WIDTH>::COLUMNS / 16; c++) {
            if (first + c * 16 >= width) continue;
            load_matrices<true, DOWN>(b, rows + k * 16 * stride + first + c * 16, stride);
            mma(sum[2 * c], a, b[0], b[1]);
            mma(sum[2 * c + 1], a, b[2], b[3]);
        }
    }
}

/* Of the four lanes that share rows. */
template <typename Combine> static __device__ inline float combine_four(float x, Combine combine)
{
    x = combine(x, __shfl_xor_sync(0xffffffffu, x, 2));
    return combine(x, __shfl_xor_sync(0xffffffffu, x, 1));
}

/* Puts sum * factor[i] where the block's rows lie: to + from + token * step. */
template <int N>
static __device__ inline void put_tile(void *to, bool half, int64_t from, int64_t step,
                                       const float (&sum)[N][4], const float (&factor)[2],
                                       int64_t first, int64_t count, int column, int width)
{
    LS_UNROLL
    for (int j = 0; j < N; j++)
        for (int k = 0; k < 4; k++) {
            const int64_t token = first + half_row(k / 2);
            const int d = column + half_column(j) + k % 2;
            if (token >= count || d >= width) continue;
            const int64_t at = from + token * step + d;
            if (half)
                store(static_cast<bf16 *>(to) + at, sum[j][k] * factor[k / 2]);
            else
                static_cast<float *>(to)[at] = sum[j][k] * factor[k / 2];
        }
}

/* --- exponentials: of 2, which the hardware has --- */

static const float log2_e = 1.44269504f, log_2 = 0.693147181f;

/* --- launches --- */

/* More than 48 KB of shared memory must be asked for. */
template <typename Kernel> static inline void allow_shared(Kernel kernel, size_t nbytes)
{
    if (nbytes > 48 * 1024)
        (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   (int)nbytes);
}

/* Calls f with constant<WIDTH> for heads of width numbers, at most HALF_WIDEST. */
template <typename F> static inline void with_width(int width, F f)
{
    if (width <= 64)
        f(constant<64>());
    else if (width <= 128)
        f(constant<128>());
    else
        f(constant<HALF_WIDEST>());
}

#endif
