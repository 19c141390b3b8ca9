/* Batch norm over groups of samples, with its gradient and its inference.
 *
 * One block has one group of one channel, or of 32 neighbouring channels where images are so small
 * that a channel's elements lie far apart; it reads them three times, mostly from cache: mean,
 * variance from the mean, result. Sums go by lanes, then by a tree over lanes; groups are added in
 * order by a second kernel. */
#include "backend/cuda/kernel_image.h"
#include "backend/cuda/kernel_storage.h"

#include <math.h>

namespace
{

enum { THREADS = 256, NEIGHBOURS = 32, SMALL_IMAGE = 16 };

/* The elements of one channel of one group, as one thread sees them. */
struct part {
    int64_t channel, first; /* the group's first sample's plane of the channel, in elements */
    int64_t pitch;          /* from a sample to the next */
    int64_t group;
    int count, image; /* elements of the channel in the group; in one sample */
    int lane;
};

template <int CHANNELS> __device__ inline part part_of(const cuda_batch_norm &n)
{
    int64_t tiles = (n.channels + CHANNELS - 1) / CHANNELS;
    part p;
    p.group = blockIdx.x / tiles;
    p.channel = blockIdx.x % tiles * CHANNELS + threadIdx.x % CHANNELS;
    p.lane = (int)threadIdx.x / CHANNELS;
    p.pitch = n.channels * n.image;
    p.first = p.group * n.group * p.pitch + p.channel * n.image;
    int64_t samples = n.batch - p.group * n.group;
    if (samples > n.group) samples = n.group;
    p.image = (int)n.image;
    p.count = p.channel < n.channels ? (int)(samples * n.image) : 0;
    return p;
}

__device__ inline int64_t element(const part &p, int i)
{
    int sample = i / p.image;
    return p.first + sample * p.pitch + (i - sample * p.image);
}

/* The sum over the lanes of a channel, for all of them. sums: (THREADS) shared */
template <int CHANNELS> __device__ inline float sum_lanes(float value, float *sums)
{
    __syncthreads(); /* the last result has been read by all */
    sums[threadIdx.x] = value;
    for (unsigned half = THREADS / 2; half >= CHANNELS; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    __syncthreads();
    return sums[threadIdx.x % CHANNELS];
}

template <int CHANNELS, typename Y>
__global__ void batch_norm(cuda_batch_norm n, const float *__restrict__ x,
                           const float *__restrict__ weight, const float *__restrict__ bias,
                           Y *__restrict__ y, float *__restrict__ mean_out,
                           float *__restrict__ inverse_out, float *__restrict__ variance_out)
{
    __shared__ float sums[THREADS];
    const int lanes = THREADS / CHANNELS;
    part p = part_of<CHANNELS>(n);
    float sum = 0, squares = 0;
    for (int i = p.lane; i < p.count; i += lanes) sum += x[element(p, i)];
    float mean = sum_lanes<CHANNELS>(sum, sums) / (float)p.count;
    for (int i = p.lane; i < p.count; i += lanes) {
        float d = x[element(p, i)] - mean;
        squares += d * d;
    }
    float variance = sum_lanes<CHANNELS>(squares, sums) / (float)p.count;
    if (p.channel >= n.channels) return;
    float inverse = 1 / sqrtf(variance + n.epsilon);
    for (int i = p.lane; i < p.count; i += lanes) {
        int64_t e = element(p, i);
        storage::store(&y[e], (x[e] - mean) * inverse * weight[p.channel] + bias[p.channel]);
    }
    if (p.lane > 0) return;
    int64_t at = p.group * n.channels + p.channel;
    mean_out[at] = mean;
    inverse_out[at] = inverse;
    variance_out[at] = variance;
}

/* Groups in order; a thread for each channel. */
__global__ void sum_statistics(cuda_batch_norm n, const float *__restrict__ mean,
                               const float *__restrict__ variance, float *__restrict__ sum_mean,
                               float *__restrict__ sum_variance)
{
    int64_t channel = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (channel >= n.channels) return;
    float means = 0, variances = 0;
    for (int64_t group = 0; group < n.groups; group++) {
        int64_t samples = n.batch - group * n.group;
        if (samples > n.group) samples = n.group;
        float count = (float)(samples * n.image), fewer = count > 1 ? count - 1 : 1;
        means += (float)samples * mean[group * n.channels + channel];
        variances += (float)samples * variance[group * n.channels + channel] * count / fewer;
    }
    sum_mean[channel] = means;
    sum_variance[channel] = variances;
}

/* No __restrict__ on g and dx: dx may be g. */
template <int CHANNELS, typename Y>
__global__ void batch_norm_grad(cuda_batch_norm n, const float *g, const float *__restrict__ x,
                                const float *__restrict__ weight, const float *__restrict__ means,
                                const float *__restrict__ inverses, Y *dx,
                                float *__restrict__ sums_out, float *__restrict__ dots_out)
{
    __shared__ float sums[THREADS];
    const int lanes = THREADS / CHANNELS;
    part p = part_of<CHANNELS>(n);
    int64_t at = p.group * n.channels + p.channel;
    bool inside = p.channel < n.channels;
    float mean = inside ? means[at] : 0, inverse = inside ? inverses[at] : 0, sum = 0, dot = 0;
    for (int i = p.lane; i < p.count; i += lanes) {
        int64_t e = element(p, i);
        sum += g[e];
        dot += g[e] * ((x[e] - mean) * inverse);
    }
    sum = sum_lanes<CHANNELS>(sum, sums);
    dot = sum_lanes<CHANNELS>(dot, sums);
    if (!inside) return;
    float scale = weight[p.channel] * inverse, count = (float)p.count;
    for (int i = p.lane; i < p.count; i += lanes) {
        int64_t e = element(p, i);
        float h = (x[e] - mean) * inverse;
        storage::store(&dx[e], scale * (g[e] - sum / count - h * (dot / count)));
    }
    if (p.lane > 0) return;
    sums_out[at] = sum;
    dots_out[at] = dot;
}

__global__ void sum_groups(cuda_batch_norm n, const float *__restrict__ sums,
                           const float *__restrict__ dots, float *__restrict__ dweight,
                           float *__restrict__ dbias)
{
    int64_t channel = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (channel >= n.channels) return;
    float sum = 0, dot = 0;
    for (int64_t group = 0; group < n.groups; group++) {
        sum += sums[group * n.channels + channel];
        dot += dots[group * n.channels + channel];
    }
    dweight[channel] = dot;
    dbias[channel] = sum;
}

/* No __restrict__ on x and y: y may be x. */
template <typename Y>
__global__ void batch_norm_inference(cuda_batch_norm n, const float *x,
                                     const float *__restrict__ weight,
                                     const float *__restrict__ bias, const float *__restrict__ mean,
                                     const float *__restrict__ variance, Y *y)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n.batch * n.channels * n.image) return;
    int64_t c = i / n.image % n.channels;
    float inverse = 1 / sqrtf(variance[c] + n.epsilon);
    storage::store(&y[i], (x[i] - mean[c]) * inverse * weight[c] + bias[c]);
}

/* Calls launch with the number of blocks and a value whose type holds the channels of each. */
template <int CHANNELS> struct channels_of {
    enum { count = CHANNELS };
};

template <typename Launch> void by_image(const cuda_batch_norm *n, Launch launch)
{
    int64_t tiles = (n->channels + NEIGHBOURS - 1) / NEIGHBOURS;
    if (n->image < SMALL_IMAGE)
        launch((unsigned)(n->groups * tiles), channels_of<NEIGHBOURS> {});
    else
        launch((unsigned)(n->groups * n->channels), channels_of<1> {});
}

} // namespace

extern "C" void ls__cuda_launch_batch_norm(cudaStream_t stream, const cuda_batch_norm *n,
                                           const float *x, const float *weight, const float *bias,
                                           void *y, bool y_half, float *mean, float *inverse,
                                           float *sum_mean, float *sum_variance, float *variance)
{
    storage::by_type(y_half, [&](auto yt) {
        by_image(n, [&](unsigned blocks, auto channels) {
            using Y = decltype(yt);
            LS_LAUNCH((batch_norm<decltype(channels)::count, Y>), blocks, THREADS, 0, stream, *n, x,
                      weight, bias, (Y *)y, mean, inverse, variance);
        });
    });
    LS_LAUNCH(sum_statistics, storage::blocks_for(n->channels, THREADS), THREADS, 0, stream, *n,
              mean, variance, sum_mean, sum_variance);
}

extern "C" void ls__cuda_launch_batch_norm_grad(cudaStream_t stream, const cuda_batch_norm *n,
                                                const float *g, const float *x, const float *weight,
                                                const float *mean, const float *inverse, void *dx,
                                                bool dx_half, float *dweight, float *dbias,
                                                float *sums)
{
    float *dots = sums + n->groups * n->channels;
    storage::by_type(dx_half, [&](auto yt) {
        by_image(n, [&](unsigned blocks, auto channels) {
            using Y = decltype(yt);
            LS_LAUNCH((batch_norm_grad<decltype(channels)::count, Y>), blocks, THREADS, 0, stream,
                      *n, g, x, weight, mean, inverse, (Y *)dx, sums, dots);
        });
    });
    LS_LAUNCH(sum_groups, storage::blocks_for(n->channels, THREADS), THREADS, 0, stream, *n, sums,
              dots, dweight, dbias);
}

extern "C" void ls__cuda_launch_batch_norm_inference(cudaStream_t stream, const cuda_batch_norm *n,
                                                     const float *x, const float *weight,
                                                     const float *bias, const float *mean,
                                                     const float *variance, void *y, bool y_half)
{
    int64_t count = n->batch * n->channels * n->image;
    storage::by_type(y_half, [&](auto yt) {
        using Y = decltype(yt);
        LS_LAUNCH((batch_norm_inference<Y>), storage::blocks_for(count, THREADS), THREADS, 0,
                  stream, *n, x, weight, bias, mean, variance, (Y *)y);
    });
}
