/* Operations to come. */
#include "graph/op_rule.h"

static ls_status pending(const ls_op_call *call, ls_array *out)
{
    (void)call, (void)out;
    return ls_fail(LS_ERR_UNSUPPORTED, "not there yet");
}

const ls_op ls__op_sub = { .name = "sub", .shape = pending };
const ls_op ls__op_div = { .name = "div", .shape = pending };
const ls_op ls__op_sum_to = { .name = "sum_to", .shape = pending };
const ls_op ls__op_reduce = { .name = "reduce", .shape = pending };
const ls_op ls__op_reduce_grad = { .name = "reduce_grad", .shape = pending };
const ls_op ls__op_transpose = { .name = "transpose", .shape = pending };
const ls_op ls__op_slice = { .name = "slice", .shape = pending };
const ls_op ls__op_slice_grad = { .name = "slice_grad", .shape = pending };
const ls_op ls__op_concat = { .name = "concat", .shape = pending };
const ls_op ls__op_elementwise_loss = { .name = "elementwise_loss", .shape = pending };
const ls_op ls__op_elementwise_loss_grad = { .name = "elementwise_loss_grad", .shape = pending };
