/* relu, its gradient, scale, and the change between f32 and bf16.
 *
 * They are as fast as memory: a thread takes four neighbours by one instruction where the arrays
 * are aligned, which all but a slice's are. */
#include "backend/cuda/kernel_elementwise.h"
#include "backend/cuda/kernel_storage.h"

using storage::four;
using storage::store;
using storage::to_float;

namespace
{

enum { THREADS = 256, EACH = 4 };

/* No __restrict__ below: what is written may be what is read. */

__device__ inline int64_t first_of_thread()
{
    return EACH * ((int64_t)blockIdx.x * THREADS + threadIdx.x);
}

struct rectify { /* a NaN stays one */
    __device__ float operator()(float x) const
    {
        return x < 0 ? 0 : x;
    }
};

struct keep {
    __device__ float operator()(float x) const
    {
        return x;
    }
};

struct stretch {
    float factor, offset;
    __device__ float operator()(float x) const
    {
        return factor * x + offset;
    }
};

template <typename T> __device__ inline float number(T x)
{
    return (float)x;
}

template <> __device__ inline float number(__nv_bfloat16 x)
{
    return to_float(x);
}

template <typename F, typename X, typename Y>
__global__ void map(F f, int64_t count, bool aligned, const X *x, Y *y)
{
    int64_t i = first_of_thread(), end = i + EACH < count ? i + EACH : count;
    if (aligned && i + EACH <= count) {
        four<X> u = *(const four<X> *)(x + i);
        four<Y> v;
        for (int k = 0; k < EACH; k++) store(&v.at[k], f(number(u.at[k])));
        *(four<Y> *)(y + i) = v;
        return;
    }
    for (; i < end; i++) store(&y[i], f(number(x[i])));
}

template <typename G, typename Y, typename D>
__global__ void relu_grad(int64_t count, bool aligned, const G *g, const Y *y, D *dx)
{
    int64_t i = first_of_thread(), end = i + EACH < count ? i + EACH : count;
    if (aligned && i + EACH <= count) {
        four<G> u = *(const four<G> *)(g + i);
        four<Y> v = *(const four<Y> *)(y + i);
        four<D> w;
        for (int k = 0; k < EACH; k++)
            store(&w.at[k], to_float(v.at[k]) <= 0 ? 0 : to_float(u.at[k]));
        *(four<D> *)(dx + i) = w;
        return;
    }
    for (; i < end; i++) store(&dx[i], to_float(y[i]) <= 0 ? 0 : to_float(g[i]));
}

template <typename F, typename X>
void launch_map(cudaStream_t stream, F f, int64_t count, const X *x, void *y, bool y_half)
{
    storage::by_type(y_half, [&](auto t) {
        using Y = decltype(t);
        bool aligned = storage::is_aligned(x) && storage::is_aligned((const Y *)y);
        LS_LAUNCH((map<F, X, Y>), storage::blocks_for(count, THREADS * EACH), THREADS, 0, stream, f,
                  count, aligned, x, (Y *)y);
    });
}

template <typename F>
void launch_stored(cudaStream_t stream, F f, int64_t count, const void *x, bool x_half, void *y,
                   bool y_half)
{
    storage::by_type(
        x_half, [&](auto t) { launch_map(stream, f, count, (const decltype(t) *)x, y, y_half); });
}

} // namespace

extern "C" void ls__cuda_launch_relu(cudaStream_t stream, int64_t count, const void *x, bool x_half,
                                     void *y, bool y_half)
{
    launch_stored(stream, rectify {}, count, x, x_half, y, y_half);
}

extern "C" void ls__cuda_launch_convert(cudaStream_t stream, int64_t count, const void *x,
                                        bool x_half, void *y, bool y_half)
{
    launch_stored(stream, keep {}, count, x, x_half, y, y_half);
}

extern "C" void ls__cuda_launch_relu_grad(cudaStream_t stream, int64_t count, const void *g,
                                          bool g_half, const void *y, bool y_half, void *dx,
                                          bool dx_half)
{
    storage::by_type(g_half, [&](auto gt) {
        storage::by_type(y_half, [&](auto yt) {
            storage::by_type(dx_half, [&](auto dt) {
                using G = decltype(gt);
                using Y = decltype(yt);
                using D = decltype(dt);
                bool aligned = storage::is_aligned((const G *)g) &&
                               storage::is_aligned((const Y *)y) &&
                               storage::is_aligned((const D *)dx);
                LS_LAUNCH((relu_grad<G, Y, D>), storage::blocks_for(count, THREADS * EACH), THREADS,
                          0, stream, count, aligned, (const G *)g, (const Y *)y, (D *)dx);
            });
        });
    });
}

extern "C" void ls__cuda_launch_scale(cudaStream_t stream, int64_t count, float factor,
                                      float offset, const void *x, cuda_number kind, void *y,
                                      bool y_half)
{
    stretch f = { factor, offset };
    switch (kind) {
    case CUDA_F32:
        return launch_map(stream, f, count, (const float *)x, y, y_half);
    case CUDA_BF16:
        return launch_map(stream, f, count, (const __nv_bfloat16 *)x, y, y_half);
    case CUDA_U8:
        return launch_map(stream, f, count, (const uint8_t *)x, y, y_half);
    case CUDA_I32:
        return launch_map(stream, f, count, (const int32_t *)x, y, y_half);
    case CUDA_I64:
        return launch_map(stream, f, count, (const int64_t *)x, y, y_half);
    }
}
