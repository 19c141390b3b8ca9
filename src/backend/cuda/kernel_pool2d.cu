/* Pools over windows of images, with their gradients: a block walks one plane, that is one channel
 * of one image, so that an element's place in it costs one 32-bit division. */
#include "backend/cuda/kernel_image.h"
#include "backend/cuda/kernel_storage.h"

#include <math.h>

namespace
{

enum { MOST_THREADS = 256, WARP = 32 };

unsigned threads_for(int64_t elements)
{
    int64_t most = MOST_THREADS, threads = (elements + WARP - 1) / WARP * WARP;
    return (unsigned)(threads < most ? threads : most);
}

__device__ inline bool is_larger(float a, float b)
{
    return a > b || (isnan(a) && !isnan(b));
}

template <typename Y, typename I>
__global__ void max_pool(cuda_pool2d p, const float *__restrict__ x, Y *__restrict__ y,
                         I *__restrict__ index)
{
    int64_t plane = blockIdx.x, first = plane * p.rows * p.columns;
    for (int i = (int)threadIdx.x; i < p.rows * p.columns; i += (int)blockDim.x) {
        int row = i / p.columns, column = i - row * p.columns;
        const float *window =
            x + (plane * p.height + row * p.size) * p.width + (int64_t)column * p.size;
        float best = window[0];
        int at = 0;
        for (int u = 0; u < p.size; u++) {
            for (int v = 0; v < p.size; v++) {
                float value = window[(int64_t)u * p.width + v];
                if (!is_larger(value, best)) continue;
                best = value;
                at = u * p.size + v;
            }
        }
        storage::store(&y[first + i], best);
        if (index) index[first + i] = (I)at;
    }
}

template <typename Y, typename I>
__global__ void max_pool_grad(cuda_pool2d p, const float *__restrict__ g,
                              const I *__restrict__ index, Y *__restrict__ dx)
{
    int64_t plane = blockIdx.x, first = plane * p.height * p.width;
    for (int i = (int)threadIdx.x; i < p.height * p.width; i += (int)blockDim.x) {
        int h = i / p.width, w = i - h * p.width, row = h / p.size, column = w / p.size;
        float value = 0;
        if (row < p.rows && column < p.columns) {
            int64_t from = (plane * p.rows + row) * p.columns + column;
            int at = (h - row * p.size) * p.size + w - column * p.size;
            if ((int)index[from] == at) value = g[from];
        }
        storage::store(&dx[first + i], value);
    }
}

template <typename Y>
__global__ void avg_pool(cuda_pool2d p, const float *__restrict__ x, Y *__restrict__ y)
{
    int64_t plane = blockIdx.x, first = plane * p.rows * p.columns;
    for (int i = (int)threadIdx.x; i < p.rows * p.columns; i += (int)blockDim.x) {
        int row = i / p.columns, column = i - row * p.columns;
        const float *window =
            x + (plane * p.height + row * p.size) * p.width + (int64_t)column * p.size;
        float sum = 0;
        for (int u = 0; u < p.size; u++)
            for (int v = 0; v < p.size; v++) sum += window[(int64_t)u * p.width + v];
        storage::store(&y[first + i], sum / (float)(p.size * p.size));
    }
}

template <typename Y>
__global__ void avg_pool_grad(cuda_pool2d p, const float *__restrict__ g, Y *__restrict__ dx)
{
    int64_t plane = blockIdx.x, first = plane * p.height * p.width;
    for (int i = (int)threadIdx.x; i < p.height * p.width; i += (int)blockDim.x) {
        int h = i / p.width, w = i - h * p.width, row = h / p.size, column = w / p.size;
        float value = 0;
        if (row < p.rows && column < p.columns)
            value = g[(plane * p.rows + row) * p.columns + column] / (float)(p.size * p.size);
        storage::store(&dx[first + i], value);
    }
}

template <typename Launch> void by_index(bool wide, Launch launch)
{
    if (wide)
        launch(int32_t {});
    else
        launch(uint8_t {});
}

} // namespace

extern "C" void ls__cuda_launch_max_pool(cudaStream_t stream, const cuda_pool2d *p, const float *x,
                                         void *y, bool y_half, void *index, bool wide_index)
{
    unsigned threads = threads_for((int64_t)p->rows * p->columns);
    storage::by_type(y_half, [&](auto yt) {
        by_index(wide_index, [&](auto it) {
            using Y = decltype(yt);
            using I = decltype(it);
            LS_LAUNCH((max_pool<Y, I>), (unsigned)p->planes, threads, 0, stream, *p, x, (Y *)y,
                      (I *)index);
        });
    });
}

extern "C" void ls__cuda_launch_max_pool_grad(cudaStream_t stream, const cuda_pool2d *p,
                                              const float *g, const void *index, bool wide_index,
                                              void *dx, bool dx_half)
{
    unsigned threads = threads_for((int64_t)p->height * p->width);
    storage::by_type(dx_half, [&](auto yt) {
        by_index(wide_index, [&](auto it) {
            using Y = decltype(yt);
            using I = decltype(it);
            LS_LAUNCH((max_pool_grad<Y, I>), (unsigned)p->planes, threads, 0, stream, *p, g,
                      (const I *)index, (Y *)dx);
        });
    });
}

extern "C" void ls__cuda_launch_avg_pool(cudaStream_t stream, const cuda_pool2d *p, const float *x,
                                         void *y, bool y_half)
{
    unsigned threads = threads_for((int64_t)p->rows * p->columns);
    storage::by_type(y_half, [&](auto yt) {
        using Y = decltype(yt);
        LS_LAUNCH((avg_pool<Y>), (unsigned)p->planes, threads, 0, stream, *p, x, (Y *)y);
    });
}

extern "C" void ls__cuda_launch_avg_pool_grad(cudaStream_t stream, const cuda_pool2d *p,
                                              const float *g, void *dx, bool dx_half)
{
    unsigned threads = threads_for((int64_t)p->height * p->width);
    storage::by_type(dx_half, [&](auto yt) {
        using Y = decltype(yt);
        LS_LAUNCH((avg_pool_grad<Y>), (unsigned)p->planes, threads, 0, stream, *p, g, (Y *)dx);
    });
}
