/* Building a graph: runs the step function, differentiates, drops what nothing needs.
 *
 * Node order is the order of the step function, and the backward pass follows it in reverse: it is
 * the schedule, the same in every process. A graph is built once per stage and micro-batch shape.
 */
#include "graph/construct.h"

#include <string.h>

#include "base/check.h"
#include "base/memory.h"

static ls_status copy_options(ls_graph *g, const ls__graph_options *options)
{
    g->options = *options;
    ls_field *fields = ls__graph_alloc(g, (size_t)options->nfields * sizeof *fields);
    if (!fields) return g->status;
    for (int i = 0; i < options->nfields; i++) {
        fields[i] = options->fields[i];
        fields[i].name = ls__graph_strdup(g, options->fields[i].name);
        if (!fields[i].name) return g->status;
    }
    g->options.fields = fields;
    return LS_OK;
}

/* --- dead code --- */

static void mark(bool *needed, const ls_tensor *x)
{
    if (x) needed[x->id] = true;
}

static bool any_needed(const bool *needed, const ls__node *node)
{
    for (int i = 0; i < node->nout; i++)
        if (needed[node->out[i]->id]) return true;
    return false;
}

static void mark_needed(const ls_graph *g, bool *needed)
{
    for (int i = 0; i < g->nresults; i++) {
        for (int k = 0; k < g->results[i].nvalues; k++) mark(needed, g->results[i].values[k]);
        mark(needed, g->results[i].weights);
    }
    for (int i = 0; i < g->nparams; i++) mark(needed, g->params[i].grad);
    for (int i = g->nnodes - 1; i >= 0; i--) {
        const ls__node *node = &g->nodes[i];
        if (!any_needed(needed, node)) continue;
        for (int k = 0; k < node->nin; k++) mark(needed, node->in[k]);
        for (int k = 0; k < node->nout; k++) mark(needed, node->out[k]);
    }
}

static void drop_dead(ls_graph *g)
{
    bool *needed = ls__graph_alloc(g, (size_t)g->ntensors * sizeof *needed);
    if (!needed) return;
    mark_needed(g, needed);
    int nnodes = 0, ntensors = 0;
    for (int i = 0; i < g->nnodes; i++) {
        if (!any_needed(needed, &g->nodes[i])) continue;
        g->nodes[nnodes] = g->nodes[i];
        for (int k = 0; k < g->nodes[nnodes].nout; k++) g->nodes[nnodes].out[k]->node = nnodes;
        nnodes++;
    }
    for (int i = 0; i < g->ntensors; i++) {
        ls_tensor *x = g->tensors[i];
        if (x->weights && !needed[x->weights->id]) x->weights = NULL;
    }
    for (int i = 0; i < g->ntensors; i++) {
        ls_tensor *x = g->tensors[i];
        if (x->role == LS__ROLE_VALUE && !needed[i]) continue;
        x->id = ntensors;
        g->tensors[ntensors++] = x;
    }
    g->nnodes = nnodes;
    g->ntensors = ntensors;
}

/* --- depth: parameters of one layer share it, later layers have larger ones --- */

static bool visit_params(ls_graph *g, const ls__node *node, int depth)
{
    bool found = false;
    for (int i = 0; i < g->nparams; i++) {
        ls__graph_param *p = &g->params[i];
        if (p->depth >= 0) continue;
        bool used = false;
        for (int k = 0; k < node->nin; k++) used |= node->in[k] == p->tensor;
        for (int k = 0; k < node->nout && p->role == LS__ROLE_STATISTIC; k++)
            used |= node->out[k] == p->grad;
        if (!used) continue;
        p->depth = depth;
        found = true;
    }
    return found;
}

static void set_depths(ls_graph *g)
{
    int depth = 0;
    for (int i = 0; i < g->nparams; i++) g->params[i].depth = -1;
    for (int i = 0; i < g->nnodes; i++)
        if (!g->nodes[i].backward && visit_params(g, &g->nodes[i], depth)) depth++;
    for (int i = 0; i < g->nparams; i++)
        if (g->params[i].depth < 0) g->params[i].depth = depth; /* not used: behind the others */
}

/* --- the build --- */

static void check_purpose(ls_graph *g)
{
    static const char *const missing[] = {
        [LS_STAGE_TRAIN] = "ls_minimize: there is nothing to train",
        [LS_STAGE_EVALUATE] = "ls_minimize, ls_report or ls_report_metric: nothing to evaluate",
        [LS_STAGE_PREDICT] = "ls_output: there is nothing to predict",
    };
    ls_stage stage = g->options.stage;
    bool empty = stage == LS_STAGE_TRAIN ? g->losses == NULL : g->nresults == 0;
    if (empty) ls__graph_fail(g, LS_ERR_ARG, "the step function calls no %s", missing[stage]);
}

static void construct(ls_graph *g, ls_step_fn *step, void *user)
{
    step(g, user);
    if (g->segment && !ls__graph_forgives_null(g))
        ls__graph_fail(g, LS_ERR_ARG, "ls_recompute_begin without ls_recompute_end");
    if (g->status == LS_OK) check_purpose(g);
    if (g->status == LS_OK && g->options.stage == LS_STAGE_TRAIN) ls__graph_differentiate(g);
    if (g->status == LS_OK) drop_dead(g);
    if (g->status == LS_OK) set_depths(g);
    if (g->status == LS_OK && g->options.precision == LS_PRECISION_BF16_MIXED)
        ls__graph_precision(g);
}

ls_status ls__graph_build(ls_step_fn *step, void *user, const ls__graph_options *options,
                          ls_graph **out)
{
    *out = NULL;
    if (!step) return ls_fail(LS_ERR_ARG, "the step function is NULL");
    if (options->batch < 1)
        return ls_fail(LS_ERR_ARG, "a micro-batch of %lld samples", (long long)options->batch);
    ls_graph *g = ls__alloc(1, sizeof *g);
    if (!g) return LS_ERR_MEMORY;
    g->group = 1;
    if (copy_options(g, options) == LS_OK) construct(g, step, user);
    if (g->status != LS_OK) {
        ls_status status = ls_fail(g->status, "%s", g->failure);
        ls__graph_destroy(g);
        return status;
    }
    *out = g;
    return LS_OK;
}

/* --- what it costs --- */

double ls__node_flops(const ls__node *node)
{
    ls_array in[LS__MAX_INPUTS], out[LS__MAX_OUTPUTS];
    for (int i = 0; i < node->nin; i++) in[i] = ls__tensor_array(node->in[i]);
    for (int i = 0; i < node->nout; i++) out[i] = ls__tensor_array(node->out[i]);
    ls_op_call call = { .in = in, .nin = node->nin, .out = out, .attributes = node->attributes };
    return node->op->flops ? node->op->flops(&call) : (double)ls_array_count(out);
}

double ls__graph_flops(const ls_graph *g)
{
    double total = 0;
    for (int i = 0; i < g->nnodes; i++) total += ls__node_flops(&g->nodes[i]);
    return total;
}
