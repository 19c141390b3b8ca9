/* rotary, attention with its gradient, attention_cached: what happens between the two linear layers
 * of a transformer's attention. Formulas: ops.h.
 *
 * One tensor qkv holds queries, keys and values, as the linear layer before it writes them, so that
 * nothing is split, transposed or copied. */
#include "graph/op_rule.h"

static ls_array f32_3(int64_t a, int64_t b, int64_t c)
{
    return (ls_array) { .type = LS_DTYPE_F32, .rank = 3, .shape = { a, b, c } };
}

/* --- shapes --- */

static ls_status check_qkv(const ls_array *qkv, int64_t heads, int64_t kv_heads, int64_t width)
{
    LS__SHAPE_TRY(heads >= 1 && kv_heads >= 1 && width >= 1 && heads % kv_heads == 0,
                  "%lld heads of queries cannot share %lld of keys and values", (long long)heads,
                  (long long)kv_heads);
    LS__SHAPE_TRY(ls__is_f32(qkv, 3) && qkv->shape[2] == (heads + 2 * kv_heads) * width,
                  "qkv must be f32 (B,T,%lld): (%lld + 2 * %lld) heads of %lld",
                  (long long)((heads + 2 * kv_heads) * width), (long long)heads,
                  (long long)kv_heads, (long long)width);
    return LS_OK;
}

static ls_status check_position(const ls_array *position, int64_t batch)
{
    LS__SHAPE_TRY(position->type == LS_DTYPE_I32 && position->rank == 1 &&
                      position->shape[0] == batch,
                  "position must be i32 (B)");
    return LS_OK;
}

static ls_status attention_shape(const ls_op_call *call, ls_array *out)
{
    const ls__attention_attributes *a = call->attributes;
    const ls_array *qkv = &call->in[0];
    LS__SHAPE_TRY(call->nin == 1, "takes qkv");
    ls_status status = check_qkv(qkv, a->heads, a->kv_heads, a->width);
    if (status != LS_OK) return status;
    out[0] = f32_3(qkv->shape[0], qkv->shape[1], a->heads * a->width);
    out[1] = f32_3(qkv->shape[0], a->heads, qkv->shape[1]);
    return LS_OK;
}

static ls_status attention_grad_shape(const ls_op_call *call, ls_array *out)
{
    const ls__attention_attributes *a = call->attributes;
    LS__SHAPE_TRY(call->nin == 4, "takes g, qkv, y, logsum");
    const ls_array *g = &call->in[0], *qkv = &call->in[1], *logsum = &call->in[3];
    ls_status status = check_qkv(qkv, a->heads, a->kv_heads, a->width);
    if (status != LS_OK) return status;
    LS__SHAPE_TRY(ls__is_f32(g, 3) && g->shape[0] == qkv->shape[0] &&
                      g->shape[1] == qkv->shape[1] && g->shape[2] == a->heads * a->width &&
                      ls__same(g, &call->in[2]),
                  "g and y must be f32 (B,T,%lld)", (long long)(a->heads * a->width));
    LS__SHAPE_TRY(ls__is_f32(logsum, 3) && logsum->shape[0] == qkv->shape[0] &&
                      logsum->shape[1] == a->heads && logsum->shape[2] == qkv->shape[1],
                  "logsum must be f32 (B,%lld,T)", (long long)a->heads);
    out[0] = *qkv;
    return LS_OK;
}

static ls_status attention_cached_shape(const ls_op_call *call, ls_array *out)
{
    const ls__attention_attributes *a = call->attributes;
    LS__SHAPE_TRY(call->nin == 3, "takes qkv, cache, position");
    const ls_array *qkv = &call->in[0], *cache = &call->in[1];
    ls_status status = check_qkv(qkv, a->heads, a->kv_heads, a->width);
    if (status == LS_OK) status = check_position(&call->in[2], qkv->shape[0]);
    if (status != LS_OK) return status;
    LS__SHAPE_TRY(ls__is_f32(cache, 3) && cache->shape[0] == qkv->shape[0] &&
                      cache->shape[1] >= qkv->shape[1] &&
                      cache->shape[2] == 2 * a->kv_heads * a->width,
                  "cache must be f32 (B,S,%lld) with a row for each token",
                  (long long)(2 * a->kv_heads * a->width));
    out[0] = f32_3(qkv->shape[0], qkv->shape[1], a->heads * a->width);
    return LS_OK;
}

static ls_status rotary_shape(const ls_op_call *call, ls_array *out)
{
    const ls__rotary_attributes *a = call->attributes;
    LS__SHAPE_TRY(call->nin == 1 || call->nin == 2, "takes x and perhaps position");
    ls_status status = check_qkv(&call->in[0], a->heads, a->kv_heads, a->width);
    if (status == LS_OK && call->nin == 2)
        status = check_position(&call->in[1], call->in[0].shape[0]);
    if (status != LS_OK) return status;
    LS__SHAPE_TRY(a->width % 2 == 0, "heads of %lld numbers have no pairs", (long long)a->width);
    out[0] = call->in[0];
    return LS_OK;
}

/* --- gradients --- */

static void attention_gradient(ls_graph *g, ls_tensor *const *in, ls_tensor *out, ls_tensor *grad,
                               const void *attributes, ls_tensor **grads_in)
{
    ls_tensor *logsum = ls__graph_sibling(out, 1);
    if (!logsum) {
        ls__graph_fail(g, LS_ERR_ARG, "attention: its gradient needs the output logsum");
        return;
    }
    grads_in[0] = ls_apply(&ls__op_attention_grad, attributes, sizeof(ls__attention_attributes),
                           (ls_tensor *[]) { grad, in[0], out, logsum }, 4);
}

static void rotary_gradient(ls_graph *g, ls_tensor *const *in, ls_tensor *out, ls_tensor *grad,
                            const void *attributes, ls_tensor **grads_in)
{
    (void)g;
    ls__rotary_attributes back = *(const ls__rotary_attributes *)attributes;
    back.inverse = !back.inverse;
    int nin = ls__input_count(out);
    ls_tensor *both[2] = { grad, nin == 2 ? in[1] : NULL };
    grads_in[0] = ls_apply(&ls__op_rotary, &back, sizeof back, both, nin);
}

/* --- work --- */

/* Pairs of a query and a key it sees, of all heads; two products of `width` belong to each. */
static double pairs(const ls__attention_attributes *a, const ls_array *qkv)
{
    double tokens = (double)qkv->shape[1];
    double seen = a->causal ? tokens * (tokens + 1) / 2 : tokens * tokens;
    return (double)(qkv->shape[0] * a->heads) * seen;
}

static double attention_flops(const ls_op_call *call)
{
    const ls__attention_attributes *a = call->attributes;
    return 4 * (double)a->width * pairs(a, &call->in[0]);
}

/* Five products instead of two: scores again, dp, dq, dk, dv. */
static double attention_grad_flops(const ls_op_call *call)
{
    const ls__attention_attributes *a = call->attributes;
    return 10 * (double)a->width * pairs(a, &call->in[1]);
}

/* As if the cache were full. */
static double attention_cached_flops(const ls_op_call *call)
{
    return 4 * (double)ls_array_count(call->out) * (double)call->in[1].shape[1];
}

static double rotary_flops(const ls_op_call *call)
{
    return 3 * (double)ls_array_count(call->out);
}

const ls_op ls__op_rotary = {
    .name = "rotary", .shape = rotary_shape, .gradient = rotary_gradient, .flops = rotary_flops
};
const ls_op ls__op_attention = { .name = "attention",
                                 .shape = attention_shape,
                                 .gradient = attention_gradient,
                                 .flops = attention_flops };
const ls_op ls__op_attention_grad = { .name = "attention_grad",
                                      .shape = attention_grad_shape,
                                      .flops = attention_grad_flops };
const ls_op ls__op_attention_cached = { .name = "attention_cached",
                                        .shape = attention_cached_shape,
                                        .flops = attention_cached_flops };
