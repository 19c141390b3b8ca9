/* Operations to come. */
#include "graph/op_rule.h"

static ls_status pending(const ls_op_call *call, ls_array *out)
{
    (void)call, (void)out;
    return ls_fail(LS_ERR_UNSUPPORTED, "not there yet");
}

const ls_op ls__op_rotary = { .name = "rotary", .shape = pending };
const ls_op ls__op_attention = { .name = "attention", .shape = pending };
const ls_op ls__op_attention_grad = { .name = "attention_grad", .shape = pending };
const ls_op ls__op_attention_cached = { .name = "attention_cached", .shape = pending };
const ls_op ls__op_softmax = { .name = "softmax", .shape = pending };
const ls_op ls__op_softmax_grad = { .name = "softmax_grad", .shape = pending };
