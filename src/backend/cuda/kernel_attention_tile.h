/* Products of tiles, of which attention consists: 64 rows by 64 columns, added up in the registers
 * of 256 threads, 4 x 4 each, from factors in shared memory. For .cu files.
 *
 * A factor lies in shared memory with the sum's index first, so that a thread reads its 4 rows and
 * its 4 columns by one load each. Every product of attention, forward and backward, is brought to
 * this form: scores by loading queries and keys transposed, 32 numbers of a head at a time, and
 * sums over keys or queries by storing a tile of weights transposed. Heads of any width fit: only
 * 64-column groups of results are held. */
#ifndef LS_BACKEND_CUDA_KERNEL_ATTENTION_TILE_H
#define LS_BACKEND_CUDA_KERNEL_ATTENTION_TILE_H

#include "backend/cuda/kernel_attention_rows.h"

enum {
    DEPTH = TILE / 2,     /* numbers of a head that are multiplied between two barriers */
    SIDE = 4,             /* rows and columns of a thread */
    ACROSS = TILE / SIDE, /* threads side by side */
    STRIDE = TILE + 4 /* of rows in shared memory: multiples of 16 bytes, fewer bank conflicts */
};

typedef float tile_row[STRIDE];

struct alignas(16) tile_memory {
    tile_row factors[TILE]; /* one of 64 x 64, or two of 32 x 64 */
    tile_row weights[TILE];
};

/* to[d][token], DEPTH numbers from number first on */
static __device__ inline void load_transposed(tile_row *to, const head_rows &rows, int first)
{
    for (int i = (int)threadIdx.x; i < DEPTH * TILE; i += LS_BLOCK)
        to[i % DEPTH][i / DEPTH] = rows.at(i / DEPTH, first + i % DEPTH);
}

/* to[token][d] */
static __device__ inline void load_plain(tile_row *to, const head_rows &rows, int first)
{
    for (int i = (int)threadIdx.x; i < TILE * TILE; i += LS_BLOCK)
        to[i / TILE][i % TILE] = rows.at(i / TILE, first + i % TILE);
}

static __device__ inline int tile_x()
{
    return (int)threadIdx.x % ACROSS * SIDE;
}

static __device__ inline int tile_y()
{
    return (int)threadIdx.x / ACROSS * SIDE;
}

/* sum[i][j] += sum over k of left[k][y + i] right[k][x + j] */
template <int K>
static __device__ inline void multiply(float (&sum)[SIDE][SIDE], const tile_row *left,
                                       const tile_row *right)
{
    float a[SIDE], b[SIDE];
    for (int k = 0; k < K; k++) {
        load(a, &left[k][tile_y()]);
        load(b, &right[k][tile_x()]);
        for (int i = 0; i < SIDE; i++)
            for (int j = 0; j < SIDE; j++) sum[i][j] += a[i] * b[j];
    }
}

/* out[i][j] = left[y + i] . right[x + j]; begins and ends between barriers: what lay in the
 * factors is read by then, and weights that other threads read before may be written. */
static __device__ inline void dot_rows(float (&out)[SIDE][SIDE], const head_rows &left,
                                       const head_rows &right, tile_memory *memory)
{
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) out[i][j] = 0;
    for (int d = 0; d < left.width; d += DEPTH) {
        __syncthreads();
        load_transposed(memory->factors, left, d);
        load_transposed(memory->factors + DEPTH, right, d);
        __syncthreads();
        multiply<DEPTH>(out, memory->factors, memory->factors + DEPTH);
    }
}

/* weights[x + j][y + i] = w[i][j] */
static __device__ inline void store_weights(tile_memory *memory, const float (&w)[SIDE][SIDE])
{
    for (int j = 0; j < SIDE; j++) {
        const float column[SIDE] = { w[0][j], w[1][j], w[2][j], w[3][j] };
        store(&memory->weights[tile_x() + j][tile_y()], column);
    }
}

/* sum[c] += weights^T rows, for the groups of columns from first on that there are */
template <int GROUPS>
static __device__ inline void add_weighted(float (&sum)[GROUPS][SIDE][SIDE], const head_rows &rows,
                                           int first, tile_memory *memory)
{
    LS_UNROLL
    for (int c = 0; c < GROUPS; c++) {
        if (first + c * TILE >= rows.width) continue;
        __syncthreads();
        load_plain(memory->factors, rows, first + c * TILE);
        __syncthreads();
        multiply<TILE>(sum[c], memory->weights, memory->factors);
    }
}

/* Of the ACROSS threads that share rows. */
template <typename Combine> static __device__ inline float combine_across(float x, Combine combine)
{
    for (int distance = ACROSS / 2; distance > 0; distance /= 2)
        x = combine(x, __shfl_xor_sync(0xffffffffu, x, distance));
    return x;
}

/* Puts sum * factor[i] where token first + y + i of a head lies: to + token * step. */
template <int GROUPS>
static __device__ inline void
put_rows(void *to, bool half, int64_t from, int64_t step, const float (&sum)[GROUPS][SIDE][SIDE],
         const float (&factor)[SIDE], int64_t first, int64_t count, int column, int width)
{
    LS_UNROLL
    for (int c = 0; c < GROUPS; c++)
        for (int i = 0; i < SIDE; i++)
            for (int j = 0; j < SIDE; j++) {
                const int64_t token = first + tile_y() + i;
                const int d = column + c * TILE + tile_x() + j;
                if (token >= count || d >= width) continue;
                const int64_t at = from + token * step + d;
                if (half)
                    store(static_cast<bf16 *>(to) + at, sum[c][i][j] * factor[i]);
                else
                    static_cast<float *>(to)[at] = sum[c][i][j] * factor[i];
            }
}

#endif
