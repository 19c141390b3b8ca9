/* linear and its gradients, tile by tile. The gradient of the weights is summed over a lane's tiles
 * by the primitive itself. */
#include "backend/cpu/gemm.h"

#include <string.h>

typedef struct gemm {
    cpu_gemm set[2]; /* for a tile, for the short one */
    cpu_gemm add[2]; /* gradient of the weights: adds to the output */
    bool biased;
    bool half; /* the factors are bf16 */
    cpu_extent rows;
    int64_t features;
} gemm;

static void free_gemm(void *state)
{
    gemm *g = state;
    for (int i = 0; i < 2; i++) {
        ls__cpu_gemm_free(&g->set[i]);
        ls__cpu_gemm_free(&g->add[i]);
    }
    ls__free(g);
}

static size_t largest_scratchpad(const gemm *g)
{
    size_t most = 0;
    for (int i = 0; i < 2; i++) {
        if (g->set[i].scratchpad > most) most = g->set[i].scratchpad;
        if (g->add[i].scratchpad > most) most = g->add[i].scratchpad;
    }
    return most;
}

/* --- y = x weight^T + bias, dx = g weight --- */

static void run_rows(const cpu_call *call)
{
    const gemm *g = call->step->state;
    const cpu_gemm *p = &g->set[call->tail];
    void *pointers[5] = { ls__cpu_at(call, 0), ls__cpu_at(call, 1), ls__cpu_at(call, 2) };
    int n = 3;
    if (g->biased) pointers[n++] = ls__cpu_at(call, 4);
    pointers[n] = ls__cpu_at(call, 3);
    ls__cpu_gemm_run(p, call, pointers);
}

/* shape: all but m. out (rows, n) = the node's first input (rows, k) times its second. */
static ls_status add_rows(cpu_builder *b, gemm_shape shape, const ls__node *node,
                          const ls_tensor *bias, const ls_tensor *out)
{
    const ls_tensor *a = node->in[0], *weight = node->in[1];
    cpu_layout factors = ls__cpu_factor_layout(node, 0), stored = ls__cpu_stored_layout(out);
    bool tiled = ls__cpu_tiled(b, a) && !ls__cpu_tiled(b, weight);
    int buffers[5];
    LS_TRY(ls__cpu_read(b, a, factors, &buffers[0]));
    LS_TRY(ls__cpu_read(b, weight, factors, &buffers[1]));
    if (bias) LS_TRY(ls__cpu_read(b, bias, CPU_PLAIN, &buffers[4]));
    LS_TRY(ls__cpu_write(b, out, stored, tiled, &buffers[2]));
    shape.half = factors == CPU_HALF;
    shape.half_c = stored == CPU_HALF;
    gemm *g = ls__alloc(1, sizeof *g);
    if (!g) return LS_ERR_MEMORY;
    g->biased = bias != NULL;
    int64_t rows[2];
    ls__cpu_rows(b, a, tiled, rows);
    ls_status status = LS_OK;
    for (int i = 0; i < 2 && status == LS_OK; i++) {
        shape.m = rows[i];
        shape.bias = bias != NULL;
        if (rows[i]) status = ls__cpu_gemm_create(&shape, &g->set[i]);
    }
    if (status == LS_OK) status = ls__cpu_temporary(b, largest_scratchpad(g), &buffers[3]);
    if (status != LS_OK) {
        free_gemm(g);
        return status;
    }
    cpu_step_spec spec = { .run = run_rows, .state = g, .destroy = free_gemm, .whole = !tiled };
    return ls__cpu_step(b, &spec, buffers, bias ? 5 : 4);
}

ls_status ls__cpu_linear(cpu_builder *b, const cpu_task *task)
{
    const ls__node *node = task->node;
    const ls_tensor *weight = node->in[1];
    if (ls__cpu_large_weight(b, weight)) return ls__cpu_linear_large(b, task);
    gemm_shape shape = {
        .n = weight->shape[0], .k = weight->shape[1], .transpose_b = true, .relu = task->relu
    };
    return add_rows(b, shape, node, node->nin == 3 ? node->in[2] : NULL, task->out);
}

ls_status ls__cpu_linear_grad_x(cpu_builder *b, const cpu_task *task)
{
    const ls_tensor *weight = task->node->in[1];
    if (ls__cpu_large_weight(b, weight)) return ls__cpu_linear_large_grad_x(b, task);
    gemm_shape shape = { .n = weight->shape[1], .k = weight->shape[0] };
    return add_rows(b, shape, task->node, NULL, task->out);
}

/* --- dw = g^T x, db = column sums of g --- */

static void run_weight(const cpu_call *call)
{
    const gemm *g = call->step->state;
    bool begins = call->lane_begins || !call->step->tiled;
    const cpu_gemm *p = begins ? &g->set[call->tail] : &g->add[call->tail];
    void *grad = ls__cpu_at(call, 0);
    void *pointers[] = { grad, ls__cpu_at(call, 1), ls__cpu_at(call, 2), ls__cpu_at(call, 3) };
    ls__cpu_gemm_run(p, call, pointers);
    if (!g->biased) return;
    float *sums = ls__cpu_at(call, 4);
    if (begins) memset(sums, 0, (size_t)g->features * sizeof *sums);
    int64_t rows = ls__cpu_extent_rows(call, &g->rows);
    if (g->half)
        ls__cpu_add_half_columns(grad, sums, rows, g->features, g->features);
    else
        ls__cpu_add_columns(grad, sums, rows, g->features, g->features);
}

static ls_status make_weight_gemms(gemm *g, gemm_shape shape, const int64_t rows[2])
{
    for (int i = 0; i < 2; i++) {
        if (rows[i] == 0) continue;
        shape.k = rows[i];
        shape.sum = false;
        LS_TRY(ls__cpu_gemm_create(&shape, &g->set[i]));
        shape.sum = true;
        LS_TRY(ls__cpu_gemm_create(&shape, &g->add[i]));
    }
    return LS_OK;
}

ls_status ls__cpu_linear_grad_weight(cpu_builder *b, const cpu_task *task)
{
    const ls__node *node = task->node;
    const ls_tensor *grad = node->in[0], *x = node->in[1];
    if (ls__cpu_large_weight(b, node->out[0])) return ls__cpu_linear_large_grad_weight(b, task);
    bool tiled = ls__cpu_tiled(b, grad) && ls__cpu_tiled(b, x);
    int buffers[5];
    cpu_layout factors = ls__cpu_factor_layout(node, 0);
    LS_TRY(ls__cpu_read(b, grad, factors, &buffers[0]));
    LS_TRY(ls__cpu_read(b, x, factors, &buffers[1]));
    LS_TRY(ls__cpu_sum_target(b, node->out[0], tiled, &buffers[2]));
    if (node->nout == 2) LS_TRY(ls__cpu_sum_target(b, node->out[1], tiled, &buffers[4]));
    gemm *g = ls__alloc(1, sizeof *g);
    if (!g) return LS_ERR_MEMORY;
    g->biased = node->nout == 2;
    g->rows = ls__cpu_extent(b, grad);
    g->features = grad->shape[1];
    g->half = factors == CPU_HALF;
    gemm_shape shape = {
        .m = grad->shape[1], .n = x->shape[1], .transpose_a = true, .half = g->half
    };
    int64_t rows[2];
    ls__cpu_rows(b, grad, tiled, rows);
    ls_status status = make_weight_gemms(g, shape, rows);
    if (status == LS_OK) status = ls__cpu_temporary(b, largest_scratchpad(g), &buffers[3]);
    if (status != LS_OK) {
        free_gemm(g);
        return status;
    }
    cpu_step_spec spec = { .run = run_weight, .state = g, .destroy = free_gemm, .whole = !tiled };
    return ls__cpu_step(b, &spec, buffers, g->biased ? 5 : 4);
}
