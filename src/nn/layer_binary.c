/* add, sub, mul, div. Shapes broadcast as in NumPy, but the batch meets the batch only: a step
 * function is built for several sizes of micro-batch, and what broadcasts a batch of one fails with
 * others, or mixes samples. */
#include "nn/layer.h"

static bool batch_stays(const ls_op *op, const ls_tensor *x, const ls_tensor *other)
{
    bool first = x->rank >= other->rank;
    bool kept = x->rank > other->rank || other->shape[0] == x->shape[0] || other->shape[0] == 1;
    if (!x->sample_major || (first && kept)) return true;
    char text[LS__TENSOR_TEXT], against[LS__TENSOR_TEXT];
    if (first)
        ls__graph_fail(x->graph, LS_ERR_SHAPE,
                       "%s: the batch of %s would be broadcast to %lld samples, those of %s",
                       op->name, ls__tensor_text(x, text), (long long)other->shape[0],
                       ls__tensor_text(other, against));
    else
        ls__graph_fail(x->graph, LS_ERR_SHAPE,
                       "%s: shapes are aligned at their last dimension, so that the batch of %s "
                       "would meet another dimension of %s than the first; give it dimensions of "
                       "1 by ls_reshape",
                       op->name, ls__tensor_text(x, text), ls__tensor_text(other, against));
    return false;
}

static ls_tensor *binary(const ls_op *op, ls_tensor *a, ls_tensor *b)
{
    if (a && b && a->graph == b->graph && !(batch_stays(op, a, b) && batch_stays(op, b, a)))
        return NULL;
    return ls_apply(op, NULL, 0, (ls_tensor *[]) { a, b }, 2);
}

ls_tensor *ls_add(ls_tensor *a, ls_tensor *b)
{
    return binary(&ls__op_add, a, b);
}

ls_tensor *ls_sub(ls_tensor *a, ls_tensor *b)
{
    return binary(&ls__op_sub, a, b);
}

ls_tensor *ls_mul(ls_tensor *a, ls_tensor *b)
{
    return binary(&ls__op_mul, a, b);
}

ls_tensor *ls_div(ls_tensor *a, ls_tensor *b)
{
    return binary(&ls__op_div, a, b);
}
