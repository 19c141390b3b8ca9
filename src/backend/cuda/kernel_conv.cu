/* Convolution and its gradients without a library: each is one product of matrices, out (M,N) =
 * left (M,K) right (K,N), whose right factor is looked up in images instead of being stored.
 *
 *     pass       M  K                  N                  left    right
 *     forward    O  channel, u, v      sample, row, col   weight  x, 0 outside
 *     grad_x     C  filter, u, v       sample, h, w       weight  g, 0 where no window reaches
 *     grad_w     O  sample, row, col   channel, u, v      g       x, 0 outside
 *
 * Blocks compute 64 x 64 tiles, sixteen terms of K at a time from shared memory, a thread 4 x 4 of
 * them. The order of every sum is fixed by the shapes; where few tiles have many terms (grad_w), K
 * is cut into parts that are added in order afterwards. For machines without cuDNN, and for the
 * simulation; kernels of 1 and 3 have code of their own, since divisions by them are cheap. */
#include "backend/cuda/kernel_general.h"
#include "backend/cuda/kernel_image.h"
#include "backend/cuda/kernel_storage.h"

namespace
{

enum { THREADS = 256, TILE = 64, DEPTH = 16, EACH = 4, LANES = TILE / EACH, PADDED = TILE + 4 };
enum { LEAST_TERMS = 1024, ENOUGH_BLOCKS = 512 };

struct shape {
    int channels, height, width, filters, rows, columns, kernel, stride, padding;
    int m, n, k;
    int part; /* terms of K that a block adds up */
};

template <int KERNEL> __device__ inline int side(const shape &s)
{
    return KERNEL ? KERNEL : s.kernel;
}

/* An index of K or N, taken apart: a plane (sample, channel or filter) and a place in it. */
struct place {
    int plane, row, column;
};

__device__ inline place place_of(int i, int rows, int columns)
{
    int line = i / columns, plane = line / rows;
    return { plane, line - plane * rows, i - line * columns };
}

/* --- what the three passes multiply --- */

/* x under weight (u,v) of the window at (row,column). */
__device__ inline float under(const shape &s, const float *x, int sample, int channel, place window,
                              int u, int v)
{
    int h = window.row * s.stride + u - s.padding, w = window.column * s.stride + v - s.padding;
    if (h < 0 || h >= s.height || w < 0 || w >= s.width) return 0;
    return x[(((int64_t)sample * s.channels + channel) * s.height + h) * s.width + w];
}

template <int KERNEL> struct forward {
    enum { BY_TERMS = 0 }; /* neighbours in memory are neighbours in N */
    static __device__ place term(const shape &s, int k)
    {
        return place_of(k, side<KERNEL>(s), side<KERNEL>(s));
    }
    static __device__ place result(const shape &s, int n)
    {
        return place_of(n, s.rows, s.columns);
    }
    static __device__ float left(const shape &s, const float *weight, int m, int k)
    {
        return weight[(int64_t)m * s.k + k];
    }
    static __device__ float right(const shape &s, const float *x, place t, place r)
    {
        return under(s, x, r.plane, t.plane, r, t.row, t.column);
    }
    static __device__ int64_t at(const shape &s, int m, int n)
    {
        int image = s.rows * s.columns, sample = n / image;
        return ((int64_t)sample * s.filters + m) * image + (n - sample * image);
    }
};

template <int KERNEL> struct grad_x {
    enum { BY_TERMS = 0 };
    static __device__ place term(const shape &s, int k)
    {
        return place_of(k, side<KERNEL>(s), side<KERNEL>(s));
    }
    static __device__ place result(const shape &s, int n)
    {
        return place_of(n, s.height, s.width);
    }
    static __device__ float left(const shape &s, const float *weight, int m, int k)
    {
        int window = side<KERNEL>(s) * side<KERNEL>(s), filter = k / window;
        return weight[((int64_t)filter * s.channels + m) * window + (k - filter * window)];
    }
    static __device__ float right(const shape &s, const float *g, place t, place r)
    {
        int i = r.row + s.padding - t.row, j = r.column + s.padding - t.column;
        int row = i / s.stride, column = j / s.stride;
        if (i < 0 || j < 0 || row * s.stride != i || column * s.stride != j) return 0;
        if (row >= s.rows || column >= s.columns) return 0;
        return g[(((int64_t)r.plane * s.filters + t.plane) * s.rows + row) * s.columns + column];
    }
    static __device__ int64_t at(const shape &s, int m, int n)
    {
        int image = s.height * s.width, sample = n / image;
        return ((int64_t)sample * s.channels + m) * image + (n - sample * image);
    }
};

template <int KERNEL> struct grad_w {
    enum { BY_TERMS = 1 };
    static __device__ place term(const shape &s, int k)
    {
        return place_of(k, s.rows, s.columns);
    }
    static __device__ place result(const shape &s, int n)
    {
        return place_of(n, side<KERNEL>(s), side<KERNEL>(s));
    }
    static __device__ float left(const shape &s, const float *g, int m, int k)
    {
        int image = s.rows * s.columns, sample = k / image;
        return g[((int64_t)sample * s.filters + m) * image + (k - sample * image)];
    }
    static __device__ float right(const shape &s, const float *x, place t, place r)
    {
        return under(s, x, t.plane, r.plane, t, r.row, r.column);
    }
    static __device__ int64_t at(const shape &s, int m, int n)
    {
        return (int64_t)m * s.n + n;
    }
};

/* --- the product --- */

template <typename Pass>
__device__ inline void load_left(const shape &s, const float *a, int m0, int k0, int end,
                                 float tile[DEPTH][PADDED])
{
    int t = (int)threadIdx.x, k = t % DEPTH;
    for (int m = t / DEPTH; m < TILE; m += THREADS / DEPTH)
        tile[k][m] = m0 + m < s.m && k0 + k < end ? Pass::left(s, a, m0 + m, k0 + k) : 0;
}

/* Neighbouring threads read neighbours in memory; what stays the same for a thread is taken apart
 * once: its results before the loop, here given, or its term in each round. */
template <typename Pass>
__device__ inline void load_right(const shape &s, const float *b, const place *results, int n0,
                                  int k0, int end, float tile[DEPTH][PADDED])
{
    int t = (int)threadIdx.x;
    if (Pass::BY_TERMS) {
        int k = t % DEPTH;
        place term = Pass::term(s, k0 + k);
        for (int i = 0; i < EACH; i++) {
            int n = t / DEPTH + i * (THREADS / DEPTH);
            bool inside = n0 + n < s.n && k0 + k < end;
            tile[k][n] = inside ? Pass::right(s, b, term, results[i]) : 0;
        }
        return;
    }
    int n = t % TILE;
    for (int k = t / TILE; k < DEPTH; k += THREADS / TILE) {
        bool inside = n0 + n < s.n && k0 + k < end;
        tile[k][n] = inside ? Pass::right(s, b, Pass::term(s, k0 + k), results[0]) : 0;
    }
}

__device__ inline void multiply(const float left[DEPTH][PADDED], const float right[DEPTH][PADDED],
                                float sums[EACH][EACH])
{
    int m = (int)threadIdx.x / LANES * EACH, n = (int)threadIdx.x % LANES * EACH;
    for (int k = 0; k < DEPTH; k++) {
        storage::four<float> u = *(const storage::four<float> *)&left[k][m];
        storage::four<float> v = *(const storage::four<float> *)&right[k][n];
        for (int i = 0; i < EACH; i++)
            for (int j = 0; j < EACH; j++) sums[i][j] += u.at[i] * v.at[j];
    }
}

/* out: (parts, as the pass stores its result) */
template <typename Pass>
__global__ void __launch_bounds__(THREADS)
    product(shape s, const float *__restrict__ a, const float *__restrict__ b,
            const float *__restrict__ bias, float *__restrict__ out)
{
    alignas(16) __shared__ float left[DEPTH][PADDED];
    alignas(16) __shared__ float right[DEPTH][PADDED];
    int t = (int)threadIdx.x, n0 = (int)blockIdx.x * TILE, m0 = (int)blockIdx.y * TILE;
    int begin = (int)blockIdx.z * s.part, end = s.k - begin < s.part ? s.k : begin + s.part;
    float sums[EACH][EACH] = {};
    place results[EACH] = {};
    if (Pass::BY_TERMS)
        for (int i = 0; i < EACH; i++)
            results[i] = Pass::result(s, n0 + t / DEPTH + i * (THREADS / DEPTH));
    else
        results[0] = Pass::result(s, n0 + t % TILE);
    for (int k0 = begin; k0 < end; k0 += DEPTH) {
        load_left<Pass>(s, a, m0, k0, end, left);
        load_right<Pass>(s, b, results, n0, k0, end, right);
        __syncthreads();
        multiply(left, right, sums);
        __syncthreads();
    }
    out += (int64_t)blockIdx.z * s.m * s.n;
    for (int i = 0; i < EACH; i++) {
        for (int j = 0; j < EACH; j++) {
            int m = m0 + t / LANES * EACH + i, n = n0 + t % LANES * EACH + j;
            if (m < s.m && n < s.n) out[Pass::at(s, m, n)] = sums[i][j] + (bias ? bias[m] : 0);
        }
    }
}

/* --- on the host --- */

shape shape_of(cuda_conv_pass pass, const cuda_conv *c)
{
    shape s {};
    s.channels = (int)c->channels;
    s.height = (int)c->height;
    s.width = (int)c->width;
    s.filters = (int)c->filters;
    s.rows = (int)c->rows;
    s.columns = (int)c->columns;
    s.kernel = (int)c->kernel;
    s.stride = (int)c->stride;
    s.padding = (int)c->padding;
    int window = s.kernel * s.kernel, results = (int)(c->batch * c->rows * c->columns);
    s.m = pass == CUDA_CONV_GRAD_X ? s.channels : s.filters;
    s.n = pass == CUDA_CONV_FORWARD  ? results
          : pass == CUDA_CONV_GRAD_X ? (int)(c->batch * c->height * c->width)
                                     : s.channels * window;
    s.k = pass == CUDA_CONV_FORWARD  ? s.channels * window
          : pass == CUDA_CONV_GRAD_X ? s.filters * window
                                     : results;
    s.part = s.k;
    return s;
}

int64_t tiles_of(int n)
{
    return (n + TILE - 1) / TILE;
}

/* Into how many parts K is cut; sets part. */
int64_t cut(shape *s)
{
    int64_t most = (s->k + LEAST_TERMS - 1) / LEAST_TERMS;
    int64_t wanted = (ENOUGH_BLOCKS - 1) / (tiles_of(s->m) * tiles_of(s->n)) + 1;
    int64_t parts = wanted < most ? wanted : most;
    s->part = (int)((s->k + parts - 1) / parts);
    return (s->k + s->part - 1) / s->part;
}

template <template <int> class Pass>
void launch_product(cudaStream_t stream, const shape &s, int64_t parts, const float *a,
                    const float *b, const float *bias, float *out)
{
    dim3 grid((unsigned)tiles_of(s.n), (unsigned)tiles_of(s.m), (unsigned)parts);
    if (s.kernel == 1)
        LS_LAUNCH((product<Pass<1>>), grid, THREADS, 0, stream, s, a, b, bias, out);
    else if (s.kernel == 3)
        LS_LAUNCH((product<Pass<3>>), grid, THREADS, 0, stream, s, a, b, bias, out);
    else
        LS_LAUNCH((product<Pass<0>>), grid, THREADS, 0, stream, s, a, b, bias, out);
}

/* The parts' sums, (parts, count), in order. */
void add_parts(cudaStream_t stream, int64_t parts, int64_t count, const float *from, float *to)
{
    cuda_reduction r {};
    r.kept.rank = r.reduced.rank = 1;
    r.kept.count = r.kept.size[0] = r.reduced.stride[0][0] = count;
    r.kept.stride[0][0] = 1;
    r.reduced.count = r.reduced.size[0] = r.chunk = parts;
    r.chunks = 1;
    r.divisor = 1;
    ls__cuda_launch_reduction(stream, &r, from, to, false, nullptr);
}

} // namespace

extern "C" size_t ls__cuda_conv_workspace(cuda_conv_pass pass, const cuda_conv *c)
{
    if (pass != CUDA_CONV_GRAD_W) return 0;
    shape s = shape_of(pass, c);
    int64_t parts = cut(&s);
    return parts == 1 ? 0 : (size_t)(parts * s.m * s.n) * sizeof(float);
}

extern "C" void ls__cuda_launch_conv(cudaStream_t stream, cuda_conv_pass pass, const cuda_conv *c,
                                     const float *a, const float *b, const float *bias, float *out,
                                     float *workspace)
{
    shape s = shape_of(pass, c);
    if (pass == CUDA_CONV_FORWARD) {
        launch_product<forward>(stream, s, 1, a, b, bias, out);
    } else if (pass == CUDA_CONV_GRAD_X) {
        launch_product<grad_x>(stream, s, 1, a, b, nullptr, out);
    } else {
        int64_t parts = cut(&s), count = (int64_t)s.m * s.n;
        launch_product<grad_w>(stream, s, parts, a, b, nullptr, parts > 1 ? workspace : out);
        if (parts > 1) add_parts(stream, parts, count, workspace, out);
    }
}
