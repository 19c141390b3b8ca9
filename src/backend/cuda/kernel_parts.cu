/* Buckets between the flat space and the form in which NCCL adds and gathers them: (size, most), the
 * slice of each rank from its part's begin on.
 *
 * Slices are whole blocks and so of different sizes, NCCL's parts are not; a copy at the memory's
 * speed is cheaper than calls of different sizes, which it would do one after the other. What merges
 * or rounds on the way saves a pass. Margins are zero. */
#include "backend/cuda/kernel_device.h"
#include "backend/cuda/kernel_resident.h"

namespace
{

enum { EACH = 4, TURN = EACH * LS_BLOCK };

typedef pack<float, EACH> floats;

/* Where this thread's neighbours lie: in the flat space, in the parts, and how many they are. */
struct place {
    int64_t flat, packed;
    int n;
};

__device__ inline place find(const cuda_slice *slices, int stride, int64_t most)
{
    cuda_slice s = slices[(int64_t)blockIdx.y * stride];
    int64_t i = EACH * ((int64_t)blockIdx.x * LS_BLOCK + threadIdx.x), left = s.end - s.begin - i;
    if (i >= most) return { 0, 0, -1 };
    return { s.begin + i, blockIdx.y * most + i,
             left < 0      ? 0
             : left < EACH ? (int)left
                           : (int)EACH };
}

__device__ inline floats read(const float *from, int n)
{
    if (n == EACH) return *reinterpret_cast<const floats *>(from);
    floats x = {};
    for (int k = 0; k < n; k++) x.at[k] = from[k];
    return x;
}

/* plus NULL: nothing is added; from NULL: zeros. */
__global__ void gather(const cuda_slice *slices, int stride, int64_t most, const float *from,
                       const float *plus, float *parts)
{
    place p = find(slices, stride, most);
    if (p.n < 0) return;
    floats x = from ? read(from + p.flat, p.n) : floats {};
    if (plus) {
        floats y = read(plus + p.flat, p.n);
        for (int k = 0; k < EACH; k++) x.at[k] += y.at[k];
    }
    *reinterpret_cast<floats *>(parts + p.packed) = x;
}

__global__ void scatter(const cuda_slice *slices, int stride, int64_t most, int own,
                        const float *parts, float *to, bf16 *halves)
{
    place p = find(slices, stride, most);
    if ((int)blockIdx.y == own || p.n <= 0) return;
    floats x = *reinterpret_cast<const floats *>(parts + p.packed);
    if (p.n == EACH) {
        *reinterpret_cast<floats *>(to + p.flat) = x;
        if (halves) store(halves + p.flat, x.at);
        return;
    }
    for (int k = 0; k < p.n; k++) {
        to[p.flat + k] = x.at[k];
        if (halves) storage::store(halves + p.flat + k, x.at[k]);
    }
}

dim3 grid_of(int64_t most, int nparts)
{
    return dim3(storage::blocks_for(most, TURN), (unsigned)nparts);
}

} // namespace

extern "C" void ls__cuda_launch_gather(cudaStream_t stream, const cuda_parts *b, const float *from,
                                       const float *plus, float *parts)
{
    LS_LAUNCH(gather, grid_of(b->most, b->n), LS_BLOCK, 0, stream, b->slices, b->stride, b->most,
              from, plus, parts);
}

extern "C" void ls__cuda_launch_scatter(cudaStream_t stream, const cuda_parts *b, int own,
                                        const float *parts, float *to, uint16_t *halves)
{
    LS_LAUNCH(scatter, grid_of(b->most, b->n), LS_BLOCK, 0, stream, b->slices, b->stride, b->most,
              own, parts, to, reinterpret_cast<bf16 *>(halves));
}
