/* Sums, means and maxima over any dimensions, with the gradients of those over one.
 *
 * The order of a sum is fixed by the shapes: r is cut into chunks, a chunk goes to the lanes of a
 * block one after the other, lanes are added in a tree, chunks in a second pass. No atomics, so a
 * run gives the same bits each time. Neighbours in memory either belong to one output (rows: a warp
 * or a block each) or to different ones (columns: 32 outputs to a block, read side by side). */
#include "backend/cuda/kernel_general.h"
#include "backend/cuda/kernel_storage.h"

#include <math.h>

namespace
{

enum { THREADS = 256, WARP = 32, COLUMN_LANES = THREADS / WARP };
enum { ROW_CHUNK = 16384, COLUMN_CHUNK = 256, MOST_CHUNKS = 256, ENOUGH_BLOCKS = 1024 };

struct sum {
    static __device__ float first()
    {
        return 0;
    }
    static __device__ float join(float a, float b)
    {
        return a + b;
    }
};

struct largest {
    static __device__ float first()
    {
        return -INFINITY;
    }
    static __device__ float join(float a, float b)
    {
        return b > a || (isnan(b) && !isnan(a)) ? b : a;
    }
};

template <typename Index> __device__ inline int64_t offset_by(const cuda_strided &s, Index rest)
{
    int64_t offset = 0;
    for (int d = s.rank - 1; d > 0; d--) {
        Index size = (Index)s.size[d];
        offset += (int64_t)(rest % size) * s.stride[0][d];
        rest /= size;
    }
    return s.rank ? offset + (int64_t)rest * s.stride[0][0] : 0;
}

__device__ inline int64_t offset_of(const cuda_strided &s, int64_t i)
{
    return s.count <= UINT32_MAX ? offset_by(s, (uint32_t)i) : offset_by(s, (uint64_t)i);
}

/* LANES threads for each output. out: (chunks, outputs) */
template <typename Join, int LANES, typename Y>
__global__ void reduce_rows(cuda_reduction r, const float *__restrict__ x, Y *__restrict__ y)
{
    __shared__ float warps[THREADS / WARP];
    int lane = threadIdx.x % LANES;
    int64_t output = (int64_t)blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES;
    int64_t begin = (int64_t)blockIdx.y * r.chunk, end = begin + r.chunk;
    if (end > r.reduced.count) end = r.reduced.count;
    float value = Join::first();
    if (output < r.kept.count) {
        const float *from = x + offset_of(r.kept, output);
        for (int64_t i = begin + lane; i < end; i += LANES)
            value = Join::join(value, from[offset_of(r.reduced, i)]);
    }
    for (int step = WARP / 2; step > 0; step /= 2)
        value = Join::join(value, __shfl_down_sync(0xffffffffu, value, step));
    if (LANES > WARP) {
        if (threadIdx.x % WARP == 0) warps[threadIdx.x / WARP] = value;
        __syncthreads();
        if (threadIdx.x == 0)
            for (int i = 1; i < THREADS / WARP; i++) value = Join::join(value, warps[i]);
    }
    if (lane == 0 && output < r.kept.count)
        storage::store(&y[(int64_t)blockIdx.y * r.kept.count + output], value / r.divisor);
}

template <typename Join, typename Y>
__global__ void reduce_columns(cuda_reduction r, const float *__restrict__ x, Y *__restrict__ y)
{
    __shared__ float lanes[COLUMN_LANES][WARP];
    int64_t output = (int64_t)blockIdx.x * WARP + threadIdx.x;
    int64_t begin = (int64_t)blockIdx.y * r.chunk, end = begin + r.chunk;
    if (end > r.reduced.count) end = r.reduced.count;
    float value = Join::first();
    if (output < r.kept.count) {
        const float *from = x + offset_of(r.kept, output);
        for (int64_t i = begin + threadIdx.y; i < end; i += COLUMN_LANES)
            value = Join::join(value, from[offset_of(r.reduced, i)]);
    }
    lanes[threadIdx.y][threadIdx.x] = value;
    __syncthreads();
    if (threadIdx.y > 0 || output >= r.kept.count) return;
    for (int i = 1; i < COLUMN_LANES; i++) value = Join::join(value, lanes[i][threadIdx.x]);
    storage::store(&y[(int64_t)blockIdx.y * r.kept.count + output], value / r.divisor);
}

template <typename Join, typename Y>
void launch_pass(cudaStream_t stream, const cuda_reduction *r, const float *x, Y *y)
{
    unsigned chunks = (unsigned)r->chunks;
    int64_t outputs = r->kept.count;
    if (!r->by_rows)
        LS_LAUNCH((reduce_columns<Join, Y>), dim3(storage::blocks_for(outputs, WARP), chunks),
                  dim3(WARP, COLUMN_LANES), 0, stream, *r, x, y);
    else if (r->reduced.count <= 8 * WARP)
        LS_LAUNCH((reduce_rows<Join, WARP, Y>),
                  dim3(storage::blocks_for(outputs, THREADS / WARP), chunks), THREADS, 0, stream,
                  *r, x, y);
    else
        LS_LAUNCH((reduce_rows<Join, THREADS, Y>), dim3((unsigned)outputs, chunks), THREADS, 0,
                  stream, *r, x, y);
}

/* The chunks' results, (chunks, outputs), as one more reduction. */
cuda_reduction over_chunks(const cuda_reduction *r)
{
    cuda_reduction last {};
    last.kept.rank = last.reduced.rank = 1;
    last.kept.count = last.kept.size[0] = last.reduced.stride[0][0] = r->kept.count;
    last.kept.stride[0][0] = last.chunks = 1;
    last.reduced.count = last.reduced.size[0] = last.chunk = r->chunks;
    last.divisor = r->divisor;
    return last;
}

template <typename Join, typename Y>
void launch_reduction(cudaStream_t stream, const cuda_reduction *r, const float *x, Y *y,
                      float *workspace)
{
    if (r->chunks == 1) {
        launch_pass<Join>(stream, r, x, y);
        return;
    }
    cuda_reduction first = *r, last = over_chunks(r);
    first.divisor = 1;
    launch_pass<Join>(stream, &first, x, workspace);
    launch_pass<Join>(stream, &last, workspace, y);
}

/* --- gradients of a reduction along one dimension --- */

template <typename Index, typename Y>
__global__ void spread(int64_t count, int64_t size, int64_t inner, float divisor,
                       const float *__restrict__ g, Y *__restrict__ dx)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    Index line = (Index)i / (Index)inner;
    int64_t outer = line / (Index)size, at = (Index)i % (Index)inner;
    storage::store(&dx[i], g[outer * inner + at] / divisor);
}

__device__ inline bool is_largest(float x, float y)
{
    return x == y || (isnan(x) && isnan(y));
}

/* A thread for each line, whose elements lie `inner` apart. */
template <typename Y>
__global__ void spread_largest(int64_t lines, int64_t size, int64_t inner,
                               const float *__restrict__ g, const float *__restrict__ x,
                               const float *__restrict__ y, Y *__restrict__ dx)
{
    int64_t line = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (line >= lines) return;
    int64_t first = line / inner * size * inner + line % inner;
    bool found = false;
    for (int64_t k = 0; k < size; k++) {
        bool here = !found && is_largest(x[first + k * inner], y[line]);
        storage::store(&dx[first + k * inner], here ? g[line] : 0);
        found |= here;
    }
}

/* A warp for each line of neighbours. */
template <typename Y>
__global__ void spread_largest_rows(int64_t lines, int64_t size, const float *__restrict__ g,
                                    const float *__restrict__ x, const float *__restrict__ y,
                                    Y *__restrict__ dx)
{
    int64_t line = (int64_t)blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP;
    if (line >= lines) return; /* the whole warp */
    int lane = threadIdx.x % WARP;
    bool found = false;
    for (int64_t k = 0; k < size; k += WARP) {
        int64_t i = line * size + k + lane;
        bool inside = k + lane < size;
        unsigned those = __ballot_sync(0xffffffffu, inside && is_largest(x[i], y[line]));
        bool here = !found && (those & (0u - those)) == 1u << lane; /* the lowest bit */
        if (inside) storage::store(&dx[i], here ? g[line] : 0);
        found |= those != 0;
    }
}

template <typename Y>
void launch_reduce_grad(cudaStream_t stream, int64_t outer, int64_t size, int64_t inner,
                        float divisor, const float *g, const float *x, const float *y, Y *dx)
{
    int64_t lines = outer * inner, count = lines * size;
    if (!y && count <= INT32_MAX)
        LS_LAUNCH((spread<uint32_t, Y>), storage::blocks_for(count, THREADS), THREADS, 0, stream,
                  count, size, inner, divisor, g, dx);
    else if (!y)
        LS_LAUNCH((spread<uint64_t, Y>), storage::blocks_for(count, THREADS), THREADS, 0, stream,
                  count, size, inner, divisor, g, dx);
    else if (inner == 1)
        LS_LAUNCH((spread_largest_rows<Y>), storage::blocks_for(lines, THREADS / WARP), THREADS, 0,
                  stream, lines, size, g, x, y, dx);
    else
        LS_LAUNCH((spread_largest<Y>), storage::blocks_for(lines, THREADS), THREADS, 0, stream,
                  lines, size, inner, g, x, y, dx);
}

} // namespace

extern "C" void ls__cuda_reduction_cut(cuda_reduction *r)
{
    const cuda_strided *s = &r->reduced, *k = &r->kept;
    bool neighbours = s->rank > 0 && s->stride[0][s->rank - 1] == 1 && s->size[s->rank - 1] > 1;
    r->by_rows = neighbours || k->rank == 0;
    int64_t blocks = r->by_rows ? k->count : (k->count + WARP - 1) / WARP;
    int64_t least = (s->count + MOST_CHUNKS - 1) / MOST_CHUNKS;
    r->chunk = r->by_rows ? ROW_CHUNK : COLUMN_CHUNK;
    if (r->chunk < least) r->chunk = least;
    if (r->chunk > s->count || blocks >= ENOUGH_BLOCKS) r->chunk = s->count;
    r->chunks = (s->count + r->chunk - 1) / r->chunk;
    r->divisor = 1;
}

extern "C" size_t ls__cuda_reduction_workspace(const cuda_reduction *r)
{
    return r->chunks == 1 ? 0 : (size_t)(r->chunks * r->kept.count) * sizeof(float);
}

extern "C" void ls__cuda_launch_reduction(cudaStream_t stream, const cuda_reduction *r,
                                          const float *x, void *y, bool y_half, float *workspace)
{
    storage::by_type(y_half, [&](auto type) {
        auto *to = (decltype(type) *)y;
        if (r->largest)
            launch_reduction<largest>(stream, r, x, to, workspace);
        else
            launch_reduction<sum>(stream, r, x, to, workspace);
    });
}

extern "C" void ls__cuda_launch_reduce_grad(cudaStream_t stream, int64_t outer, int64_t size,
                                            int64_t inner, float divisor, const float *g,
                                            const float *x, const float *y, void *dx, bool dx_half)
{
    storage::by_type(dx_half, [&](auto type) {
        launch_reduce_grad(stream, outer, size, inner, divisor, g, x, y, (decltype(type) *)dx);
    });
}
