/* Losses element by element (mse, binary cross-entropy, smooth L1), and where the backward pass
 * begins. */
#include "backend/cuda/kernel_device.h"
#include "backend/cuda/kernel_loss.h"
#include "graph/ops.h"

/* --- the seed of the backward pass --- */

template <typename Y>
static __global__ void loss_grad(const float *weights, Y *seed, int64_t count,
                                 const cuda_values *values)
{
    const int64_t i = (int64_t)blockIdx.x * LS_BLOCK + threadIdx.x;
    if (i >= count) return;
    store(seed + i, (float)(values->grad_seed * (weights ? (double)weights[i] : 1)));
}

void ls__launch_loss_grad(const float *weights, device_out seed, int64_t count,
                          const cuda_values *values, cudaStream_t stream)
{
    by_type(seed.half, [&](auto type) {
        typedef decltype(type) Y;
        LS_LAUNCH(loss_grad<Y>, blocks_for(count, LS_BLOCK), LS_BLOCK, 0, stream, weights,
                  static_cast<Y *>(seed.data), count, values);
    });
}

/* --- element by element --- */

static __device__ inline float loss_of(int kind, float beta, float x, float target)
{
    const float d = x - target, size = fabsf(d);
    switch (kind) {
    case LS__LOSS_MSE:
        return d * d;
    case LS__LOSS_BCE:
        return (x < 0 ? 0 : x) - x * target + log1pf(expf(-fabsf(x)));
    default:
        return size < beta ? 0.5f * d * d / beta : size - 0.5f * beta;
    }
}

static __device__ inline float slope_of(int kind, float beta, float x, float target)
{
    const float d = x - target;
    switch (kind) {
    case LS__LOSS_MSE:
        return 2 * d;
    case LS__LOSS_BCE:
        return 1 / (1 + expf(-x)) - target;
    default:
        return fabsf(d) >= beta ? (d < 0 ? -1.0f : 1.0f) : d / beta;
    }
}

template <bool GRADIENT, int N, typename Y>
static __global__ void elementwise_loss(int kind, float beta, const float *g, const float *x,
                                        const float *target, Y *out, int64_t count)
{
    const int64_t i = ((int64_t)blockIdx.x * LS_BLOCK + threadIdx.x) * N;
    float v[N], t[N], slopes[N];
    if (i >= count) return;
    load(v, x + i);
    load(t, target + i);
    if (GRADIENT) load(slopes, g + i);
    for (int k = 0; k < N; k++)
        v[k] = GRADIENT ? slopes[k] * slope_of(kind, beta, v[k], t[k])
                        : loss_of(kind, beta, v[k], t[k]);
    store(out + i, v);
}

template <bool GRADIENT, int N, typename Y>
static void launch(const elementwise_loss_args *a, cudaStream_t stream)
{
    LS_LAUNCH((elementwise_loss<GRADIENT, N, Y>), blocks_for(a->count, LS_BLOCK * N), LS_BLOCK, 0,
              stream, a->kind, a->beta, a->g, a->x, a->target, static_cast<Y *>(a->out.data),
              a->count);
}

void ls__launch_elementwise_loss(const elementwise_loss_args *a, cudaStream_t stream)
{
    by_type(a->out.half, [&](auto y) {
        with_pack(pack_of(a->count, a->g, a->x, a->target, a->out.data), [&](auto n) {
            if (a->g)
                launch<true, decltype(n)::value, decltype(y)>(a, stream);
            else
                launch<false, decltype(n)::value, decltype(y)>(a, stream);
        });
    });
}
