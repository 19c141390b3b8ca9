/* bf16-mixed: which tensors are stored as bf16 and which nodes multiply bf16 numbers.
 *
 * A matrix product (linear, attention, convolution, and their gradients) is a half node: it reads its
 * factors rounded to bf16, parameters too, multiplies them and adds in f32. Biases, and the logarithms of
 * sums that attention keeps, are read as they are. Everything else computes in f32 from what its
 * inputs hold, so that parameters, their gradients, norms, losses, reductions, embeddings and the
 * residual stream stay f32, whatever the number of layers.
 *
 * A tensor is half, stored as bf16, when
 *   1. nobody reads it but as a factor of half nodes: they would round it anyway, so nothing is lost;
 *   2. a half node computes it, and those who read it are products, norms, or the operations of
 *      rule 3: what lies between two products, as under PyTorch's autocast. What is added to the
 *      residual stream, or scored by a loss, is not;
 *   3. an operation that treats each element by itself, or moves it, computes it from half tensors
 *      only.
 * A tensor that is computed again and its first copy are one here: recomputation changes no bits.
 * Parameters' gradients, results and whatever else is read after a run are f32. A reshape is a view
 * and shares the decision with its input. A backend may keep a half tensor wider. What convolutions
 * read and write is stored as f32: pools, norms and sums stand between them; a backend may multiply
 * more of their factors' bits than bf16's. */
#include "graph/construct.h"
#include "graph/ops.h"

static bool is_one_of(const ls_op *op, const ls_op *const *list)
{
    while (*list && *list != op) list++;
    return *list != NULL;
}

/* Those whose inputs and outputs may be half. */
static bool is_product(const ls_op *op)
{
    static const ls_op *const products[] = {
        &ls__op_linear,
        &ls__op_linear_grad_x,
        &ls__op_linear_grad_weight,
        &ls__op_attention,
        &ls__op_attention_grad,
        &ls__op_attention_cached,
        NULL,
    };
    return is_one_of(op, products);
}

static bool is_convolution(const ls_op *op)
{
    static const ls_op *const convolutions[] = { &ls__op_conv2d, &ls__op_conv2d_grad_x,
                                                 &ls__op_conv2d_grad_weight, NULL };
    return is_one_of(op, convolutions);
}

static bool is_elementwise(const ls_op *op)
{
    static const ls_op *const elementwise[] = {
        &ls__op_relu,       &ls__op_relu_grad,
        &ls__op_activation, &ls__op_activation_grad,
        &ls__op_dropout,    &ls__op_scale,
        &ls__op_mul,        &ls__op_copy,
        &ls__op_rotary,     &ls__op_transpose,
        &ls__op_slice,      &ls__op_slice_grad,
        &ls__op_concat,     NULL,
    };
    return is_one_of(op, elementwise);
}

static bool is_norm(const ls_op *op)
{
    static const ls_op *const norms[] = { &ls__op_layer_norm, &ls__op_layer_norm_grad,
                                          &ls__op_rms_norm, &ls__op_rms_norm_grad, NULL };
    return is_one_of(op, norms);
}

bool ls__node_rounds(const ls__node *node, int input)
{
    if (!node->half || node->in[input]->type != LS_DTYPE_F32) return false;
    if (node->op == &ls__op_attention_grad) return input < 3; /* not logsum */
    if (node->op == &ls__op_attention || node->op == &ls__op_attention_cached) return input == 0;
    return input < 2; /* not the bias */
}

/* What is known of the readers of a tensor and of its reshapes, by the id of the tensor that they
 * all show. */
typedef struct uses {
    int reads, rounded; /* rounded: as a factor of a half node */
    bool full;          /* somebody wants f32 */
} uses;

typedef struct pass {
    ls_graph *g;
    int *root;  /* (tensors) */
    uses *uses; /* (tensors) by root */
} pass;

static void want_full(const pass *p, const ls_tensor *x)
{
    if (!x) return;
    p->uses[p->root[x->id]].full = true;
    p->uses[p->root[x->id]].reads++; /* which rounds nothing */
}

static void note_reads(const pass *p, const ls__node *node)
{
    bool product = is_product(node->op);
    bool mixed = product || is_elementwise(node->op) || is_norm(node->op);
    if (node->op == &ls__op_reshape) return; /* its own readers count */
    for (int k = 0; k < node->nin; k++) {
        uses *u = &p->uses[p->root[node->in[k]->id]];
        u->reads++;
        u->rounded += product && ls__node_rounds(node, k);
        u->full |= !mixed;
    }
}

static void find_uses(const pass *p)
{
    ls_graph *g = p->g;
    for (int i = 0; i < g->ntensors; i++) {
        const ls_tensor *first = g->tensors[i]->first;
        bool known = first && first->id < i && g->tensors[first->id] == first;
        p->root[i] = known ? p->root[first->id] : i;
    }
    for (int i = 0; i < g->nnodes; i++) {
        const ls__node *node = &g->nodes[i];
        if (node->op == &ls__op_reshape) p->root[node->out[0]->id] = p->root[node->in[0]->id];
    }
    for (int i = 0; i < g->nnodes; i++) note_reads(p, &g->nodes[i]);
}

static void keep_kept(const pass *p)
{
    ls_graph *g = p->g;
    for (int i = 0; i < g->nresults; i++) {
        for (int k = 0; k < g->results[i].nvalues; k++) want_full(p, g->results[i].values[k]);
        want_full(p, g->results[i].weights);
    }
    for (int i = 0; i < g->nparams; i++) want_full(p, g->params[i].grad);
}

static bool all_half(const ls__node *node)
{
    bool half = false;
    for (int k = 0; k < node->nin; k++) {
        if (node->in[k]->type != LS_DTYPE_F32) continue;
        if (!node->in[k]->half) return false;
        half = true;
    }
    return half;
}

/* The first output of a product; its others are biases' gradients and logarithms of sums. */
static bool is_half(const pass *p, const ls__node *node, int output)
{
    const uses *u = &p->uses[p->root[node->out[output]->id]];
    if (node->out[output]->type != LS_DTYPE_F32) return false;
    if (node->op == &ls__op_reshape) return node->in[0]->half;
    if (u->reads > 0 && u->rounded == u->reads) return true;
    if (output > 0) return false;
    return (is_product(node->op) && !u->full) ||
           (is_elementwise(node->op) && !u->full && all_half(node));
}

void ls__graph_precision(ls_graph *g)
{
    size_t n = (size_t)g->ntensors + 1;
    pass p = { .g = g };
    p.root = ls__graph_alloc(g, n * sizeof *p.root);
    p.uses = ls__graph_alloc(g, n * sizeof *p.uses);
    if (!p.root || !p.uses) return;
    for (int i = 0; i < g->nnodes; i++)
        g->nodes[i].half = is_product(g->nodes[i].op) || is_convolution(g->nodes[i].op);
    find_uses(&p);
    keep_kept(&p);
    for (int i = 0; i < g->nnodes; i++)
        for (int k = 0; k < g->nodes[i].nout; k++)
            g->nodes[i].out[k]->half = is_half(&p, &g->nodes[i], k);
}
