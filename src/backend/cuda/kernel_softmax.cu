/* softmax over the last dimension and its gradient: a warp per row, a block where rows are long. */
#include <cfloat>

#include "backend/cuda/kernel_device.h"
#include "backend/cuda/kernel_rows.h"

enum { LONG = 2048 }; /* numbers of a row that keep a block busy */

template <int THREADS, typename Y>
static __global__ void softmax(const float *x, Y *y, int64_t rows, int width)
{
    typedef row_of<THREADS> row;
    const int64_t r = row::index();
    if (r >= rows) return;
    x += r * width;
    y += r * width;
    float most = -INFINITY, sum = 0;
    for (int i = row::lane(); i < width; i += THREADS) most = fmaxf(most, x[i]);
    most = row::combine(most, larger_of());
    for (int i = row::lane(); i < width; i += THREADS) sum += expf(x[i] - most);
    sum = row::combine(sum, sum_of());
    for (int i = row::lane(); i < width; i += THREADS) store(y + i, expf(x[i] - most) / sum);
}

template <int THREADS, typename Y>
static __global__ void softmax_grad(const float *g, const float *y, Y *dx, int64_t rows, int width)
{
    typedef row_of<THREADS> row;
    const int64_t r = row::index();
    if (r >= rows) return;
    g += r * width;
    y += r * width;
    dx += r * width;
    float sum = 0;
    for (int i = row::lane(); i < width; i += THREADS) sum += g[i] * y[i];
    sum = row::combine(sum, sum_of());
    for (int i = row::lane(); i < width; i += THREADS) store(dx + i, y[i] * (g[i] - sum));
}

void ls__launch_softmax(const float *x, device_out y, int64_t rows, int64_t width,
                        cudaStream_t stream)
{
    by_type(y.half, [&](auto type) {
        typedef decltype(type) Y;
        if (width < LONG)
            LS_LAUNCH((softmax<LS_WARP, Y>), blocks_for(rows, LS_WARPS), LS_BLOCK, 0, stream, x,
                      static_cast<Y *>(y.data), rows, (int)width);
        else
            LS_LAUNCH((softmax<LS_BLOCK, Y>), (unsigned)rows, LS_BLOCK, 0, stream, x,
                      static_cast<Y *>(y.data), rows, (int)width);
    });
}

void ls__launch_softmax_grad(const float *g, const float *y, device_out dx, int64_t rows,
                             int64_t width, cudaStream_t stream)
{
    by_type(dx.half, [&](auto type) {
        typedef decltype(type) Y;
        if (width < LONG)
            LS_LAUNCH((softmax_grad<LS_WARP, Y>), blocks_for(rows, LS_WARPS), LS_BLOCK, 0, stream,
                      g, y, static_cast<Y *>(dx.data), rows, (int)width);
        else
            LS_LAUNCH((softmax_grad<LS_BLOCK, Y>), (unsigned)rows, LS_BLOCK, 0, stream, g, y,
                      static_cast<Y *>(dx.data), rows, (int)width);
    });
}
