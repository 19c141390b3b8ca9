/* Matrix products by oneDNN's matmul primitive, and by our own where that is faster.
 *
 * oneDNN takes plain layouts as they are, packs what it must into the scratchpad, and reaches 170 to
 * 230 GFLOP/s of a core at a tile's 32 to 64 rows (dnnl_sgemm: 110 to 220, and it allocates). */
#include "backend/cpu/gemm.h"

#include <string.h>

/* (rows, columns), lying transposed or not. */
static ls_status describe(int64_t rows, int64_t columns, bool transposed, int64_t stride, bool half,
                          dnnl_memory_desc_t *out)
{
    dnnl_dims_t dims = { rows, columns }, strides;
    int64_t dense = transposed ? rows : columns;
    strides[transposed] = stride ? stride : dense;
    strides[!transposed] = 1;
    LS_DNNL_TRY(
        dnnl_memory_desc_init_by_strides(out, 2, dims, half ? dnnl_bf16 : dnnl_f32, strides));
    return LS_OK;
}

/* A product that is added to what is there (a gradient): the first implementation made of oneDNN's
 * gemm. Measured at 384 to 1536 rows and columns, 256 summed: 210 GFLOP/s of a core instead of 175,
 * since the one named first waits for what it adds to. It is some 4 % faster for other gradients of
 * weights too, but takes memory that no plan knows of. */
static ls_status describe_product(const dnnl_matmul_desc_t *desc, dnnl_primitive_attr_t attr,
                                  bool gemm, dnnl_primitive_desc_t *out)
{
    return gemm ? ls__cpu_describe_named(desc, attr, "gemm:", out)
                : ls__cpu_describe_any(desc, attr, NULL, out);
}

static ls_status create_primitive(const gemm_shape *s, cpu_primitive *out)
{
    dnnl_memory_desc_t a, b, c, bias;
    dnnl_matmul_desc_t desc;
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t pd = NULL;
    LS_TRY(describe(s->m, s->k, s->transpose_a, s->a_stride, s->half, &a));
    LS_TRY(describe(s->k, s->n, s->transpose_b, s->b_stride, s->half, &b));
    LS_TRY(describe(s->m, s->n, false, s->c_stride, s->half_c, &c));
    LS_TRY(describe(1, s->n, false, 0, false, &bias));
    LS_DNNL_TRY(dnnl_matmul_desc_init(&desc, &a, &b, s->bias ? &bias : NULL, &c));
    LS_TRY(ls__cpu_attributes(s->sum, s->relu, &attr));
    const int ids[] = { DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS };
    const dnnl_memory_desc_t *mds[] = { &a, &b, &c, &bias };
    ls_status status = describe_product(&desc, attr, s->sum, &pd);
    if (status == LS_OK) status = ls__cpu_primitive_create(pd, ids, mds, s->bias ? 4 : 3, out);
    if (pd) dnnl_primitive_desc_destroy(pd);
    dnnl_primitive_attr_destroy(attr);
    return status;
}

/* Where our own product is faster, measured with operands that are in no second-level cache, as they
 * are between steps: sums that are one pass (oneDNN at 180 to 210 GFLOP/s of a core, ours at 200 to
 * 225); columns of a larger matrix as the output of x w^T, for which oneDNN has its older product
 * only (170 to 195, ours 200 to 208); gradients of weights, whose first factor it packs (145 to 225
 * of 250, ours 195 to 235). Elsewhere oneDNN is as fast, or up to 5 % faster. */
static bool own_is_faster(const gemm_shape *s)
{
    enum { ONE_PASS = 128 };
    if (s->half || s->half_c || ls__cpu_pool()->block != 16) return false;
    return s->transpose_a || s->k <= ONE_PASS || (s->transpose_b && s->c_stride);
}

static int64_t row_of(int64_t stride, bool transposed, int64_t rows, int64_t columns)
{
    int64_t dense = transposed ? rows : columns;
    return stride ? stride : dense;
}

ls_status ls__cpu_gemm_create(const gemm_shape *s, cpu_gemm *out)
{
    out->product = (sgemm) { .m = s->m,
                             .n = s->n,
                             .k = s->k,
                             .transpose_a = s->transpose_a,
                             .transpose_b = s->transpose_b,
                             .a_stride = row_of(s->a_stride, s->transpose_a, s->m, s->k),
                             .b_stride = row_of(s->b_stride, s->transpose_b, s->k, s->n),
                             .c_stride = row_of(s->c_stride, false, s->m, s->n),
                             .bias = s->bias,
                             .relu = s->relu,
                             .sum = s->sum };
    out->own = own_is_faster(s) && ls__sgemm_plan(&out->product);
    if (out->own) {
        out->scratchpad = ls__sgemm_scratch(&out->product);
        return LS_OK;
    }
    LS_TRY(create_primitive(s, &out->primitive));
    out->scratchpad = out->primitive.scratchpad;
    return LS_OK;
}

void ls__cpu_gemm_free(cpu_gemm *g)
{
    ls__cpu_primitive_free(&g->primitive);
}

void ls__cpu_gemm_run(const cpu_gemm *g, const cpu_call *call, void *const *pointers)
{
    if (!g->own) {
        ls__cpu_primitive_run(&g->primitive, call, pointers);
        return;
    }
    bool biased = g->product.bias;
    ls__sgemm_run(&g->product, pointers[0], pointers[1], biased ? pointers[3] : NULL, pointers[2],
                  pointers[3 + biased]);
}

LS__CPU_CLONES void ls__cpu_add_columns(const float *g, float *sums, int64_t rows, int64_t features,
                                        int64_t stride)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < features; i++) sums[i] += g[r * stride + i];
}

LS__CPU_CLONES void ls__cpu_add_half_columns(const uint16_t *g, float *sums, int64_t rows,
                                             int64_t features, int64_t stride)
{
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < features; i++) {
            uint32_t bits = (uint32_t)g[r * stride + i] << 16;
            float x;
            memcpy(&x, &bits, sizeof x);
            sums[i] += x;
        }
    }
}
