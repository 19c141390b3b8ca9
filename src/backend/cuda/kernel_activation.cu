/* Activations with a curve, element by element: GELU, its approximation by tanh, SiLU, tanh,
 * sigmoid, and their slopes. Bound by memory: several numbers in one load, all kinds in one
 * kernel. */
#include "backend/cuda/kernel_device.h"
#include "backend/cuda/kernel_rows.h"
#include "graph/ops.h"

static __device__ inline float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

/* Phi(x); by erfc, so that no digits cancel where x is far below 0. */
static __device__ inline float normal_below(float x)
{
    const float root_half = 0.707106781f;
    return 0.5f * erfcf(-x * root_half);
}

/* 2 sqrt(2 / pi) (x + 0.044715 x^3): (1 + tanh) / 2 of its half is its sigmoid, of which no digits
 * cancel either. */
static __device__ inline float inner(float x)
{
    return 1.595769122f * (x + 0.044715f * x * x * x);
}

/* Where x^2 would overflow the curve has long been straight. */
static __device__ inline float inner_slope(float x)
{
    float near = fminf(fabsf(x), 20.0f);
    return 1.595769122f * (1 + 0.134145f * near * near);
}

static __device__ inline float curve(int kind, float x)
{
    switch (kind) {
    case LS__ACTIVATION_GELU:
        return x * normal_below(x);
    case LS__ACTIVATION_GELU_TANH:
        return x * sigmoid(inner(x));
    case LS__ACTIVATION_SILU:
        return x * sigmoid(x);
    case LS__ACTIVATION_TANH:
        return tanhf(x);
    default:
        return sigmoid(x);
    }
}

static __device__ inline float slope(int kind, float x)
{
    const float inverse_root_two_pi = 0.398942280f;
    float t;
    switch (kind) {
    case LS__ACTIVATION_GELU:
        return normal_below(x) + x * inverse_root_two_pi * expf(-0.5f * x * x);
    case LS__ACTIVATION_GELU_TANH:
        t = inner(x);
        return sigmoid(t) + x * (sigmoid(t) * sigmoid(-t)) * inner_slope(x);
    case LS__ACTIVATION_SILU:
        return sigmoid(x) + x * (sigmoid(x) * sigmoid(-x));
    case LS__ACTIVATION_TANH: /* 1 / cosh^2 */
        t = expf(-2 * fabsf(x));
        return 4 * t / ((1 + t) * (1 + t));
    default:
        return sigmoid(x) * sigmoid(-x);
    }
}

template <int N, typename X, typename Y>
static __global__ void activation(int kind, const X *x, Y *y, int64_t count)
{
    int64_t i = ((int64_t)blockIdx.x * LS_BLOCK + threadIdx.x) * N;
    float v[N];
    if (i >= count) return;
    load(v, x + i);
    for (int k = 0; k < N; k++) v[k] = curve(kind, v[k]);
    store(y + i, v);
}

template <int N, typename G, typename X, typename Y>
static __global__ void activation_grad(int kind, const G *g, const X *x, Y *dx, int64_t count)
{
    int64_t i = ((int64_t)blockIdx.x * LS_BLOCK + threadIdx.x) * N;
    float v[N], slopes[N];
    if (i >= count) return;
    load(v, x + i);
    load(slopes, g + i);
    for (int k = 0; k < N; k++) v[k] = slopes[k] * slope(kind, v[k]);
    store(dx + i, v);
}

void ls__launch_activation(int kind, device_in x, device_out y, int64_t count, cudaStream_t stream)
{
    by_type(x.half, [&](auto x_type) {
        by_type(y.half, [&](auto y_type) {
            with_pack(pack_of(count, x.data, y.data), [&](auto n) {
                typedef decltype(x_type) X;
                typedef decltype(y_type) Y;
                constexpr int N = decltype(n)::value;
                LS_LAUNCH((activation<N, X, Y>), blocks_for(count, LS_BLOCK * N), LS_BLOCK, 0,
                          stream, kind, static_cast<const X *>(x.data), static_cast<Y *>(y.data),
                          count);
            });
        });
    });
}

template <typename G, typename X>
static void launch_grad(int kind, const G *g, const X *x, device_out dx, int64_t count,
                        cudaStream_t stream)
{
    by_type(dx.half, [&](auto y_type) {
        with_pack(pack_of(count, g, x, dx.data), [&](auto n) {
            typedef decltype(y_type) Y;
            constexpr int N = decltype(n)::value;
            LS_LAUNCH((activation_grad<N, G, X, Y>), blocks_for(count, LS_BLOCK * N), LS_BLOCK, 0,
                      stream, kind, g, x, static_cast<Y *>(dx.data), count);
        });
    });
}

void ls__launch_activation_grad(int kind, device_in g, device_in x, device_out dx, int64_t count,
                                cudaStream_t stream)
{
    by_type(g.half, [&](auto g_type) {
        by_type(x.half, [&](auto x_type) {
            launch_grad(kind, static_cast<const decltype(g_type) *>(g.data),
                        static_cast<const decltype(x_type) *>(x.data), dx, count, stream);
        });
    });
}
