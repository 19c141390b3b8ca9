/* Reverse-mode differentiation: walks the forward nodes backwards and lets each operation's
 * gradient rule append the nodes of its own backward pass.
 *
 * The order is fixed by the graph alone: a tensor's contributions arrive in reverse node order,
 * then input order, and are added as ((first + second) + third). So tied parameters need no rule of
 * their own, and the bits of a gradient do not depend on anything but the step function.
 *
 * What is to be computed again (ls_recompute_begin) is, when the first gradient of such a segment is
 * needed: its rules then see the copies. So nobody reads the originals any more, and the memory plan
 * lets them go after the forward pass. */
#include "graph/construct.h"

#include "base/memory.h"
#include "graph/ops.h"

static ls_tensor *sum(ls_tensor *a, ls_tensor *b)
{
    return ls_apply(&ls__op_add, NULL, 0, (ls_tensor *[]) { a, b }, 2);
}

static void check_contribution(ls_graph *g, const ls__node *node, int i, const ls_tensor *grad)
{
    if (grad->graph == g && grad->type == LS_DTYPE_F32 && ls__tensor_same_shape(grad, node->in[i]))
        return;
    char first[LS__TENSOR_TEXT], second[LS__TENSOR_TEXT];
    ls__graph_fail(g, LS_ERR_SHAPE, "%s: its gradient for input %d is %s, but the input is %s",
                   node->op->name, i, ls__tensor_text(grad, first),
                   ls__tensor_text(node->in[i], second));
}

typedef struct differentiation {
    ls_tensor **grads;  /* by tensor of the forward pass; NULL = none yet */
    ls_tensor **clones; /* alike: computed again; NULL = not */
    int recomputed;     /* the last segment that was; the next ones have smaller numbers */
} differentiation;

static ls_tensor *again(const differentiation *d, ls_tensor *x)
{
    return d->clones[x->id] ? d->clones[x->id] : x;
}

/* Calls a node's gradient rule and adds what it gives to the gradients of its inputs. */
static void differentiate_node(ls_graph *g, const ls__node *node, differentiation *d)
{
    ls_tensor **given = ls__graph_alloc(g, (size_t)node->nin * sizeof(ls_tensor *));
    if (!given) return;
    if (!node->op->gradient) {
        ls__graph_fail(g, LS_ERR_ARG,
                       "%s has no gradient, but the loss depends on parameters through it",
                       node->op->name);
        return;
    }
    if (node->segment && node->segment != d->recomputed) {
        d->recomputed = node->segment;
        ls__graph_recompute(g, node->segment, d->clones);
    }
    ls_tensor *in[LS__MAX_INPUTS];
    for (int i = 0; i < node->nin; i++) in[i] = again(d, node->in[i]);
    node->op->gradient(g, in, again(d, node->out[0]), d->grads[node->out[0]->id], node->attributes,
                       given);
    for (int i = 0; i < node->nin && g->status == LS_OK; i++) {
        if (!given[i] || !node->in[i]->differentiable) continue;
        check_contribution(g, node, i, given[i]);
        if (g->status != LS_OK) return;
        ls_tensor **slot = &d->grads[node->in[i]->id];
        *slot = *slot ? sum(*slot, given[i]) : given[i];
    }
}

static bool belongs_to_another(const ls_graph *g, int param, const ls_tensor *grad)
{
    for (int i = 0; i < g->nparams; i++)
        if (i != param && g->params[i].grad == grad) return true;
    return false;
}

/* A gradient that a kernel can write straight to its place: computed by a node, no view, of this
 * parameter alone. */
static ls_tensor *own_gradient(ls_graph *g, int param, ls_tensor *grad)
{
    bool computed = grad->role == LS__ROLE_VALUE && g->nodes[grad->node].op != &ls__op_reshape;
    if (computed && !belongs_to_another(g, param, grad)) return grad;
    return ls_apply(&ls__op_copy, NULL, 0, &grad, 1);
}

static void set_param_gradients(ls_graph *g, ls_tensor *const *grads)
{
    for (int i = 0; i < g->nparams && g->status == LS_OK; i++) {
        ls_tensor *grad = g->params[i].role == LS__ROLE_PARAM ? grads[g->params[i].tensor->id]
                                                              : g->params[i].grad;
        if (grad) g->params[i].grad = own_gradient(g, i, grad);
    }
}

static void add_input_gradients(ls_graph *g, ls_tensor *const *grads, int ntensors)
{
    for (int i = 0; i < ntensors && g->status == LS_OK; i++) {
        const ls_tensor *x = g->tensors[i];
        if (x->role != LS__ROLE_INPUT || !grads[i]) continue;
        if (!ls__graph_grow(g, &g->results, g->nresults, &g->result_room, sizeof *g->results))
            return;
        g->results[g->nresults++] =
            (ls__graph_result) { .kind = LS__RESULT_OUTPUT,
                                 .name =
                                     ls_name(g, "gradient of %s", g->options.fields[x->slot].name),
                                 .values = { grads[i] },
                                 .nvalues = 1 };
    }
}

void ls__graph_differentiate(ls_graph *g)
{
    if (!g->losses->learned && !g->options.input_gradients) {
        ls__graph_fail(g, LS_ERR_ARG, "ls_minimize: the losses depend on no parameter");
        return;
    }
    int nnodes = g->nnodes, ntensors = g->ntensors;
    size_t nbytes = (size_t)ntensors * sizeof(ls_tensor *);
    differentiation d = { .grads = ls__graph_alloc(g, nbytes),
                          .clones = ls__graph_alloc(g, nbytes) };
    if (!d.grads || !d.clones) return;
    g->backward = true;
    d.grads[g->losses->id] =
        ls_apply(&ls__op_loss_grad, NULL, 0, (ls_tensor *[]) { g->losses, g->loss_weights },
                 g->loss_weights ? 2 : 1);
    for (int i = nnodes - 1; i >= 0 && g->status == LS_OK; i--) {
        ls__node node = g->nodes[i]; /* a copy: the rule appends nodes */
        if (d.grads[node.out[0]->id] && node.out[0]->differentiable)
            differentiate_node(g, &node, &d);
    }
    set_param_gradients(g, d.grads);
    if (g->options.input_gradients) add_input_gradients(g, d.grads, ntensors);
    g->backward = false;
}
