/* dropout: its own gradient, because the mask is a function of the key and not stored. The key's
 * counter is in ops.h. */
#include "graph/op_rule.h"

#include "base/random.h"

static ls_status dropout_shape(const ls_op_call *call, ls_array *out)
{
    LS__SHAPE_TRY(call->nin == 1 && call->in[0].type == LS_DTYPE_F32 && call->in[0].rank >= 1,
                  "takes one f32 input (B,...)");
    out[0] = call->in[0];
    return LS_OK;
}

static void dropout_gradient(ls_graph *g, ls_tensor *const *in, ls_tensor *out, ls_tensor *grad,
                             const void *attributes, ls_tensor **grads_in)
{
    (void)g, (void)in, (void)out;
    grads_in[0] = ls_apply(&ls__op_dropout, attributes, sizeof(ls__dropout_attributes), &grad, 1);
}

static double four_each(const ls_op_call *call)
{
    return 4.0 * (double)ls_array_count(&call->in[0]);
}

const ls_op ls__op_dropout = {
    .name = "dropout", .shape = dropout_shape, .gradient = dropout_gradient, .flops = four_each
};

void ls__dropout_key(const ls__dropout_attributes *attributes, uint64_t seed, uint32_t key[2])
{
    ls__random_key(seed ^ attributes->name_hash, "dropout", key);
}
