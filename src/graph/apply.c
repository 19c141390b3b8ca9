/* Applying an operation: the checks that every operation shares, the shape rule, the new node.
 *
 * One path for built-in operations and for those of users. What a tensor is (batched,
 * differentiable, with weights) follows from its inputs here, so that no rule has to say it. */
#include "graph/construct.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"

static ls_graph *graph_of(ls_tensor *const *in, int nin)
{
    for (int i = 0; i < nin; i++)
        if (in[i]) return in[i]->graph;
    return NULL;
}

/* op "layer": text; inputs (B,784), fc1.weight (256,100) */
static void fail_with_inputs(ls_graph *g, const ls_op *op, ls_tensor *const *in, int nin,
                             ls_status status, const char *text)
{
    char inputs[768] = "", one[LS__TENSOR_TEXT];
    size_t used = 0;
    for (int i = 0; i < nin && used + LS__TENSOR_TEXT < sizeof inputs; i++)
        used += (size_t)snprintf(inputs + used, sizeof inputs - used, "%s%s", i ? ", " : "",
                                 in[i] ? ls__tensor_text(in[i], one) : "NULL");
    bool layer = g->layer != NULL;
    ls__graph_fail(g, status, "%s%s%.90s%s: %s; inputs %s", op->name, layer ? " \"" : "",
                   layer ? g->layer : "", layer ? "\"" : "", text, inputs);
}

static bool inputs_usable(ls_graph *g, const ls_op *op, ls_tensor *const *in, int nin)
{
    if (g->status != LS_OK) return false;
    if (nin > LS__MAX_INPUTS) {
        ls__graph_fail(g, LS_ERR_ARG, "%s: %d inputs, at most %d are possible", op->name, nin,
                       LS__MAX_INPUTS);
        return false;
    }
    for (int i = 0; i < nin; i++) {
        if (!in[i]) {
            if (!ls__graph_forgives_null(g))
                fail_with_inputs(g, op, in, nin, LS_ERR_ARG, "an input is NULL");
            return false;
        }
        if (in[i]->graph != g) {
            ls__graph_fail(g, LS_ERR_ARG, "%s: its inputs belong to different graphs", op->name);
            return false;
        }
    }
    return true;
}

static bool shape_usable(const ls_array *shape)
{
    if (shape->rank < 0 || shape->rank > LS_MAX_RANK) return false;
    int64_t count = 1;
    for (int i = 0; i < shape->rank; i++)
        if (shape->shape[i] < 1 || __builtin_mul_overflow(count, shape->shape[i], &count))
            return false;
    return count <= INT64_MAX / 16;
}

static bool infer_shapes(ls_graph *g, const ls_op *op, const void *attributes, ls_tensor *const *in,
                         int nin, ls_array *shapes, int nout)
{
    ls_array arrays[LS__MAX_INPUTS];
    for (int i = 0; i < nin; i++) arrays[i] = ls__tensor_array(in[i]);
    ls_op_call call = { .in = arrays, .nin = nin, .attributes = attributes };
    ls_status status = op->shape(&call, shapes);
    if (status != LS_OK) {
        fail_with_inputs(g, op, in, nin, status, ls_error_text());
        return false;
    }
    for (int i = 0; i < nout; i++) {
        if (shape_usable(&shapes[i])) continue;
        fail_with_inputs(g, op, in, nin, LS_ERR_SHAPE,
                         "its shape rule gave an output without elements or with too many");
        return false;
    }
    return true;
}

static void inherit(ls_tensor *x, const ls_op *op, ls_tensor *const *in, int nin)
{
    for (int i = 0; i < nin; i++) x->learned |= in[i]->learned && x->type == LS_DTYPE_F32;
    for (int i = 0; i < nin; i++) {
        const ls_tensor *from = in[i];
        bool rows = from->rank > 0 && x->rank > 0 && from->shape[0] == x->shape[0];
        x->batched |= rows && from->batched;
        x->sample_major |= rows && from->sample_major;
        x->differentiable |=
            from->differentiable && x->type == LS_DTYPE_F32 && (x->learned || op->gradient);
        if (!x->weights && from->weights && ls__tensor_same_shape(x, from))
            x->weights = from->weights;
    }
}

static bool fill_node(ls_graph *g, ls__node *node, const void *attributes, ls_tensor *const *in,
                      const ls_array *shapes)
{
    node->in = ls__graph_alloc(g, (size_t)node->nin * sizeof(ls_tensor *));
    node->out = ls__graph_alloc(g, (size_t)node->nout * sizeof(ls_tensor *));
    node->attributes = node->nbytes ? ls__graph_alloc(g, node->nbytes) : NULL;
    if (!node->in || !node->out || (node->nbytes && !node->attributes)) return false;
    memcpy(node->in, in, (size_t)node->nin * sizeof(ls_tensor *));
    if (node->nbytes) memcpy(node->attributes, attributes, node->nbytes);
    for (int i = 0; i < node->nout; i++) {
        ls_tensor *x = ls__graph_tensor(g, LS__ROLE_VALUE, &shapes[i]);
        if (!x) return false;
        x->node = g->nnodes;
        inherit(x, node->op, in, node->nin);
        node->out[i] = x;
    }
    return true;
}

void ls__apply_multi(const ls_op *op, const void *attributes, size_t nbytes, ls_tensor *const *in,
                     int nin, ls_tensor **out, int nout)
{
    for (int i = 0; i < nout; i++) out[i] = NULL;
    ls_graph *g = graph_of(in, nin);
    if (!g || !inputs_usable(g, op, in, nin)) return;
    ls_array shapes[LS__MAX_OUTPUTS];
    memset(shapes, 0, sizeof shapes);
    if (!infer_shapes(g, op, attributes, in, nin, shapes, nout)) return;
    if (!ls__graph_grow(g, &g->nodes, g->nnodes, &g->node_room, sizeof *g->nodes)) return;
    ls__node node = { .op = op,
                      .nbytes = nbytes,
                      .nin = nin,
                      .nout = nout,
                      .backward = g->backward,
                      .segment = g->backward ? 0 : g->segment };
    if (!fill_node(g, &node, attributes, in, shapes)) return;
    memcpy(out, node.out, (size_t)nout * sizeof *out);
    g->nodes[g->nnodes++] = node;
}

ls_tensor *ls_apply(const ls_op *op, const void *attributes, size_t nbytes, ls_tensor *const *in,
                    int nin)
{
    ls_graph *g = in ? graph_of(in, nin) : NULL;
    if (!g) return NULL;
    if (!op || !op->name || !op->shape)
        return ls__graph_fail(g, LS_ERR_ARG,
                              "ls_apply: an operation needs a name and a shape rule");
    if (nbytes && !attributes)
        return ls__graph_fail(g, LS_ERR_ARG, "%s: %zu bytes of attributes at NULL", op->name,
                              nbytes);
    ls_tensor *out;
    ls__apply_multi(op, attributes, nbytes, in, nin, &out, 1);
    return out;
}

ls_tensor *ls__graph_sibling(const ls_tensor *out, int i)
{
    const ls__node *node = &out->graph->nodes[out->node];
    return i >= 0 && i < node->nout ? node->out[i] : NULL;
}
