/* Products of matrices by cuBLASLt.
 *
 * cuBLASLt counts column by column, so a product that lies row by row is asked for transposed:
 * c^T (n,m) = b^T a^T, where every matrix is taken as it lies. Its heuristic picks the algorithm; it
 * is asked once per shape and its answer kept, since the question costs more than a small product.
 * No algorithm that adds up in memory by several blocks at once is allowed: the same bits in every
 * run. */
#include <cublasLt.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/cuda_device.h"
#include "backend/cuda/vendor_matmul.h"

enum { MOST_PARTS = 8, MOST_BYTES = 32 << 20 };

/* Where the matrices lie: multiples of so many bytes, at most 256. Parameters and gradients lie where
 * the flat space puts them, and an algorithm that reads more at a time than they allow fails. */
typedef struct alignment {
    uint32_t a, b, c, bias;
} alignment;

typedef struct known {
    cuda_matmul product;
    alignment at;
    cublasLtMatmulAlgo_t algorithm;
    struct known *next;
} known;

static cublasLtHandle_t handle; /* the process's, as its device; under the device's lock */
static known *all;

static ls_status fail(cublasStatus_t error, const char *call)
{
    char text[256];
    snprintf(text, sizeof text, "%s (%.160s)", cublasLtGetStatusString(error), call);
    return ls__cuda_fail_library("cuBLASLt", error == CUBLAS_STATUS_ALLOC_FAILED, text);
}

#define LS_LT_TRY_GOTO(call, status, label)                                                        \
    do {                                                                                           \
        cublasStatus_t ls__error = (call);                                                         \
        if (ls__error != CUBLAS_STATUS_SUCCESS) {                                                  \
            (status) = fail(ls__error, #call);                                                     \
            goto label;                                                                            \
        }                                                                                          \
    } while (0)

/* For partial sums of k, which only small results need, up to what NVIDIA advises. */
size_t ls__vendor_matmul_workspace(const cuda_matmul *product)
{
    int64_t nbytes = product->m * product->n * (int64_t)sizeof(float) * MOST_PARTS;
    return nbytes < MOST_BYTES ? (size_t)nbytes : (size_t)MOST_BYTES;
}

typedef struct description {
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t left, right, out; /* as cuBLASLt sees them: b, a, c */
    cublasLtMatmulPreference_t preference;
} description;

static void free_description(description *d)
{
    if (d->operation) cublasLtMatmulDescDestroy(d->operation);
    if (d->left) cublasLtMatrixLayoutDestroy(d->left);
    if (d->right) cublasLtMatrixLayoutDestroy(d->right);
    if (d->out) cublasLtMatrixLayoutDestroy(d->out);
    if (d->preference) cublasLtMatmulPreferenceDestroy(d->preference);
}

/* A matrix that lies as (rows,columns), row by row. */
static cublasStatus_t make_layout(cublasLtMatrixLayout_t *out, bool half, int64_t rows,
                                  int64_t columns)
{
    return cublasLtMatrixLayoutCreate(out, half ? CUDA_R_16BF : CUDA_R_32F, (uint64_t)columns,
                                      (uint64_t)rows, columns);
}

static ls_status describe_operation(description *d, const cuda_matmul *p, const void *bias)
{
    ls_status status = LS_OK;
    cublasOperation_t left = p->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t right = p->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasComputeType_t type_of_sums = p->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    LS_LT_TRY_GOTO(cublasLtMatmulDescCreate(&d->operation, type_of_sums, CUDA_R_32F), status, done);
    LS_LT_TRY_GOTO(cublasLtMatmulDescSetAttribute(d->operation, CUBLASLT_MATMUL_DESC_TRANSA, &left,
                                                  sizeof left),
                   status, done);
    LS_LT_TRY_GOTO(cublasLtMatmulDescSetAttribute(d->operation, CUBLASLT_MATMUL_DESC_TRANSB, &right,
                                                  sizeof right),
                   status, done);
    if (!p->has_bias) goto done;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    int32_t type = p->half_out ? CUDA_R_16BF : CUDA_R_32F; /* the only ones that it takes */
    LS_LT_TRY_GOTO(cublasLtMatmulDescSetAttribute(d->operation, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                  &epilogue, sizeof epilogue),
                   status, done);
    LS_LT_TRY_GOTO(cublasLtMatmulDescSetAttribute(d->operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
                                                  &type, sizeof type),
                   status, done);
    LS_LT_TRY_GOTO(cublasLtMatmulDescSetAttribute(d->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                  &bias, sizeof bias),
                   status, done);
done:
    return status;
}

static ls_status describe_matrices(description *d, const cuda_matmul *p)
{
    ls_status status = LS_OK;
    LS_LT_TRY_GOTO(make_layout(&d->left, p->half, p->b_transposed ? p->n : p->k,
                               p->b_transposed ? p->k : p->n),
                   status, done);
    LS_LT_TRY_GOTO(make_layout(&d->right, p->half, p->a_transposed ? p->k : p->m,
                               p->a_transposed ? p->m : p->k),
                   status, done);
    LS_LT_TRY_GOTO(make_layout(&d->out, p->half_out, p->m, p->n), status, done);
done:
    return status;
}

static uint32_t aligned_to(const void *p)
{
    uintptr_t lowest = (uintptr_t)p & (0 - (uintptr_t)p);
    return lowest == 0 || lowest > 256 ? 256 : (uint32_t)lowest;
}

/* Partial sums in the workspace are added in order; those that meet in the output are not. */
static ls_status prefer(description *d, const cuda_matmul *p, const alignment *at)
{
    const struct {
        cublasLtMatmulPreferenceAttributes_t attribute;
        uint32_t nbytes;
    } matrices[] = { { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, at->b }, /* as it sees them */
                     { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, at->a },
                     { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, at->c },
                     { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, at->c } };
    ls_status status = LS_OK;
    uint64_t nbytes = ls__vendor_matmul_workspace(p);
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    LS_LT_TRY_GOTO(cublasLtMatmulPreferenceCreate(&d->preference), status, done);
    LS_LT_TRY_GOTO(cublasLtMatmulPreferenceSetAttribute(d->preference,
                                                        CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                        &nbytes, sizeof nbytes),
                   status, done);
    LS_LT_TRY_GOTO(cublasLtMatmulPreferenceSetAttribute(d->preference,
                                                        CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                        &reductions, sizeof reductions),
                   status, done);
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++)
        LS_LT_TRY_GOTO(cublasLtMatmulPreferenceSetAttribute(d->preference, matrices[i].attribute,
                                                            &matrices[i].nbytes,
                                                            sizeof matrices[i].nbytes),
                       status, done);
done:
    return status;
}

static bool same(const cuda_matmul *a, const cuda_matmul *b)
{
    return a->m == b->m && a->n == b->n && a->k == b->k && a->a_transposed == b->a_transposed &&
           a->b_transposed == b->b_transposed && a->half == b->half && a->half_out == b->half_out &&
           a->has_bias == b->has_bias && a->tf32 == b->tf32;
}

static bool same_places(const alignment *a, const alignment *b)
{
    return a->a == b->a && a->b == b->b && a->c == b->c && a->bias == b->bias;
}

static ls_status find_algorithm(description *d, const cuda_matmul *p, const alignment *at,
                                const known **out)
{
    ls_status status;
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    for (known *k = all; k; k = k->next) {
        *out = k;
        if (same(&k->product, p) && same_places(&k->at, at)) return LS_OK;
    }
    LS_TRY(prefer(d, p, at));
    LS_LT_TRY_GOTO(cublasLtMatmulAlgoGetHeuristic(handle, d->operation, d->left, d->right, d->out,
                                                  d->out, d->preference, 1, &result, &found),
                   status, failed);
    known *k = found ? ls__alloc(1, sizeof *k) : NULL;
    if (!found)
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "cuBLASLt has no algorithm for a product of (%lld,%lld) and (%lld,%lld)",
                       (long long)p->m, (long long)p->k, (long long)p->k, (long long)p->n);
    if (!k) return LS_ERR_MEMORY;
    *k = (known) { *p, *at, result.algo, all };
    *out = all = k;
    return LS_OK;
failed:
    return status;
}

ls_status ls__vendor_matmul(cudaStream_t stream, const cuda_matmul *product, const void *a,
                            const void *b, const void *bias, void *c, void *workspace)
{
    const float one = 1, zero = 0;
    ls_status status = LS_OK;
    description d = { 0 };
    const alignment at = { aligned_to(a), aligned_to(b), aligned_to(c), aligned_to(bias) };
    const known *k = NULL;
    if (!handle) LS_LT_TRY_GOTO(cublasLtCreate(&handle), status, done);
    LS_TRY_GOTO(describe_operation(&d, product, bias), status, done);
    LS_TRY_GOTO(describe_matrices(&d, product), status, done);
    LS_TRY_GOTO(find_algorithm(&d, product, &at, &k), status, done);
    LS_LT_TRY_GOTO(cublasLtMatmul(handle, d.operation, &one, b, d.left, a, d.right, &zero, c, d.out,
                                  c, d.out, &k->algorithm, workspace,
                                  ls__vendor_matmul_workspace(product), stream),
                   status, done);
done:
    free_description(&d);
    return status;
}
