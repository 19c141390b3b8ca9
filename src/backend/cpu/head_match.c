/* Finds the heads of a graph: linear -> cross_entropy, and when training
 *     cross_entropy_grad -> linear_grad_weight, linear_grad_x
 * with reshapes in between, where nobody else reads the scores or their gradient.
 *
 * When training, losses are computed together with the gradients, where cross_entropy_grad stands;
 * only the weights (1 or 0 by label) are needed before, by loss_grad. So a graph that computes with
 * the losses before its backward pass keeps its head in separate steps. */
#include "backend/cpu/cpu_loss.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/head.h"

enum { FEWEST_CLASSES = 512 };

static bool reads(const ls__node *node, const ls_tensor *x)
{
    for (int i = 0; i < node->nin; i++)
        if (node->in[i] == x) return true;
    return false;
}

/* The first node from `from` on that reads x and is such an operation; -1. */
static int reader(const cpu_builder *b, int from, const ls_tensor *x, const ls_op *op)
{
    for (int i = from; i < b->nnodes; i++)
        if (b->nodes[i].op == op && reads(&b->nodes[i], x)) return i;
    return -1;
}

/* x as its readers see it: through reshapes that are its only readers. */
static const ls_tensor *seen(const cpu_builder *b, const ls_tensor *x)
{
    while (b->readers[x->id] == 1 && b->reader[x->id] >= 0 &&
           b->nodes[b->reader[x->id]].op == &ls__op_reshape)
        x = b->nodes[b->reader[x->id]].out[0];
    return x;
}

static void absorb_reshapes(cpu_builder *b, const ls_tensor *x)
{
    const ls_tensor *last = seen(b, x);
    for (; x != last; x = b->nodes[b->reader[x->id]].out[0]) b->absorbed[b->reader[x->id]] = true;
}

static bool losses_needed_early(const cpu_builder *b, const cpu_head *h)
{
    const ls__node *entropy = &b->nodes[h->entropy];
    for (int i = h->entropy + 1; i < h->entropy_grad; i++) {
        const ls__node *node = &b->nodes[i];
        if (node->op != &ls__op_loss_grad && reads(node, entropy->out[0])) return true;
        if (node->op == &ls__op_loss_grad && node->nin == 2 && node->in[1] == entropy->out[0])
            return true;
        if (reads(node, entropy->out[2])) return true;
    }
    return false;
}

static bool match_backward(const cpu_builder *b, const ls_tensor *scores, cpu_head *h)
{
    const ls__node *linear = &b->nodes[h->linear];
    h->entropy_grad = reader(b, h->entropy + 1, scores, &ls__op_cross_entropy_grad);
    if (h->entropy_grad < 0 || losses_needed_early(b, h)) return false;
    const ls__node *node = &b->nodes[h->entropy_grad];
    if (node->in[3] != b->nodes[h->entropy].out[2] || node->in[2] != b->nodes[h->entropy].in[1])
        return false;
    const ls_tensor *grad = seen(b, node->out[0]);
    h->grad_weight = reader(b, h->entropy_grad, grad, &ls__op_linear_grad_weight);
    h->grad_x = reader(b, h->entropy_grad, grad, &ls__op_linear_grad_x);
    if (h->grad_weight >= 0 && b->nodes[h->grad_weight].in[1] != linear->in[0]) return false;
    if (h->grad_x >= 0 && b->nodes[h->grad_x].in[1] != linear->in[1]) return false;
    return b->readers[grad->id] == (h->grad_weight >= 0) + (h->grad_x >= 0);
}

static bool match(const cpu_builder *b, int i, cpu_head *h)
{
    const ls__node *linear = &b->nodes[i];
    if (linear->op != &ls__op_linear || linear->in[1]->role != LS__ROLE_PARAM ||
        linear->in[1]->shape[0] < FEWEST_CLASSES || !ls__cpu_large_weight(b, linear->in[1]))
        return false;
    const ls_tensor *scores = seen(b, linear->out[0]);
    if (scores->half) return false;
    *h = (cpu_head) { .linear = i,
                      .entropy = reader(b, i, scores, &ls__op_cross_entropy),
                      .entropy_grad = -1,
                      .grad_weight = -1,
                      .grad_x = -1 };
    if (h->entropy < 0 || scores->shape[scores->rank - 1] != linear->out[0]->shape[1]) return false;
    if (b->readers[scores->id] == 1) return true;
    return b->readers[scores->id] == 2 && match_backward(b, scores, h);
}

static void absorb(cpu_builder *b, const cpu_head *h)
{
    const ls__node *linear = &b->nodes[h->linear];
    b->absorbed[h->linear] = true;
    absorb_reshapes(b, linear->out[0]);
    if (h->entropy_grad >= 0) absorb_reshapes(b, b->nodes[h->entropy_grad].out[0]);
    if (h->grad_weight >= 0) b->absorbed[h->grad_weight] = true;
    if (h->grad_x >= 0) b->absorbed[h->grad_x] = true;
    b->reads[b->root[linear->in[0]->id]]++; /* until the head is lowered */
}

ls_status ls__cpu_find_heads(cpu_builder *b)
{
    cpu_head h;
    b->heads = ls__alloc((size_t)b->nnodes + 1, sizeof *b->heads);
    if (!b->heads) return LS_ERR_MEMORY;
    for (int i = 0; i < b->nnodes; i++) {
        if (b->absorbed[i] || b->partner[i] >= 0 || !match(b, i, &h)) continue;
        absorb(b, &h);
        b->heads[b->nheads++] = h;
    }
    return LS_OK;
}

ls_status ls__cpu_lower_head(cpu_builder *b, int i, bool *done)
{
    *done = false;
    for (int k = 0; k < b->nheads; k++) {
        const cpu_head *h = &b->heads[k];
        if (i != h->entropy && i != h->entropy_grad) continue;
        *done = true;
        const ls__node *linear = &b->nodes[h->linear], *entropy = &b->nodes[h->entropy];
        if (i == h->entropy) {
            int buffer;
            bool tiled = ls__cpu_tiled(b, entropy->in[1]);
            LS_TRY(ls__cpu_target_weights(b, entropy->in[1], linear->out[0]->shape[1],
                                          entropy->out[1]));
            LS_TRY(ls__cpu_write(b, entropy->out[0], CPU_PLAIN, tiled, &buffer));
            LS_TRY(ls__cpu_write(b, entropy->out[2], CPU_PLAIN, tiled, &buffer));
            if (h->entropy_grad >= 0) return LS_OK;
        }
        LS_TRY(ls__cpu_head(b, h));
        b->reads[b->root[linear->in[0]->id]]--;
    }
    return LS_OK;
}
