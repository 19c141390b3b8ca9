/* embedding and position_embedding, with their gradients. Formulas: ops.h.
 *
 * The gradient of a table is an operation of its own and not a product with one-hot rows, so that a
 * backend touches only the rows that occur. */
#include "graph/op_rule.h"

static bool is_token(ls_dtype type)
{
    return type == LS_DTYPE_I32 || type == LS_DTYPE_I64 || type == LS_DTYPE_U8;
}

static ls_status check_tokens(const ls_array *tokens)
{
    LS__SHAPE_TRY(is_token(tokens->type), "tokens must be i32, i64 or u8, not %s",
                  ls_dtype_name(tokens->type));
    LS__SHAPE_TRY(tokens->rank < LS_MAX_RANK, "tokens have too many dimensions");
    return LS_OK;
}

static double no_flops(const ls_op_call *call)
{
    (void)call;
    return 0;
}

static double per_gradient(const ls_op_call *call)
{
    return (double)ls_array_count(&call->in[0]);
}

/* --- tokens --- */

static ls_status embedding_shape(const ls_op_call *call, ls_array *out)
{
    const ls_array *tokens = &call->in[0], *weight = &call->in[1];
    LS__SHAPE_TRY(call->nin == 2 && ls__is_f32(weight, 2), "takes tokens and weight (V,C)");
    ls_status status = check_tokens(tokens);
    if (status != LS_OK) return status;
    out[0] = *tokens;
    out[0].type = LS_DTYPE_F32;
    out[0].shape[out[0].rank++] = weight->shape[1];
    return LS_OK;
}

static void embedding_gradient(ls_graph *g, ls_tensor *const *in, ls_tensor *out, ls_tensor *grad,
                               const void *attributes, ls_tensor **grads_in)
{
    (void)g, (void)out, (void)attributes;
    ls__embedding_attributes a = { .rows = in[1]->shape[0] };
    grads_in[1] =
        ls_apply(&ls__op_embedding_grad, &a, sizeof a, (ls_tensor *[]) { grad, in[0] }, 2);
}

static ls_status embedding_grad_shape(const ls_op_call *call, ls_array *out)
{
    const ls__embedding_attributes *a = call->attributes;
    const ls_array *g = &call->in[0], *tokens = &call->in[1];
    LS__SHAPE_TRY(call->nin == 2 && g->type == LS_DTYPE_F32, "takes g and tokens");
    ls_status status = check_tokens(tokens);
    if (status != LS_OK) return status;
    bool fits = g->rank == tokens->rank + 1;
    for (int i = 0; fits && i < tokens->rank; i++) fits = g->shape[i] == tokens->shape[i];
    LS__SHAPE_TRY(fits, "g (L,C) and tokens (L) do not fit");
    out[0] = ls__f32_2(a->rows, g->shape[g->rank - 1]);
    return LS_OK;
}

const ls_op ls__op_embedding = {
    .name = "embedding", .shape = embedding_shape, .gradient = embedding_gradient, .flops = no_flops
};

const ls_op ls__op_embedding_grad = { .name = "embedding_grad",
                                      .shape = embedding_grad_shape,
                                      .flops = per_gradient };

/* --- positions --- */

static ls_status position_embedding_shape(const ls_op_call *call, ls_array *out)
{
    const ls_array *x = &call->in[0], *weight = &call->in[1], *position = &call->in[2];
    LS__SHAPE_TRY((call->nin == 2 || call->nin == 3) && ls__is_f32(x, 3) && ls__is_f32(weight, 2) &&
                      x->shape[2] == weight->shape[1],
                  "x (B,T,C) and weight (S,C) do not fit");
    LS__SHAPE_TRY(x->shape[1] <= weight->shape[0],
                  "%lld tokens are more than the context's %lld positions", (long long)x->shape[1],
                  (long long)weight->shape[0]);
    LS__SHAPE_TRY(call->nin == 2 || (position->type == LS_DTYPE_I32 && position->rank == 1 &&
                                     position->shape[0] == x->shape[0]),
                  "position must be i32 (B)");
    out[0] = *x;
    return LS_OK;
}

static void position_embedding_gradient(ls_graph *g, ls_tensor *const *in, ls_tensor *out,
                                        ls_tensor *grad, const void *attributes,
                                        ls_tensor **grads_in)
{
    (void)g, (void)out, (void)attributes;
    ls__embedding_attributes a = { .rows = in[1]->shape[0] };
    grads_in[0] = grad;
    grads_in[1] = ls_apply(&ls__op_position_embedding_grad, &a, sizeof a, &grad, 1);
}

static ls_status position_embedding_grad_shape(const ls_op_call *call, ls_array *out)
{
    const ls__embedding_attributes *a = call->attributes;
    const ls_array *g = &call->in[0];
    LS__SHAPE_TRY(call->nin == 1 && ls__is_f32(g, 3) && g->shape[1] <= a->rows,
                  "takes g (B,T,C) of at most %lld positions", (long long)a->rows);
    out[0] = ls__f32_2(a->rows, g->shape[2]);
    return LS_OK;
}

const ls_op ls__op_position_embedding = { .name = "position_embedding",
                                          .shape = position_embedding_shape,
                                          .gradient = position_embedding_gradient };

const ls_op ls__op_position_embedding_grad = { .name = "position_embedding_grad",
                                               .shape = position_embedding_grad_shape,
                                               .flops = per_gradient };
