/* add, sub, mul, div with broadcasting.
 *
 * Mostly two tensors of one shape (gradients summed, residual streams): four elements a thread, as
 * fast as memory. Whatever is broadcast goes element by element through the strides, of which few
 * are left because neighbouring dimensions that lie alike were made one. */
#include "backend/cuda/kernel_general.h"
#include "backend/cuda/kernel_storage.h"

using storage::four;

namespace
{

enum { THREADS = 256 };

__device__ inline float apply(int kind, float a, float b)
{
    switch (kind) {
    case CUDA_ADD:
        return a + b;
    case CUDA_SUB:
        return a - b;
    case CUDA_MUL:
        return a * b;
    default:
        return a / b;
    }
}

/* No __restrict__: y may be a or b. */
template <typename A, typename B, typename Y>
__global__ void binary_alike(int kind, int64_t count, const A *a, const B *b, Y *y)
{
    int64_t i = 4 * ((int64_t)blockIdx.x * THREADS + threadIdx.x);
    if (i + 4 <= count) {
        four<A> u = *(const four<A> *)(a + i);
        four<B> v = *(const four<B> *)(b + i);
        four<Y> w;
        for (int k = 0; k < 4; k++)
            storage::store(&w.at[k],
                           apply(kind, storage::to_float(u.at[k]), storage::to_float(v.at[k])));
        *(four<Y> *)(y + i) = w;
        return;
    }
    for (; i < count; i++)
        storage::store(&y[i], apply(kind, storage::to_float(a[i]), storage::to_float(b[i])));
}

/* Index: 32 bits where they are enough, since divisions are most of the work. */
template <typename Index, typename A, typename B, typename Y>
__global__ void binary_strided(int kind, cuda_strided s, const A *a, const B *b, Y *y)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= s.count) return;
    int64_t at_a = 0, at_b = 0;
    Index rest = (Index)i;
    for (int d = s.rank - 1; d >= 0; d--) {
        Index size = (Index)s.size[d], at = rest % size;
        rest /= size;
        at_a += at * s.stride[0][d];
        at_b += at * s.stride[1][d];
    }
    storage::store(&y[i], apply(kind, storage::to_float(a[at_a]), storage::to_float(b[at_b])));
}

template <typename A, typename B, typename Y>
void launch(cudaStream_t stream, int kind, const cuda_strided *s, const A *a, const B *b, Y *y)
{
    bool alike = s->rank == 1 && s->stride[0][0] == 1 && s->stride[1][0] == 1;
    unsigned each = storage::blocks_for(s->count, THREADS);
    if (alike && storage::is_aligned(a) && storage::is_aligned(b) && storage::is_aligned(y))
        LS_LAUNCH((binary_alike<A, B, Y>), storage::blocks_for(s->count, 4 * THREADS), THREADS, 0,
                  stream, kind, s->count, a, b, y);
    else if (s->count <= INT32_MAX)
        LS_LAUNCH((binary_strided<uint32_t, A, B, Y>), each, THREADS, 0, stream, kind, *s, a, b, y);
    else
        LS_LAUNCH((binary_strided<uint64_t, A, B, Y>), each, THREADS, 0, stream, kind, *s, a, b, y);
}

} // namespace

extern "C" void ls__cuda_launch_binary(cudaStream_t stream, cuda_binary kind, const cuda_strided *s,
                                       const void *a, bool a_half, const void *b, bool b_half,
                                       void *y, bool y_half)
{
    storage::by_type(a_half, [&](auto at) {
        storage::by_type(b_half, [&](auto bt) {
            storage::by_type(y_half, [&](auto yt) {
                launch(stream, kind, s, (const decltype(at) *)a, (const decltype(bt) *)b,
                       (decltype(yt) *)y);
            });
        });
    });
}
