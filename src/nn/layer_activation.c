/* Activations with a curve. */
#include "nn/layer.h"

static ls_tensor *activation(ls_tensor *x, ls__activation_kind kind)
{
    ls__activation_attributes attributes = { .kind = kind };
    return ls_apply(&ls__op_activation, &attributes, sizeof attributes, &x, 1);
}

ls_tensor *ls_gelu(ls_tensor *x)
{
    return activation(x, LS__ACTIVATION_GELU);
}

ls_tensor *ls_gelu_tanh(ls_tensor *x)
{
    return activation(x, LS__ACTIVATION_GELU_TANH);
}

ls_tensor *ls_silu(ls_tensor *x)
{
    return activation(x, LS__ACTIVATION_SILU);
}

ls_tensor *ls_tanh(ls_tensor *x)
{
    return activation(x, LS__ACTIVATION_TANH);
}

ls_tensor *ls_sigmoid(ls_tensor *x)
{
    return activation(x, LS__ACTIVATION_SIGMOID);
}
