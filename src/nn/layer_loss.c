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
