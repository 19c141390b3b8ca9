/* layer_norm and rms_norm over the last dimension, with their gradients.
 *
 * A warp owns a row and reads it from memory once: what it reads again lies in the first-level
 * cache. The gradients of weight and bias are sums over all rows, a column at a time: a grid of
 * blocks adds up pieces of rows, a second launch the pieces, so that the order is that of the shape
 * and no number is added by two threads at once. */
#include "backend/cuda/kernel_device.h"
#include "backend/cuda/kernel_rows.h"

/* A parameter, read once per element: its storage is looked up there and needs no kernel of its
 * own. */
struct parameter {
    const void *data;
    bool half;

    __device__ float at(int i) const
    {
        return half ? to_float(static_cast<const bf16 *>(data)[i])
                    : static_cast<const float *>(data)[i];
    }
};

/* --- forward --- */

template <bool CENTRED, int N, typename X, typename Y>
static __global__ void norm(const X *x, const void *weight, bool weight_half, const void *bias,
                            bool bias_half, Y *y, float *mean, float *inverse, int64_t rows,
                            int width, float epsilon)
{
    typedef row_of<LS_WARP> row;
    const int64_t r = row::index();
    const int first = row::lane() * N, step = LS_WARP * N;
    if (r >= rows) return;
    x += r * width;
    y += r * width;
    float v[N], centre = 0, squares = 0;
    for (int i = first; CENTRED && i < width; i += step) {
        load(v, x + i);
        for (int k = 0; k < N; k++) centre += v[k];
    }
    if (CENTRED) centre = row::combine(centre, sum_of()) / (float)width;
    for (int i = first; i < width; i += step) {
        load(v, x + i);
        for (int k = 0; k < N; k++) squares += (v[k] - centre) * (v[k] - centre);
    }
    squares = row::combine(squares, sum_of());
    const float scale = 1 / sqrtf(squares / (float)width + epsilon);
    const parameter w = { weight, weight_half }, b = { bias, bias_half };
    for (int i = first; i < width; i += step) {
        load(v, x + i);
        for (int k = 0; k < N; k++)
            v[k] = (v[k] - centre) * scale * w.at(i + k) + (bias ? b.at(i + k) : 0);
        store(y + i, v);
    }
    if (row::lane() != 0) return;
    if (CENTRED && mean) mean[r] = centre;
    if (inverse) inverse[r] = scale;
}

template <bool CENTRED, int N, typename X, typename Y>
static void launch_norm(const norm_forward *a, cudaStream_t stream)
{
    LS_LAUNCH((norm<CENTRED, N, X, Y>), blocks_for(a->rows, LS_WARPS), LS_BLOCK, 0, stream,
              static_cast<const X *>(a->x.data), a->weight.data, a->weight.half, a->bias.data,
              a->bias.half, static_cast<Y *>(a->y.data), a->mean, a->inverse, a->rows,
              (int)a->width, (float)a->epsilon);
}

void ls__launch_norm(const norm_forward *a, cudaStream_t stream)
{
    by_type(a->x.half, [&](auto x) {
        by_type(a->y.half, [&](auto y) {
            with_pack(pack_of(a->width, a->x.data, a->y.data), [&](auto n) {
                if (a->centred)
                    launch_norm<true, decltype(n)::value, decltype(x), decltype(y)>(a, stream);
                else
                    launch_norm<false, decltype(n)::value, decltype(x), decltype(y)>(a, stream);
            });
        });
    });
}

/* --- the gradient of x --- */

template <bool CENTRED, int N, typename G, typename X, typename Y>
static __global__ void norm_grad(const G *g, const X *x, const void *weight, bool weight_half,
                                 const float *mean, const float *inverse, Y *dx, int64_t rows,
                                 int width)
{
    typedef row_of<LS_WARP> row;
    const int64_t r = row::index();
    const int first = row::lane() * N, step = LS_WARP * N;
    if (r >= rows) return;
    g += r * width;
    x += r * width;
    dx += r * width;
    const parameter w = { weight, weight_half };
    const float centre = CENTRED ? mean[r] : 0, scale = inverse[r];
    float gs[N], xs[N], sum = 0, along = 0; /* of u and of u h */
    for (int i = first; i < width; i += step) {
        load(gs, g + i);
        load(xs, x + i);
        for (int k = 0; k < N; k++) {
            float u = gs[k] * w.at(i + k);
            sum += u;
            along += u * ((xs[k] - centre) * scale);
        }
    }
    sum = CENTRED ? row::combine(sum, sum_of()) / (float)width : 0;
    along = row::combine(along, sum_of()) / (float)width;
    for (int i = first; i < width; i += step) {
        load(gs, g + i);
        load(xs, x + i);
        for (int k = 0; k < N; k++) {
            float h = (xs[k] - centre) * scale;
            gs[k] = scale * (gs[k] * w.at(i + k) - sum - h * along);
        }
        store(dx + i, gs);
    }
}

template <bool CENTRED, int N, typename G, typename X, typename Y>
static void launch_norm_grad(const norm_backward *a, cudaStream_t stream)
{
    LS_LAUNCH((norm_grad<CENTRED, N, G, X, Y>), blocks_for(a->rows, LS_WARPS), LS_BLOCK, 0, stream,
              static_cast<const G *>(a->g.data), static_cast<const X *>(a->x.data), a->weight.data,
              a->weight.half, a->mean, a->inverse, static_cast<Y *>(a->dx.data), a->rows,
              (int)a->width);
}

/* --- the gradients of weight and bias --- */

enum { COLUMNS = LS_WARP, STRIPES = LS_WARPS, PIECE = 256 /* rows */, PIECES = 256 };

/* Rows that a block adds up. */
static int64_t piece_of(int64_t rows)
{
    const int64_t piece = (rows + PIECES - 1) / PIECES, least = PIECE;
    return piece < least ? least : piece;
}

static int64_t pieces_of(int64_t rows)
{
    return (rows + piece_of(rows) - 1) / piece_of(rows);
}

int64_t ls__norm_partial_floats(int64_t rows, int64_t width)
{
    return 2 * pieces_of(rows) * width;
}

/* The sum of a column over the stripes of a block, in the threads of stripe 0. */
static __device__ inline float sum_stripes(float sum)
{
    __shared__ float sums[STRIPES][COLUMNS];
    const int column = (int)threadIdx.x % COLUMNS, stripe = (int)threadIdx.x / COLUMNS;
    sums[stripe][column] = sum;
    __syncthreads();
    sum = sums[0][column];
    for (int i = 1; i < STRIPES; i++) sum += sums[i][column];
    __syncthreads();
    return sum;
}

/* partial: (2,pieces,width), sums of g h and of g over a piece. */
template <bool CENTRED, typename G, typename X>
static __global__ void sum_pieces(const G *g, const X *x, const float *mean, const float *inverse,
                                  float *partial, int64_t rows, int width, int64_t piece)
{
    const int column = (int)(blockIdx.x * COLUMNS + threadIdx.x % COLUMNS);
    const int64_t begin = blockIdx.y * piece, end = begin + piece < rows ? begin + piece : rows;
    float along = 0, sum = 0;
    for (int64_t r = begin + threadIdx.x / COLUMNS; column < width && r < end; r += STRIPES) {
        float slope = to_float(g[r * width + column]);
        float centre = CENTRED ? mean[r] : 0;
        along += slope * ((to_float(x[r * width + column]) - centre) * inverse[r]);
        sum += slope;
    }
    along = sum_stripes(along);
    sum = sum_stripes(sum);
    if (column >= width || threadIdx.x >= COLUMNS) return;
    partial[(int64_t)blockIdx.y * width + column] = along;
    partial[(int64_t)(gridDim.y + blockIdx.y) * width + column] = sum;
}

/* blockIdx.y: 0 dweight, 1 dbias */
static __global__ void add_pieces(const float *partial, int pieces, int width, float *dweight,
                                  float *dbias)
{
    const int column = (int)(blockIdx.x * COLUMNS + threadIdx.x % COLUMNS);
    float *to = blockIdx.y == 0 ? dweight : dbias;
    partial += (int64_t)blockIdx.y * pieces * width;
    float sum = 0;
    for (int p = (int)threadIdx.x / COLUMNS; column < width && p < pieces; p += STRIPES)
        sum += partial[(int64_t)p * width + column];
    sum = sum_stripes(sum);
    if (to && column < width && threadIdx.x < COLUMNS) to[column] = sum;
}

template <bool CENTRED, typename G, typename X>
static void launch_columns(const norm_backward *a, cudaStream_t stream)
{
    const unsigned columns = blocks_for(a->width, COLUMNS), pieces = (unsigned)pieces_of(a->rows);
    if (!a->dweight && !a->dbias) return;
    LS_LAUNCH((sum_pieces<CENTRED, G, X>), dim3(columns, pieces), LS_BLOCK, 0, stream,
              static_cast<const G *>(a->g.data), static_cast<const X *>(a->x.data), a->mean,
              a->inverse, a->partial, a->rows, (int)a->width, piece_of(a->rows));
    LS_LAUNCH(add_pieces, dim3(columns, a->dbias ? 2 : 1), LS_BLOCK, 0, stream, a->partial,
              (int)pieces, (int)a->width, a->dweight, a->dbias);
}

/* Columns first: dx may lie where g or x lies. */
template <bool CENTRED, typename G, typename X>
static void launch_grads(const norm_backward *a, cudaStream_t stream)
{
    launch_columns<CENTRED, G, X>(a, stream);
    if (!a->dx.data) return;
    by_type(a->dx.half, [&](auto y) {
        with_pack(pack_of(a->width, a->g.data, a->x.data, a->dx.data), [&](auto n) {
            launch_norm_grad<CENTRED, decltype(n)::value, G, X, decltype(y)>(a, stream);
        });
    });
}

void ls__launch_norm_grad(const norm_backward *a, cudaStream_t stream)
{
    by_type(a->g.half, [&](auto g) {
        by_type(a->x.half, [&](auto x) {
            if (a->mean)
                launch_grads<true, decltype(g), decltype(x)>(a, stream);
            else
                launch_grads<false, decltype(g), decltype(x)>(a, stream);
        });
    });
}
