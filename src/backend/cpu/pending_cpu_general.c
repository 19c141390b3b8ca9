/* Kernels to come. */
#include "backend/cpu/cpu.h"

ls_status ls__cpu_sub(cpu_builder *b, const cpu_task *task)
{
    (void)b, (void)task;
    return ls_fail(LS_ERR_UNSUPPORTED, "no kernel for sub yet");
}

ls_status ls__cpu_div(cpu_builder *b, const cpu_task *task)
{
    (void)b, (void)task;
    return ls_fail(LS_ERR_UNSUPPORTED, "no kernel for div yet");
}

ls_status ls__cpu_sum_to(cpu_builder *b, const cpu_task *task)
{
    (void)b, (void)task;
    return ls_fail(LS_ERR_UNSUPPORTED, "no kernel for sum_to yet");
}

ls_status ls__cpu_reduce(cpu_builder *b, const cpu_task *task)
{
    (void)b, (void)task;
    return ls_fail(LS_ERR_UNSUPPORTED, "no kernel for reduce yet");
}

ls_status ls__cpu_reduce_grad(cpu_builder *b, const cpu_task *task)
{
    (void)b, (void)task;
    return ls_fail(LS_ERR_UNSUPPORTED, "no kernel for reduce_grad yet");
}

ls_status ls__cpu_transpose(cpu_builder *b, const cpu_task *task)
{
    (void)b, (void)task;
    return ls_fail(LS_ERR_UNSUPPORTED, "no kernel for transpose yet");
}

ls_status ls__cpu_slice(cpu_builder *b, const cpu_task *task)
{
    (void)b, (void)task;
    return ls_fail(LS_ERR_UNSUPPORTED, "no kernel for slice yet");
}

ls_status ls__cpu_slice_grad(cpu_builder *b, const cpu_task *task)
{
    (void)b, (void)task;
    return ls_fail(LS_ERR_UNSUPPORTED, "no kernel for slice_grad yet");
}

ls_status ls__cpu_concat(cpu_builder *b, const cpu_task *task)
{
    (void)b, (void)task;
    return ls_fail(LS_ERR_UNSUPPORTED, "no kernel for concat yet");
}

ls_status ls__cpu_elementwise_loss(cpu_builder *b, const cpu_task *task)
{
    (void)b, (void)task;
    return ls_fail(LS_ERR_UNSUPPORTED, "no kernel for elementwise_loss yet");
}

ls_status ls__cpu_elementwise_loss_grad(cpu_builder *b, const cpu_task *task)
{
    (void)b, (void)task;
    return ls_fail(LS_ERR_UNSUPPORTED, "no kernel for elementwise_loss_grad yet");
}
