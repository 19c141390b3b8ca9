/* Losses and scores per target. */
#include "nn/layer.h"

ls_tensor *ls_cross_entropy(ls_tensor *scores, ls_tensor *labels)
{
    ls_tensor *out[3];
    ls__apply_multi(&ls__op_cross_entropy, NULL, 0, (ls_tensor *[]) { scores, labels }, 2, out, 3);
    if (out[0]) out[0]->weights = out[1];
    return out[0];
}

ls_tensor *ls_accuracy(ls_tensor *scores, ls_tensor *labels)
{
    ls_tensor *out[2];
    ls__apply_multi(&ls__op_accuracy, NULL, 0, (ls_tensor *[]) { scores, labels }, 2, out, 2);
    if (out[0]) out[0]->weights = out[1];
    return out[0];
}

static ls_tensor *elementwise_loss(const char *what, ls__loss_kind kind, double beta, ls_tensor *x,
                                   ls_tensor *target)
{
    char text[LS__TENSOR_TEXT];
    if (target && target->learned)
        return ls__graph_fail(target->graph, LS_ERR_ARG,
                              "%s: the target %s depends on parameters; it may depend on inputs "
                              "only (x and target are not exchanged?)",
                              what, ls__tensor_text(target, text));
    ls__elementwise_loss_attributes attributes = { .kind = kind, .beta = beta };
    return ls_apply(&ls__op_elementwise_loss, &attributes, sizeof attributes,
                    (ls_tensor *[]) { x, target }, 2);
}

ls_tensor *ls_mse(ls_tensor *x, ls_tensor *target)
{
    return elementwise_loss("mse", LS__LOSS_MSE, 0, x, target);
}

ls_tensor *ls_bce_with_logits(ls_tensor *scores, ls_tensor *target)
{
    return elementwise_loss("bce_with_logits", LS__LOSS_BCE, 0, scores, target);
}

ls_tensor *ls_smooth_l1(ls_tensor *x, ls_tensor *target, double beta)
{
    if (x && !(beta > 0 && beta <= 1e30))
        return ls__graph_fail(x->graph, LS_ERR_ARG,
                              "smooth_l1: beta is %g, but must be a positive number", beta);
    return elementwise_loss("smooth_l1", LS__LOSS_SMOOTH_L1, beta, x, target);
}
