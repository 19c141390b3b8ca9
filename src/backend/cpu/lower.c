/* From nodes to steps: which function lowers which operation, and which nodes become one step. */
#include "backend/cpu/head.h"

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
    { &ls__op_embedding, ls__cpu_embedding, false },
    { &ls__op_embedding_grad, ls__cpu_embedding_grad, false },
    { &ls__op_position_embedding, ls__cpu_position_embedding, false },
    { &ls__op_position_embedding_grad, ls__cpu_position_embedding_grad, false },
    { &ls__op_layer_norm, ls__cpu_layer_norm, false },
    { &ls__op_layer_norm_grad, ls__cpu_layer_norm_grad, false },
    { &ls__op_rms_norm, ls__cpu_rms_norm, false },
    { &ls__op_rms_norm_grad, ls__cpu_rms_norm_grad, false },
    { &ls__op_activation, ls__cpu_activation, false },
    { &ls__op_activation_grad, ls__cpu_activation_grad, false },
    { &ls__op_rotary, ls__cpu_rotary, false },
    { &ls__op_attention, ls__cpu_attention, false },
    { &ls__op_attention_grad, ls__cpu_attention_grad, false },
    { &ls__op_attention_cached, ls__cpu_attention_cached, false },
    { &ls__op_softmax, ls__cpu_softmax, false },
    { &ls__op_softmax_grad, ls__cpu_softmax_grad, false },
    { &ls__op_sub, ls__cpu_sub, false },
    { &ls__op_div, ls__cpu_div, false },
    { &ls__op_sum_to, ls__cpu_sum_to, false },
    { &ls__op_reduce, ls__cpu_reduce, false },
    { &ls__op_reduce_grad, ls__cpu_reduce_grad, false },
    { &ls__op_transpose, ls__cpu_transpose, false },
    { &ls__op_slice, ls__cpu_slice, false },
    { &ls__op_slice_grad, ls__cpu_slice_grad, false },
    { &ls__op_concat, ls__cpu_concat, false },
    { &ls__op_elementwise_loss, ls__cpu_elementwise_loss, false },
    { &ls__op_elementwise_loss_grad, ls__cpu_elementwise_loss_grad, false },
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
    LS_TRY(ls__cpu_make_plain(b, x));
    b->values[y->id] = b->values[x->id];
    b->values[y->id].buffer[CPU_BLOCKED] = -1;
    b->values[y->id].tiled = ls__cpu_tiled(b, x);
    /* cut by samples only if the new first dimension is */
    if (b->values[y->id].tiled && (y->rank == 0 || y->shape[0] % b->program->batch != 0))
        b->values[y->id].tiled = false;
    return LS_OK;
}

/* --- which nodes become one step --- */

/* The node that is the only one to read x; -1. */
static int only_reader(const cpu_builder *b, const ls_tensor *x)
{
    return b->readers[x->id] == 1 ? b->reader[x->id] : -1;
}

static int relu_behind(const cpu_builder *b, const ls__node *node)
{
    int i = only_reader(b, node->out[0]);
    return i >= 0 && b->nodes[i].op == &ls__op_relu ? i : -1;
}

/* What the pool whose gradient this is has computed. */
static const ls_tensor *pooled_of(const cpu_builder *b, const ls__node *node)
{
    return b->nodes[node->in[1]->node].out[0];
}

/* x -> relu -> pool: the gradient of that relu, behind the pool's. */
static int relu_grad_behind(const cpu_builder *b, const ls__node *node)
{
    int i = only_reader(b, node->out[0]);
    if (i < 0 || b->nodes[i].op != &ls__op_relu_grad) return -1;
    const ls_tensor *rectified = b->nodes[i].in[1];
    bool relu = rectified->node >= 0 && b->nodes[rectified->node].op == &ls__op_relu;
    return relu && b->nodes[node->in[1]->node].in[0] == rectified ? i : -1;
}

/* A table's gradient is added to another of the same parameter (tied weights) where that lies. */
static bool can_be_added_to(const cpu_builder *b, const ls_tensor *x)
{
    if (x->node < 0 || b->readers[x->id] != 1) return false;
    const ls_op *op = b->nodes[x->node].op;
    return op == &ls__op_linear_grad_weight || op == &ls__op_embedding_grad ||
           (op == &ls__op_add && b->absorbed[x->node]);
}

/* The sum behind an embedding's gradient, whose other part comes before it; -1. */
static int sum_behind(const cpu_builder *b, int node)
{
    int i = only_reader(b, b->nodes[node].out[0]);
    if (i < 0 || b->nodes[i].op != &ls__op_add) return -1;
    const ls_tensor *other = b->nodes[i].in[0];
    bool fits = ls__cpu_count(other) == ls__cpu_count(b->nodes[i].out[0]);
    return fits && other->node < node && can_be_added_to(b, other) ? i : -1;
}

static void find_sums(cpu_builder *b)
{
    for (int i = 0; i < b->nnodes; i++) {
        if (b->nodes[i].op != &ls__op_embedding_grad) continue;
        b->partner[i] = sum_behind(b, i);
        if (b->partner[i] >= 0) b->absorbed[b->partner[i]] = true;
    }
    for (int i = b->nnodes - 1; i >= 0; i--) { /* the last sum is the parameter's gradient */
        if (b->nodes[i].op != &ls__op_embedding_grad || b->partner[i] < 0) continue;
        const ls__node *sum = &b->nodes[b->partner[i]];
        b->slot[sum->in[0]->id] = b->slot[sum->out[0]->id];
    }
}

static void find_partners(cpu_builder *b)
{
    for (int i = 0; i < b->nnodes; i++) {
        const ls__node *node = &b->nodes[i];
        const kernel *k = kernel_of(node->op);
        bool pool = node->op == &ls__op_max_pool2d_grad;
        b->partner[i] = -1;
        if (k && k->takes_relu) b->partner[i] = relu_behind(b, node);
        if (pool) b->partner[i] = relu_grad_behind(b, node);
        if (b->partner[i] < 0) continue;
        b->absorbed[b->partner[i]] = true;
        if (pool) b->reads[b->root[pooled_of(b, node)->id]]++;
    }
    find_sums(b);
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
    if (b->partner[i] < 0) return k->lower(b, &task);
    task.out = b->nodes[b->partner[i]].out[0];
    task.relu = k->takes_relu;
    if (node->op == &ls__op_max_pool2d_grad) task.pooled = pooled_of(b, node);
    if (node->op == &ls__op_embedding_grad) task.onto = b->nodes[b->partner[i]].in[0];
    LS_TRY(k->lower(b, &task));
    if (task.pooled) b->reads[b->root[task.pooled->id]]--;
    return LS_OK;
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
    bool done;
    find_partners(b);
    LS_TRY(ls__cpu_find_heads(b));
    for (int i = 0; i < b->nnodes; i++) {
        b->current = i;
        LS_TRY(ls__cpu_lower_head(b, i, &done));
        if (!done && !b->absorbed[i]) LS_TRY(lower_node(b, i));
        forget_reads(b, &b->nodes[i]);
    }
    LS_TRY(keep_results(b));
    return ls__cpu_close(b);
}
