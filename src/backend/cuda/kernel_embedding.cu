/* Embeddings of tokens and positions: rows copied in the forward pass, added up in the backward
 * pass.
 *
 * The gradient of a table of V rows from N tokens is a sum of which neither the number of terms nor
 * their places are known. Atomics would add in another order every run; sorting the tokens takes
 * several launches and memory. Instead a block owns VOCABULARY rows of the table and looks through
 * all tokens for them, a window at a time: each warp lists the matches of its part of the window in
 * order, then every thread adds one column's. All that looking is V N / VOCABULARY reads of tokens
 * out of the second-level cache, some ten thousandth of the work of the linear layer that belongs
 * to a vocabulary. Rows are added in the order of the tokens, with no limit on how often one
 * occurs. */
#include "backend/cuda/kernel_device.h"
#include "backend/cuda/kernel_integers.h"
#include "backend/cuda/kernel_rows.h"

/* --- tokens, forward --- */

/* A warp per token. */
template <int N, typename Y>
static __global__ void embedding(const void *tokens, device_integer type, int64_t per_sample,
                                 int64_t ntokens, const float *table, int64_t rows, int width, Y *y,
                                 cuda_values *values)
{
    typedef row_of<LS_WARP> row;
    const int64_t i = row::index();
    if (i >= ntokens) return;
    const int64_t token = integer_at(tokens, type, i);
    const bool known = token >= 0 && token < rows;
    if (!known && row::lane() == 0) note_failure(values, i / per_sample, true);
    for (int k = row::lane() * N; k < width; k += LS_WARP * N) {
        float v[N] = { 0 };
        if (known) load(v, table + token * width + k);
        store(y + i * width + k, v);
    }
}

void ls__launch_embedding(device_integers tokens, int64_t ntokens, const float *table, int64_t rows,
                          int64_t width, device_out y, cuda_values *values, cudaStream_t stream)
{
    by_type(y.half, [&](auto type) {
        with_pack(pack_of(width, table, y.data), [&](auto n) {
            typedef decltype(type) Y;
            LS_LAUNCH((embedding<decltype(n)::value, Y>), blocks_for(ntokens, LS_WARPS), LS_BLOCK,
                      0, stream, tokens.data, tokens.type, tokens.per_sample, ntokens, table, rows,
                      (int)width, static_cast<Y *>(y.data), values);
        });
    });
}

/* --- tokens, backward --- */

enum {
    VOCABULARY = 32,              /* rows of the table that a block owns */
    SEARCHED = 256,               /* tokens of a window that a warp looks at */
    WINDOW = LS_WARPS * SEARCHED, /* tokens between two barriers */
    AHEAD = 8                     /* rows of g on their way */
};

/* What a warp found, in order: place in the window * VOCABULARY + row of the block. */
struct matches {
    uint16_t at[SEARCHED];
    int count;
};

static __device__ inline void search(const void *tokens, device_integer type, int64_t begin,
                                     int64_t ntokens, int64_t first_row, int owned, matches *found)
{
    const int lane = (int)threadIdx.x % LS_WARP, warp = (int)threadIdx.x / LS_WARP;
    int count = 0;
    for (int k = 0; k < SEARCHED; k += LS_WARP) {
        const int place = warp * SEARCHED + k + lane;
        const int64_t i = begin + place;
        int64_t row = i < ntokens ? integer_at(tokens, type, i) - first_row : -1;
        const bool match = row >= 0 && row < owned; /* else noted in the forward pass */
        const unsigned all = __ballot_sync(0xffffffffu, match);
        const unsigned before = all & ((1u << lane) - 1);
        if (match) found->at[count + __popc(before)] = (uint16_t)(place * VOCABULARY + (int)row);
        count += __popc(all);
    }
    if (lane == 0) found->count = count;
}

/* A column of the table in the hands of its thread: the sum of the row at hand. */
struct column_sum {
    float *table; /* the block's rows, at the column */
    int64_t width;
    int row; /* -1 = none */
    float sum;

    __device__ void add(int to, float x)
    {
        if (to != row) {
            put();
            row = to;
            sum = table[row * width];
        }
        sum += x;
    }
    __device__ void put() const
    {
        if (row >= 0) table[row * width] = sum;
    }
};

/* g: the window's rows, at the column */
static __device__ inline void add_matches(const matches *found, const float *g, column_sum *to)
{
    for (int k = 0; k < found->count; k += AHEAD) {
        float x[AHEAD];
        for (int j = 0; j < AHEAD; j++)
            x[j] = k + j < found->count ? g[(found->at[k + j] / VOCABULARY) * to->width] : 0;
        for (int j = 0; j < AHEAD && k + j < found->count; j++)
            to->add(found->at[k + j] % VOCABULARY, x[j]);
    }
}

static __global__ void embedding_grad(const float *g, const void *tokens, device_integer type,
                                      int64_t ntokens, float *table, int64_t rows, int width,
                                      bool adds)
{
    __shared__ matches found[LS_WARPS];
    const int64_t first_row = (int64_t)blockIdx.x * VOCABULARY;
    const int column = (int)(blockIdx.y * LS_BLOCK + threadIdx.x);
    const bool owner = column < width;
    const int owned = rows - first_row < VOCABULARY ? (int)(rows - first_row) : (int)VOCABULARY;
    table += first_row * width + column;
    for (int r = 0; owner && !adds && r < owned; r++) table[(int64_t)r * width] = 0;
    column_sum sum = { table, width, -1, 0 };
    for (int64_t begin = 0; begin < ntokens; begin += WINDOW) {
        search(tokens, type, begin, ntokens, first_row, owned, &found[threadIdx.x / LS_WARP]);
        __syncthreads();
        for (int w = 0; owner && w < LS_WARPS; w++)
            add_matches(&found[w], g + begin * width + column, &sum);
        __syncthreads();
    }
    sum.put();
}

void ls__launch_embedding_grad(const float *g, device_integers tokens, int64_t ntokens,
                               float *table, int64_t rows, int64_t width, bool adds,
                               cudaStream_t stream)
{
    LS_LAUNCH(embedding_grad, dim3(blocks_for(rows, VOCABULARY), blocks_for(width, LS_BLOCK)),
              LS_BLOCK, 0, stream, g, tokens.data, tokens.type, ntokens, table, rows, (int)width,
              adds);
}

/* --- positions --- */

/* A warp per token. */
template <int N, typename Y>
static __global__ void position_embedding(const float *x, const float *table,
                                          const int32_t *position, Y *y, int64_t ntokens,
                                          int length, int width, int64_t rows, cuda_values *values)
{
    typedef row_of<LS_WARP> row;
    const int64_t i = row::index();
    if (i >= ntokens) return;
    const int64_t sample = i / length;
    int64_t at = (position ? position[sample] : 0) + i % length;
    if (at < 0 || at >= rows) { /* tokens beyond the context */
        if (row::lane() == 0) note_failure(values, sample, true);
        at = 0;
    }
    float v[N], add[N];
    for (int k = row::lane() * N; k < width; k += LS_WARP * N) {
        load(v, x + i * width + k);
        load(add, table + at * width + k);
        for (int j = 0; j < N; j++) v[j] += add[j];
        store(y + i * width + k, v);
    }
}

void ls__launch_position_embedding(const position_forward *a, cudaStream_t stream)
{
    by_type(a->y.half, [&](auto type) {
        with_pack(pack_of(a->width, a->x, a->table, a->y.data), [&](auto n) {
            typedef decltype(type) Y;
            const int64_t ntokens = a->batch * a->length;
            LS_LAUNCH((position_embedding<decltype(n)::value, Y>), blocks_for(ntokens, LS_WARPS),
                      LS_BLOCK, 0, stream, a->x, a->table, a->position, static_cast<Y *>(a->y.data),
                      ntokens, (int)a->length, (int)a->width, a->rows, a->values);
        });
    });
}

/* A thread per element of the table, sample after sample. */
static __global__ void position_embedding_grad(const float *g, float *table, int64_t batch,
                                               int64_t used, int64_t count)
{
    const int64_t i = (int64_t)blockIdx.x * LS_BLOCK + threadIdx.x;
    float sum = 0;
    if (i >= count) return;
    for (int64_t b = 0; i < used && b < batch; b++) sum += g[b * used + i];
    table[i] = sum;
}

void ls__launch_position_embedding_grad(const float *g, float *table, int64_t batch, int64_t length,
                                        int64_t width, int64_t rows, cudaStream_t stream)
{
    LS_LAUNCH(position_embedding_grad, blocks_for(rows * width, LS_BLOCK), LS_BLOCK, 0, stream, g,
              table, batch, length * width, rows * width);
}
