/* Operations to come. */
#include "graph/op_rule.h"

static ls_status pending(const ls_op_call *call, ls_array *out)
{
    (void)call, (void)out;
    return ls_fail(LS_ERR_UNSUPPORTED, "not there yet");
}

const ls_op ls__op_embedding = { .name = "embedding", .shape = pending };
const ls_op ls__op_embedding_grad = { .name = "embedding_grad", .shape = pending };
const ls_op ls__op_position_embedding = { .name = "position_embedding", .shape = pending };
const ls_op ls__op_position_embedding_grad = { .name = "position_embedding_grad",
                                               .shape = pending };
const ls_op ls__op_layer_norm = { .name = "layer_norm", .shape = pending };
const ls_op ls__op_layer_norm_grad = { .name = "layer_norm_grad", .shape = pending };
const ls_op ls__op_rms_norm = { .name = "rms_norm", .shape = pending };
const ls_op ls__op_rms_norm_grad = { .name = "rms_norm_grad", .shape = pending };
const ls_op ls__op_activation = { .name = "activation", .shape = pending };
const ls_op ls__op_activation_grad = { .name = "activation_grad", .shape = pending };
