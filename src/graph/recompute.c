/* Segments of the forward pass that the backward pass computes again instead of keeping.
 *
 * The copies are nodes like any other, with the same operations and attributes: the masks of
 * dropout are functions of name and step, so the bits are the same, and neither backends nor the
 * memory plan know of this. What no gradient rule reads is dropped as dead code: the last operation
 * of a block mostly, whose output stays. */
#include "graph/construct.h"

void ls_recompute_begin(ls_graph *g)
{
    if (!g || g->status != LS_OK || g->missing_input) return;
    if (g->segment) {
        ls__graph_fail(g, LS_ERR_ARG,
                       "ls_recompute_begin: the one before it has no ls_recompute_end yet; they "
                       "cannot be nested");
        return;
    }
    if (!ls__graph_grow(g, &g->kept, g->nkept, &g->kept_room, sizeof *g->kept)) return;
    g->kept[g->nkept++] = NULL;
    g->segment = g->nkept;
}

static bool any_node(const ls_graph *g, int segment)
{
    return g->nnodes > 0 && g->nodes[g->nnodes - 1].segment == segment;
}

ls_tensor *ls_recompute_end(ls_tensor *x)
{
    ls_graph *g = x ? x->graph : NULL;
    if (!g || g->status != LS_OK || g->missing_input) return x;
    int segment = g->segment;
    if (!segment)
        return ls__graph_fail(g, LS_ERR_ARG, "ls_recompute_end without ls_recompute_begin");
    g->segment = 0;
    bool mine = x->node >= 0 && g->nodes[x->node].segment == segment;
    if (!mine && any_node(g, segment)) {
        char text[LS__TENSOR_TEXT];
        return ls__graph_fail(
            g, LS_ERR_ARG,
            "ls_recompute_end: %s was not computed since ls_recompute_begin; give "
            "it what the block hands on",
            ls__tensor_text(x, text));
    }
    g->kept[segment - 1] = x;
    return x;
}

/* What layers have set beside what follows from the inputs. */
static void take_flags(ls_tensor *copy, const ls_tensor *x)
{
    copy->batched = x->batched;
    copy->sample_major = x->sample_major;
    copy->learned = x->learned;
    copy->differentiable = x->differentiable;
    copy->first = x;
}

static void clone_node(ls_graph *g, const ls__node *node, const ls_tensor *kept, ls_tensor **clones)
{
    ls_tensor *in[LS__MAX_INPUTS], *out[LS__MAX_OUTPUTS];
    for (int i = 0; i < node->nin; i++) {
        ls_tensor *clone = clones[node->in[i]->id];
        in[i] = clone ? clone : node->in[i];
    }
    ls__apply_multi(node->op, node->attributes, node->nbytes, in, node->nin, out, node->nout);
    if (g->status != LS_OK) return;
    for (int i = 0; i < node->nout; i++) {
        take_flags(out[i], node->out[i]);
        if (node->out[i] != kept) clones[node->out[i]->id] = out[i];
    }
}

void ls__graph_recompute(ls_graph *g, int segment, ls_tensor **clones)
{
    int nnodes = g->nnodes; /* the copies are appended and have no segment */
    for (int i = 0; i < nnodes && g->status == LS_OK; i++) {
        ls__node node = g->nodes[i]; /* a copy: the list grows */
        if (node.segment == segment) clone_node(g, &node, g->kept[segment - 1], clones);
    }
}
