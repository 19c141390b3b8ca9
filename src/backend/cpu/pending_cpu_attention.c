/* Kernels to come. */
#include "backend/cpu/cpu.h"

ls_status ls__cpu_rotary(cpu_builder *b, const cpu_task *task)
{
    (void)b, (void)task;
    return ls_fail(LS_ERR_UNSUPPORTED, "no kernel for rotary yet");
}

ls_status ls__cpu_attention(cpu_builder *b, const cpu_task *task)
{
    (void)b, (void)task;
    return ls_fail(LS_ERR_UNSUPPORTED, "no kernel for attention yet");
}

ls_status ls__cpu_attention_grad(cpu_builder *b, const cpu_task *task)
{
    (void)b, (void)task;
    return ls_fail(LS_ERR_UNSUPPORTED, "no kernel for attention_grad yet");
}

ls_status ls__cpu_attention_cached(cpu_builder *b, const cpu_task *task)
{
    (void)b, (void)task;
    return ls_fail(LS_ERR_UNSUPPORTED, "no kernel for attention_cached yet");
}

ls_status ls__cpu_softmax(cpu_builder *b, const cpu_task *task)
{
    (void)b, (void)task;
    return ls_fail(LS_ERR_UNSUPPORTED, "no kernel for softmax yet");
}

ls_status ls__cpu_softmax_grad(cpu_builder *b, const cpu_task *task)
{
    (void)b, (void)task;
    return ls_fail(LS_ERR_UNSUPPORTED, "no kernel for softmax_grad yet");
}
