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

enum { WORKSPACE = 32 << 20 };

typedef struct known {
    cuda_matmul product;
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

size_t ls__vendor_matmul_workspace(const cuda_matmul *product)
{
    (void)product;
    return WORKSPACE;
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

static ls_status describe_operation(description *d, const cuda_matmul *p, const float *bias)
{
    ls_status status = LS_OK;
    cublasOperation_t left = p->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t right = p->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    LS_LT_TRY_GOTO(cublasLtMatmulDescCreate(&d->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), status,
                   done);
    LS_LT_TRY_GOTO(cublasLtMatmulDescSetAttribute(d->operation, CUBLASLT_MATMUL_DESC_TRANSA, &left,
                                                  sizeof left),
                   status, done);
    LS_LT_TRY_GOTO(cublasLtMatmulDescSetAttribute(d->operation, CUBLASLT_MATMUL_DESC_TRANSB, &right,
                                                  sizeof right),
                   status, done);
    if (!p->has_bias) goto done;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    int32_t type = CUDA_R_32F;
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

/* Partial sums in the workspace are added in order; those that meet in the output are not. */
static ls_status prefer(description *d)
{
    ls_status status = LS_OK;
    uint64_t nbytes = WORKSPACE;
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
done:
    return status;
}

static bool same(const cuda_matmul *a, const cuda_matmul *b)
{
    return a->m == b->m && a->n == b->n && a->k == b->k && a->a_transposed == b->a_transposed &&
           a->b_transposed == b->b_transposed && a->half == b->half && a->half_out == b->half_out &&
           a->has_bias == b->has_bias;
}

static ls_status find_algorithm(description *d, const cuda_matmul *p, const known **out)
{
    ls_status status;
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    for (known *k = all; k; k = k->next) {
        *out = k;
        if (same(&k->product, p)) return LS_OK;
    }
    LS_TRY(prefer(d));
    LS_LT_TRY_GOTO(cublasLtMatmulAlgoGetHeuristic(handle, d->operation, d->left, d->right, d->out,
                                                  d->out, d->preference, 1, &result, &found),
                   status, failed);
    known *k = found ? ls__alloc(1, sizeof *k) : NULL;
    if (!found)
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "cuBLASLt has no algorithm for a product of (%lld,%lld) and (%lld,%lld)",
                       (long long)p->m, (long long)p->k, (long long)p->k, (long long)p->n);
    if (!k) return LS_ERR_MEMORY;
    *k = (known) { *p, result.algo, all };
    *out = all = k;
    return LS_OK;
failed:
    return status;
}

ls_status ls__vendor_matmul(cudaStream_t stream, const cuda_matmul *product, const void *a,
                            const void *b, const float *bias, void *c, void *workspace)
{
    const float one = 1, zero = 0;
    ls_status status = LS_OK;
    description d = { 0 };
    const known *k = NULL;
    if (!handle) LS_LT_TRY_GOTO(cublasLtCreate(&handle), status, done);
    LS_TRY_GOTO(describe_operation(&d, product, bias), status, done);
    LS_TRY_GOTO(describe_matrices(&d, product), status, done);
    LS_TRY_GOTO(find_algorithm(&d, product, &k), status, done);
    LS_LT_TRY_GOTO(cublasLtMatmul(handle, d.operation, &one, b, d.left, a, d.right, &zero, c, d.out,
                                  c, d.out, &k->algorithm, workspace, WORKSPACE, stream),
                   status, done);
done:
    free_description(&d);
    return status;
}
