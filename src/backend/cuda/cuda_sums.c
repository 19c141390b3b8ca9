/* Gradients of a table that is used twice: a language model's embedding that is its head as well.
 *
 * Autodiff adds the two: the head's product makes one, the tokens' rows another, as large as the
 * vocabulary. The second is added to where the first lies instead, which is where the sum belongs;
 * so one table of memory goes, and the pass that adds. Per element the order is that of the nodes:
 * the product first, then the tokens in theirs. */
#include "backend/cuda/cuda_executable.h"

/* How many nodes and results read a tensor; reader: the last such node. */
static int readers(const ls__executable *e, const ls_tensor *x, int *reader)
{
    const ls__node *nodes;
    const ls__graph_result *results;
    int n = ls__graph_nodes(e->graph, &nodes), count = 0;
    *reader = -1;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < nodes[i].nin; k++) {
            if (nodes[i].in[k] != x) continue;
            *reader = i;
            count++;
        }
    n = ls__graph_results(e->graph, &results);
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < results[i].nvalues; k++) count += results[i].values[k] == x;
        count += results[i].weights == x;
    }
    for (int i = 0; i < e->nparams; i++) count += e->params[i].grad == x;
    return count;
}

bool ls__cuda_is_absorbed(const ls__executable *e, int node)
{
    for (int i = 0; i < e->nsums; i++)
        if (e->sums[i].sum == node) return true;
    return false;
}

bool ls__cuda_adds(const ls__executable *e, int node)
{
    for (int i = 0; i < e->nsums; i++)
        if (e->sums[i].node == node) return true;
    return false;
}

/* Whether what is there of x may be added to: nobody else reads it, and it is a whole table. */
static bool can_be_added_to(const ls__executable *e, const ls__node *nodes, const ls_tensor *x)
{
    int reader;
    if (x->node < 0 || x->half || readers(e, x, &reader) != 1) return false;
    const ls_op *op = nodes[x->node].op;
    return (op == &ls__op_linear_grad_weight && nodes[x->node].out[0] == x) ||
           op == &ls__op_embedding_grad || (op == &ls__op_add && ls__cuda_is_absorbed(e, x->node));
}

/* The sum that an embedding's gradient is part of, whose other part is there before it; -1. */
static int sum_behind(const ls__executable *e, const ls__node *nodes, int node)
{
    int sum;
    const ls_tensor *x = nodes[node].out[0];
    if (x->half || readers(e, x, &sum) != 1 || sum < 0) return -1;
    const ls_tensor *out = nodes[sum].out[0], *other = nodes[sum].in[0];
    bool fits = nodes[sum].op == &ls__op_add && nodes[sum].in[1] == x && !out->half &&
                ls__cuda_count(other) == ls__cuda_count(out) &&
                ls__cuda_count(x) == ls__cuda_count(out);
    return fits && other->node < node && can_be_added_to(e, nodes, other) ? sum : -1;
}

ls_status ls__cuda_find_sums(ls__executable *e)
{
    const ls__node *nodes;
    int n = ls__graph_nodes(e->graph, &nodes);
    e->sums = ls__alloc((size_t)n + 1, sizeof *e->sums);
    if (!e->sums) return LS_ERR_MEMORY;
    for (int i = 0; i < n; i++) {
        if (nodes[i].op != &ls__op_embedding_grad) continue;
        int sum = sum_behind(e, nodes, i);
        if (sum >= 0) e->sums[e->nsums++] = (cuda_sum) { i, sum };
    }
    return LS_OK;
}

static void join(ls__executable *e, int root, int into)
{
    ls__lifetime *from = &e->pieces[root], *to = &e->pieces[into];
    if (root == into) return;
    for (int i = 0; i < e->ntensors; i++)
        if (e->root[i] == root) e->root[i] = into;
    if (from->begin < to->begin) to->begin = from->begin;
    if (from->end > to->end) to->end = from->end;
    from->nbytes = 0;
}

void ls__cuda_join_sums(ls__executable *e)
{
    const ls__node *nodes;
    ls__graph_nodes(e->graph, &nodes);
    for (int i = e->nsums - 1; i >= 0; i--) {
        const ls__node *sum = &nodes[e->sums[i].sum];
        int into = e->root[sum->out[0]->id];
        for (int k = 0; k < 2; k++) join(e, e->root[sum->in[k]->id], into);
    }
}
