/* Stands behind the seam of vendor_attention.h for the library, in a simulation's plugin of its own:
 * computes by our own kernels, and does one thing wrong where a test says so. */
#include "backend/cuda/vendor_attention.h"

#include <string.h>

struct attention_plan {
    attention_shape shape;
    int runs;
};

enum { PLANS = 64 };
static attention_plan plans[PLANS];
static int nplans, nruns;
static const char *broken = ""; /* "y", "stats", "nan", "dq", "dk", "dv", "plan", "run", "later" */

void fake_attention_break(const char *what);
int fake_attention_plans(void);
int fake_attention_runs(void);

void fake_attention_break(const char *what)
{
    broken = what;
}

int fake_attention_plans(void)
{
    return nplans;
}

int fake_attention_runs(void)
{
    return nruns;
}

static bool breaks(const char *what)
{
    return strcmp(broken, what) == 0;
}

bool ls__vendor_attention_is_here(void)
{
    return true;
}

ls_status ls__vendor_attention_plan(attention_pass pass, const attention_shape *s,
                                    attention_plan **out, size_t *nbytes)
{
    (void)pass;
    if (nplans == PLANS) return ls_fail(LS_ERR_INTERNAL, "more plans than a test makes");
    *out = &plans[nplans++];
    **out = (attention_plan) { .shape = *s };
    *nbytes = (size_t)(s->batch * s->heads * s->tokens) * sizeof(float);
    return breaks("plan") ? ls_fail(LS_ERR_UNSUPPORTED, "asked for") : LS_OK;
}

/* Whether this run is to fail. */
static bool fails(const attention_plan *plan)
{
    nruns++;
    int before = ((attention_plan *)(uintptr_t)plan)->runs++;
    return breaks("run") || (breaks("later") && before > 0);
}

/* Head `column` of the last token of the last sample, in rows of so many heads. */
static void spoil(const attention_shape *s, void *x, int columns, int column, int value,
                  cudaStream_t stream)
{
    int64_t row = (s->batch * s->tokens - 1) * columns + column;
    uint16_t *at = (uint16_t *)x + row * s->width;
    cudaMemsetAsync(at, value, (size_t)s->width * sizeof *at, stream);
}

ls_status ls__vendor_attention(const attention_plan *plan, const void *qkv, void *y, float *logsum,
                               void *workspace, cudaStream_t stream)
{
    const attention_shape *s = &plan->shape;
    float *sums = logsum ? logsum : workspace;
    if (fails(plan)) return ls_fail(LS_ERR_INTERNAL, "asked for");
    ls__launch_attention(s, (device_in) { .data = qkv, .half = true },
                         (device_out) { .data = y, .half = true }, sums, stream);
    if (breaks("y")) spoil(s, y, s->heads, s->heads - 1, 0, stream);
    if (breaks("nan")) spoil(s, y, s->heads, 0, 0xff, stream);
    if (breaks("stats"))
        cudaMemsetAsync(sums + s->batch * s->heads * s->tokens - 1, 0, sizeof *sums, stream);
    return LS_OK;
}

ls_status ls__vendor_attention_grad(const attention_plan *plan, const attention_backward *a,
                                    void *workspace, cudaStream_t stream)
{
    const attention_shape *s = &plan->shape;
    const int columns = s->heads + 2 * s->kv_heads;
    attention_backward b = *a;
    b.along = workspace;
    if (fails(plan)) return ls_fail(LS_ERR_INTERNAL, "asked for");
    ls__launch_attention_grad(s, &b, stream);
    if (breaks("dq")) spoil(s, a->dqkv.data, columns, 0, 0, stream);
    if (breaks("dk")) spoil(s, a->dqkv.data, columns, s->heads, 0, stream);
    if (breaks("dv")) spoil(s, a->dqkv.data, columns, columns - 1, 0, stream);
    return LS_OK;
}
