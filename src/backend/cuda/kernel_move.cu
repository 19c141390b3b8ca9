/* transpose, slice, concat: elements change their places, whatever their type.
 *
 * Slices and concatenations are rows copied from one pitch to another. What lies together and is
 * aligned moves in units of up to 16 bytes; a transposition of the last dimension goes through
 * tiles in shared memory, so that both sides are read and written in order. Where bf16-mixed stores
 * only one side as bf16, the same kernels convert. */
#include "backend/cuda/kernel_general.h"
#include "backend/cuda/kernel_storage.h"

namespace
{

enum { THREADS = 256, TILE = 32, TILE_ROWS = 8 };

struct alignas(16) sixteen_bytes {
    uint32_t word[4];
};

template <typename T> __device__ inline void put(T *to, T x)
{
    *to = x;
}

__device__ inline void put(float *to, __nv_bfloat16 x)
{
    *to = __bfloat162float(x);
}

__device__ inline void put(__nv_bfloat16 *to, float x)
{
    *to = __float2bfloat16_rn(x);
}

/* --- rows --- */

template <typename Index, typename X, typename Y>
__global__ void move_rows(cuda_rows r, const X *__restrict__ x, Y *__restrict__ y)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= r.rows * r.width) return;
    int64_t row = (Index)i / (Index)r.width, column = (Index)i % (Index)r.width;
    int64_t from = column - r.shift;
    X value {};
    if (from >= 0 && from < r.from_width) value = x[row * r.from_pitch + from];
    put(&y[row * r.pitch + column], value);
}

template <typename X, typename Y>
void launch_rows(cudaStream_t stream, const cuda_rows *r, const void *x, void *y)
{
    int64_t count = r->rows * r->width;
    unsigned blocks = storage::blocks_for(count, THREADS);
    if (count <= INT32_MAX)
        LS_LAUNCH((move_rows<uint32_t, X, Y>), blocks, THREADS, 0, stream, *r, (const X *)x,
                  (Y *)y);
    else
        LS_LAUNCH((move_rows<uint64_t, X, Y>), blocks, THREADS, 0, stream, *r, (const X *)x,
                  (Y *)y);
}

/* --- transposition of what is not last --- */

template <typename Index, typename X, typename Y>
__global__ void move_lines(cuda_transpose t, const X *__restrict__ x, Y *__restrict__ y)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= t.outer * t.a * t.middle * t.b * t.inner) return;
    Index rest = (Index)i;
    int64_t inner = rest % (Index)t.inner;
    rest /= (Index)t.inner;
    int64_t a = rest % (Index)t.a;
    rest /= (Index)t.a;
    int64_t middle = rest % (Index)t.middle;
    rest /= (Index)t.middle;
    int64_t b = rest % (Index)t.b, outer = rest / (Index)t.b;
    put(&y[i], x[(((outer * t.a + a) * t.middle + middle) * t.b + b) * t.inner + inner]);
}

/* --- transposition of the last dimension: inner is 1 --- */

template <typename X, typename Y>
__global__ void transpose_tiles(cuda_transpose t, int64_t tiles_a, int64_t tiles_b,
                                const X *__restrict__ x, Y *__restrict__ y)
{
    __shared__ X tile[TILE][TILE + 1]; /* one more: columns lie in different banks */
    int64_t block = blockIdx.x;
    int64_t b0 = block % tiles_b * TILE;
    int64_t a0 = block / tiles_b % tiles_a * TILE;
    int64_t outer = block / tiles_b / tiles_a / t.middle;
    int64_t middle = block / tiles_b / tiles_a % t.middle;
    for (int k = threadIdx.y; k < TILE; k += TILE_ROWS) {
        int64_t a = a0 + k, b = b0 + threadIdx.x;
        if (a < t.a && b < t.b)
            tile[k][threadIdx.x] = x[((outer * t.a + a) * t.middle + middle) * t.b + b];
    }
    __syncthreads();
    for (int k = threadIdx.y; k < TILE; k += TILE_ROWS) {
        int64_t a = a0 + threadIdx.x, b = b0 + k;
        if (a < t.a && b < t.b)
            put(&y[((outer * t.b + b) * t.middle + middle) * t.a + a], tile[threadIdx.x][k]);
    }
}

template <typename X, typename Y>
void launch_transpose(cudaStream_t stream, const cuda_transpose *t, const void *x, void *y)
{
    int64_t count = t->outer * t->a * t->middle * t->b * t->inner;
    unsigned blocks = storage::blocks_for(count, THREADS);
    if (t->inner == 1) {
        int64_t tiles_a = (t->a + TILE - 1) / TILE, tiles_b = (t->b + TILE - 1) / TILE;
        unsigned tiles = (unsigned)(t->outer * t->middle * tiles_a * tiles_b);
        LS_LAUNCH((transpose_tiles<X, Y>), tiles, dim3(TILE, TILE_ROWS), 0, stream, *t, tiles_a,
                  tiles_b, (const X *)x, (Y *)y);
    } else if (count <= INT32_MAX) {
        LS_LAUNCH((move_lines<uint32_t, X, Y>), blocks, THREADS, 0, stream, *t, (const X *)x,
                  (Y *)y);
    } else {
        LS_LAUNCH((move_lines<uint64_t, X, Y>), blocks, THREADS, 0, stream, *t, (const X *)x,
                  (Y *)y);
    }
}

/* --- types --- */

/* Calls launch(X, Y) with values of the input's and the output's type. */
template <typename Launch> void by_move(cuda_move move, Launch launch)
{
    if (move.widened)
        launch(__nv_bfloat16 {}, float {});
    else if (move.narrowed)
        launch(float {}, __nv_bfloat16 {});
    else if (move.nbytes == 1)
        launch(uint8_t {}, uint8_t {});
    else if (move.nbytes == 2)
        launch(uint16_t {}, uint16_t {});
    else if (move.nbytes == 4)
        launch(uint32_t {}, uint32_t {});
    else if (move.nbytes == 8)
        launch(uint64_t {}, uint64_t {});
    else
        launch(sixteen_bytes {}, sixteen_bytes {});
}

/* How many elements of nbytes move at a time, up to 16 bytes: `bits` has every count and address
 * (in bytes) that must be a multiple. */
int64_t unit_of(cuda_move move, uint64_t bits)
{
    int64_t unit = 1;
    if (move.widened || move.narrowed) return unit;
    while (unit * move.nbytes < 16 && bits % (uint64_t)(2 * unit * move.nbytes) == 0) unit *= 2;
    return unit;
}

} // namespace

extern "C" void ls__cuda_launch_rows(cudaStream_t stream, cuda_move move, const cuda_rows *r,
                                     const void *x, void *y)
{
    uint64_t counts = (uint64_t)(r->width | r->pitch | r->from_width | r->from_pitch | r->shift);
    uint64_t bits = counts * (uint64_t)move.nbytes | (uintptr_t)x | (uintptr_t)y;
    int64_t unit = unit_of(move, bits);
    move.nbytes *= (int)unit;
    cuda_rows units = { r->rows,
                        r->width / unit,
                        r->pitch / unit,
                        r->from_width / unit,
                        r->from_pitch / unit,
                        r->shift / unit };
    by_move(move, [&](auto xt, auto yt) {
        launch_rows<decltype(xt), decltype(yt)>(stream, &units, x, y);
    });
}

extern "C" void ls__cuda_launch_transpose(cudaStream_t stream, cuda_move move,
                                          const cuda_transpose *t, const void *x, void *y)
{
    uint64_t bits = (uint64_t)t->inner * (uint64_t)move.nbytes | (uintptr_t)x | (uintptr_t)y;
    int64_t unit = unit_of(move, bits);
    move.nbytes *= (int)unit;
    cuda_transpose units = *t;
    units.inner /= unit;
    by_move(move, [&](auto xt, auto yt) {
        launch_transpose<decltype(xt), decltype(yt)>(stream, &units, x, y);
    });
}
