/* Kernels to come. */
#include "backend/cpu/cpu.h"

ls_status ls__cpu_embedding(cpu_builder *b, const cpu_task *task)
{
    (void)b, (void)task;
    return ls_fail(LS_ERR_UNSUPPORTED, "no kernel for embedding yet");
}

ls_status ls__cpu_embedding_grad(cpu_builder *b, const cpu_task *task)
{
    (void)b, (void)task;
    return ls_fail(LS_ERR_UNSUPPORTED, "no kernel for embedding_grad yet");
}

ls_status ls__cpu_position_embedding(cpu_builder *b, const cpu_task *task)
{
    (void)b, (void)task;
    return ls_fail(LS_ERR_UNSUPPORTED, "no kernel for position_embedding yet");
}

ls_status ls__cpu_position_embedding_grad(cpu_builder *b, const cpu_task *task)
{
    (void)b, (void)task;
    return ls_fail(LS_ERR_UNSUPPORTED, "no kernel for position_embedding_grad yet");
}

ls_status ls__cpu_layer_norm(cpu_builder *b, const cpu_task *task)
{
    (void)b, (void)task;
    return ls_fail(LS_ERR_UNSUPPORTED, "no kernel for layer_norm yet");
}

ls_status ls__cpu_layer_norm_grad(cpu_builder *b, const cpu_task *task)
{
    (void)b, (void)task;
    return ls_fail(LS_ERR_UNSUPPORTED, "no kernel for layer_norm_grad yet");
}

ls_status ls__cpu_rms_norm(cpu_builder *b, const cpu_task *task)
{
    (void)b, (void)task;
    return ls_fail(LS_ERR_UNSUPPORTED, "no kernel for rms_norm yet");
}

ls_status ls__cpu_rms_norm_grad(cpu_builder *b, const cpu_task *task)
{
    (void)b, (void)task;
    return ls_fail(LS_ERR_UNSUPPORTED, "no kernel for rms_norm_grad yet");
}

ls_status ls__cpu_activation(cpu_builder *b, const cpu_task *task)
{
    (void)b, (void)task;
    return ls_fail(LS_ERR_UNSUPPORTED, "no kernel for activation yet");
}

ls_status ls__cpu_activation_grad(cpu_builder *b, const cpu_task *task)
{
    (void)b, (void)task;
    return ls_fail(LS_ERR_UNSUPPORTED, "no kernel for activation_grad yet");
}
