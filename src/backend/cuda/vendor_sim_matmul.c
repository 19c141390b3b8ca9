/* Products of matrices in the simulation: plain loops on the host, as work of the stream.
 *
 * A tile of 64 columns of the right factor is unpacked to f32 once, then rows of the left factor run
 * through it; each element of the product is one sum over k in order, so its bits depend on nothing
 * but its row and column. */
#include "backend/cuda/vendor_matmul.h"

#include <string.h>

enum { TILE = 64 };

typedef struct arguments {
    cuda_matmul product;
    const void *a, *b;
    const void *bias;
    void *c;
    float *tile; /* (k,TILE) and, behind it, a row (k) */
} arguments;

static float read_half(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint16_t round_half(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* To 10 bits behind the first one, as tensor cores read f32. */
static float round_tf32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7f800000) == 0x7f800000) return x;
    bits = (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float at(const cuda_matmul *p, const void *x, int64_t i)
{
    if (p->half) return read_half(((const uint16_t *)x)[i]);
    float value = ((const float *)x)[i];
    return p->tf32 ? round_tf32(value) : value;
}

/* tile (k,TILE) = columns [first, first + width) of b */
static void unpack_right(const arguments *args, int64_t first, int64_t width, float *tile)
{
    const cuda_matmul *p = &args->product;
    for (int64_t r = 0; r < p->k; r++)
        for (int64_t j = 0; j < TILE; j++) {
            int64_t i = p->b_transposed ? (first + j) * p->k + r : r * p->n + first + j;
            tile[r * TILE + j] = j < width ? at(p, args->b, i) : 0;
        }
}

static void unpack_left(const arguments *args, int64_t row, float *out)
{
    const cuda_matmul *p = &args->product;
    for (int64_t r = 0; r < p->k; r++)
        out[r] = at(p, args->a, p->a_transposed ? r * p->m + row : row * p->k + r);
}

/* Every number of the tile and of the row has been written by code that is checked: this here, most
 * of the time of a product, need not be. */
__attribute__((no_sanitize("address", "undefined"))) static void
multiply(const float *left, const float *tile, int64_t k, float *restrict sums)
{
    for (int j = 0; j < TILE; j++) sums[j] = 0;
    for (int64_t r = 0; r < k; r++)
        for (int j = 0; j < TILE; j++) sums[j] += left[r] * tile[r * TILE + j];
}

static float bias_at(const arguments *args, int64_t i)
{
    if (!args->bias) return 0;
    return args->product.half_out ? read_half(((const uint16_t *)args->bias)[i])
                                  : ((const float *)args->bias)[i];
}

static void store(const arguments *args, int64_t row, int64_t first, int64_t width,
                  const float *sums)
{
    const cuda_matmul *p = &args->product;
    for (int64_t j = 0; j < width; j++) {
        int64_t i = row * p->n + first + j;
        float value = sums[j] + bias_at(args, first + j);
        if (p->half_out)
            ((uint16_t *)args->c)[i] = round_half(value);
        else
            ((float *)args->c)[i] = value;
    }
}

static void run(const void *bytes)
{
    const arguments *args = bytes;
    const cuda_matmul *p = &args->product;
    float *tile = args->tile, *left = tile + p->k * TILE, sums[TILE];
    for (int64_t first = 0; first < p->n; first += TILE) {
        int64_t width = p->n - first < TILE ? p->n - first : TILE;
        unpack_right(args, first, width, tile);
        for (int64_t row = 0; row < p->m; row++) {
            unpack_left(args, row, left);
            multiply(left, tile, p->k, sums);
            store(args, row, first, width, sums);
        }
    }
}

size_t ls__vendor_matmul_workspace(const cuda_matmul *product)
{
    return (size_t)product->k * (TILE + 1) * sizeof(float);
}

ls_status ls__vendor_matmul(cudaStream_t stream, const cuda_matmul *product, const void *a,
                            const void *b, const void *bias, void *c, void *workspace)
{
    arguments args = { *product, a, b, bias, c, workspace };
    /* Its failure is found by the caller, as that of a launch. */
    (void)ls__sim_work(stream, "matmul", run, &args, sizeof args);
    return LS_OK;
}
