/* From nodes to steps: which function lowers which operation, and which nodes become one step. */
#include "backend/cpu/cpu.h"

typedef struct kernel {
    const ls_op *op;
    cpu_lower_fn *lower;
    bool takes_relu; /* can rectify what it writes */
} kernel;

static const kernel kernels[] = {
    { &ls__op_linear, ls__cpu_linear, true },
    { &ls__op_linear_grad_x, ls__cpu_linear_grad_x, false },
    { &ls__op_linear_grad_weight, ls__cpu_linear_grad_weight, false },
    { &ls__op_conv2d, ls__cpu_conv2d, true },
    { &ls__op_conv2d_grad_x, ls__cpu_conv2d_grad_x, false },
    { &ls__op_conv2d_grad_weight, ls__cpu_conv2d_grad_weight, false },
    { &ls__op_max_pool2d, ls__cpu_max_pool2d, false },
    { &ls__op_max_pool2d_grad, ls__cpu_max_pool2d_grad, false },
    { &ls__op_avg_pool2d, ls__cpu_avg_pool2d, false },
    { &ls__op_avg_pool2d_grad, ls__cpu_avg_pool2d_grad, false },
    { &ls__op_global_avg_pool2d, ls__cpu_global_avg_pool2d, false },
    { &ls__op_global_avg_pool2d_grad, ls__cpu_global_avg_pool2d_grad, false },
    { &ls__op_batch_norm, ls__cpu_batch_norm, true },
    { &ls__op_batch_norm_grad, ls__cpu_batch_norm_grad, false },
    { &ls__op_batch_norm_inference, ls__cpu_batch_norm_inference, true },
    { &ls__op_relu, ls__cpu_relu, false },
    { &ls__op_relu_grad, ls__cpu_relu_grad, false },
    { &ls__op_add, ls__cpu_add, true },
    { &ls__op_mul, ls__cpu_mul, false },
    { &ls__op_scale, ls__cpu_scale, false },
    { &ls__op_copy, ls__cpu_copy, false },
    { &ls__op_dropout, ls__cpu_dropout, false },
    { &ls__op_cross_entropy, ls__cpu_cross_entropy, false },
    { &ls__op_cross_entropy_grad, ls__cpu_cross_entropy_grad, false },
    { &ls__op_accuracy, ls__cpu_accuracy, false },
    { &ls__op_loss_grad, ls__cpu_loss_grad, false },
};

static const kernel *kernel_of(const ls_op *op)
{
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (kernels[i].op == op) return &kernels[i];
    return NULL;
}

/* A view: the plain values under another shape. A parameter's gradient is never one. */
static ls_status lower_reshape(cpu_builder *b, const ls__node *node)
{
    const ls_tensor *x = node->in[0], *y = node->out[0];
    int buffer;
    LS_TRY(ls__cpu_read(b, x, CPU_PLAIN, &buffer));
    b->values[y->id] = (cpu_value) { .buffer = { buffer, -1 }, .tiled = ls__cpu_tiled(b, x) };
    /* cut by samples only if the new first dimension is */
    if (b->values[y->id].tiled && (y->rank == 0 || y->shape[0] % b->program->batch != 0))
        b->values[y->id].tiled = false;
    return LS_OK;
}

/* The relu that is the only reader of the node's output; -1. */
static int only_relu(const cpu_builder *b, const ls__node *node)
{
    const ls_tensor *x = node->out[0];
    int i = b->reader[x->id];
    if (b->readers[x->id] != 1 || i < 0 || b->nodes[i].op != &ls__op_relu) return -1;
    return i;
}

static void forget_reads(cpu_builder *b, const ls__node *node)
{
    for (int i = 0; i < node->nin; i++) b->reads[b->root[node->in[i]->id]]--;
}

static ls_status lower_node(cpu_builder *b, int i)
{
    const ls__node *node = &b->nodes[i];
    const kernel *k = kernel_of(node->op);
    cpu_task task = { .node = node, .out = node->out[0] };
    if (node->op == &ls__op_reshape) return lower_reshape(b, node);
    if (!k) return ls__cpu_user_op(b, &task);
    int relu = k->takes_relu ? only_relu(b, node) : -1;
    if (relu >= 0) {
        task.relu = true;
        task.out = b->nodes[relu].out[0];
        b->absorbed[relu] = true;
    }
    return k->lower(b, &task);
}

static ls_status keep_plain(cpu_builder *b, const ls_tensor *x)
{
    int buffer;
    if (!x) return LS_OK;
    LS_TRY(ls__cpu_read(b, x, CPU_PLAIN, &buffer));
    b->program->buffers[buffer].keep = true;
    return LS_OK;
}

/* What is read after the run: plain, and not overwritten. */
static ls_status keep_results(cpu_builder *b)
{
    const ls__graph_result *results;
    int n = ls__graph_results(b->graph, &results);
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < results[i].nvalues; k++) LS_TRY(keep_plain(b, results[i].values[k]));
        LS_TRY(keep_plain(b, results[i].weights));
    }
    return LS_OK;
}

ls_status ls__cpu_lower(cpu_builder *b)
{
    for (int i = 0; i < b->nnodes; i++) {
        if (!b->absorbed[i]) LS_TRY(lower_node(b, i));
        forget_reads(b, &b->nodes[i]);
    }
    LS_TRY(keep_results(b));
    return ls__cpu_close(b);
}
