/* Matrix products by oneDNN's matmul primitive.
 *
 * It takes plain layouts as they are, packs what it must into the scratchpad, and reaches 170 to
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

ls_status ls__cpu_gemm_create(const gemm_shape *s, cpu_primitive *out)
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
