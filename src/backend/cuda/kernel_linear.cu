/* What a linear layer needs beside its products: the bias's gradient, sums of columns.
 *
 * Columns are few and rows are many (tokens of a batch), so rows are cut into stretches of fixed
 * size; a block adds one up for 32 columns, eight rows at a time side by side, and a second kernel
 * adds the stretches in order. */
#include "backend/cuda/kernel_linear.h"
#include "backend/cuda/kernel_storage.h"

namespace
{

enum { THREADS = 256, COLUMNS = 32, LANES = THREADS / COLUMNS, STRETCH = 256 };

/* Block (b, s): columns [32 b, ...), rows of stretch s. A warp reads 32 neighbours of a row. */
template <typename G>
__global__ void stretch_sums(int64_t rows, int64_t columns, const G *__restrict__ g,
                             float *__restrict__ sums)
{
    __shared__ float part[LANES][COLUMNS];
    int column_lane = threadIdx.x % COLUMNS, row_lane = threadIdx.x / COLUMNS;
    int64_t column = (int64_t)blockIdx.x * COLUMNS + column_lane;
    int64_t first = (int64_t)blockIdx.y * STRETCH;
    int64_t end = first + STRETCH < rows ? first + STRETCH : rows;
    float sum = 0;
    if (column < columns)
        for (int64_t row = first + row_lane; row < end; row += LANES)
            sum += storage::to_float(g[row * columns + column]);
    part[row_lane][column_lane] = sum;
    __syncthreads();
    if (row_lane != 0 || column >= columns) return;
    for (int lane = 1; lane < LANES; lane++) sum += part[lane][column_lane];
    sums[(int64_t)blockIdx.y * columns + column] = sum;
}

__global__ void add_stretches(int64_t stretches, int64_t columns, const float *__restrict__ sums,
                              float *__restrict__ out)
{
    int64_t column = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (column >= columns) return;
    float sum = 0;
    for (int64_t s = 0; s < stretches; s++) sum += sums[s * columns + column];
    out[column] = sum;
}

/* At most 65535 blocks lie along y: rows beyond 16 million are beyond any batch. */
int64_t stretches_of(int64_t rows)
{
    return (rows + STRETCH - 1) / STRETCH;
}

} // namespace

extern "C" size_t ls__cuda_column_sums_workspace(int64_t rows, int64_t columns)
{
    int64_t stretches = stretches_of(rows);
    return stretches > 1 ? (size_t)(stretches * columns) * sizeof(float) : 0;
}

extern "C" void ls__cuda_launch_column_sums(cudaStream_t stream, int64_t rows, int64_t columns,
                                            const void *g, bool g_half, float *sum,
                                            float *workspace)
{
    int64_t stretches = stretches_of(rows);
    float *sums = stretches > 1 ? workspace : sum;
    dim3 grid(storage::blocks_for(columns, COLUMNS), (unsigned)stretches);
    storage::by_type(g_half, [&](auto t) {
        LS_LAUNCH((stretch_sums<decltype(t)>), grid, THREADS, 0, stream, rows, columns,
                  (const decltype(t) *)g, sums);
    });
    if (stretches > 1)
        LS_LAUNCH(add_stretches, storage::blocks_for(columns, THREADS), THREADS, 0, stream,
                  stretches, columns, (const float *)sums, sum);
}
