/* Memory of a graph: how long each tensor lives, and where in one arena it lies.
 *
 * Greedy by size: the largest piece first, each at the lowest fitting gap between the pieces that
 * live at the same time and are placed already. It is quadratic in the number of pieces, which is
 * some thousands at most, and is done once per build. */
#include "graph/construct.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "graph/ops.h"

enum { ALIGNMENT = 64 };

/* --- placing --- */

static int by_size(const void *a, const void *b)
{
    const ls__lifetime *x = *(ls__lifetime *const *)a, *y = *(ls__lifetime *const *)b;
    if (x->nbytes != y->nbytes) return x->nbytes > y->nbytes ? -1 : 1;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x < y ? -1 : x > y; /* of one array: the order in it */
}

static bool together(const ls__lifetime *a, const ls__lifetime *b)
{
    return a->begin <= b->end && b->begin <= a->end;
}

static int64_t end_of(const ls__lifetime *piece)
{
    return piece->offset + (int64_t)((piece->nbytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
}

/* placed: n pieces by increasing offset. The smallest gap that fits, else behind all that live at
 * the same time. */
static int64_t find_offset(const ls__lifetime *piece, ls__lifetime *const *placed, int n)
{
    int64_t top = 0, best = -1, best_gap = INT64_MAX;
    for (int i = 0; i < n; i++) {
        if (!together(piece, placed[i])) continue;
        int64_t gap = placed[i]->offset - top;
        if (gap >= (int64_t)piece->nbytes && gap < best_gap) {
            best = top;
            best_gap = gap;
        }
        if (end_of(placed[i]) > top) top = end_of(placed[i]);
    }
    return best >= 0 ? best : top;
}

static void insert(ls__lifetime *piece, ls__lifetime **placed, int n)
{
    int i = n;
    while (i > 0 && placed[i - 1]->offset > piece->offset) {
        placed[i] = placed[i - 1];
        i--;
    }
    placed[i] = piece;
}

size_t ls__memory_plan(ls__lifetime *pieces, int n)
{
    ls__lifetime **order = ls__alloc((size_t)n * 2 + 1, sizeof(ls__lifetime *));
    ls__lifetime **placed = order + n;
    int count = 0, nplaced = 0;
    int64_t total = 0;
    if (!order) return SIZE_MAX;
    for (int i = 0; i < n; i++) {
        pieces[i].offset = -1;
        if (pieces[i].nbytes) order[count++] = &pieces[i];
    }
    qsort(order, (size_t)count, sizeof *order, by_size);
    for (int i = 0; i < count; i++) {
        order[i]->offset = find_offset(order[i], placed, nplaced);
        insert(order[i], placed, nplaced++);
        if (end_of(order[i]) > total) total = end_of(order[i]);
    }
    ls__free(order);
    return (size_t)total;
}

/* --- lifetimes --- */

typedef struct liveness {
    const ls_graph *g;
    int *root;
    ls__lifetime *pieces; /* end is kept up to date for roots */
} liveness;

static int find_root(const int *root, int id)
{
    while (root[id] != id) id = root[id];
    return id;
}

static size_t bytes_of(const ls_tensor *x)
{
    return (size_t)ls__tensor_count(x) * ls_dtype_size(x->type);
}

static void join(liveness *l, int id, int root)
{
    l->root[id] = root;
    if (l->pieces[id].end > l->pieces[root].end) l->pieces[root].end = l->pieces[id].end;
}

static void keep(liveness *l, const ls_tensor *x)
{
    if (x) l->pieces[find_root(l->root, x->id)].end = l->g->nnodes;
}

static bool is_gradient(const ls_graph *g, const ls_tensor *x)
{
    for (int i = 0; i < g->nparams; i++)
        if (g->params[i].grad == x) return true;
    return false;
}

/* Views first, so that every reader of a view counts as a reader of what it shows. */
static void find_last_reads(liveness *l)
{
    const ls_graph *g = l->g;
    for (int i = 0; i < g->nnodes; i++) {
        const ls__node *node = &g->nodes[i];
        for (int k = 0; k < node->nin; k++) l->pieces[find_root(l->root, node->in[k]->id)].end = i;
        for (int k = 0; k < node->nout; k++)
            l->pieces[node->out[k]->id].begin = l->pieces[node->out[k]->id].end = i;
        if (node->op == &ls__op_reshape)
            join(l, node->out[0]->id, find_root(l->root, node->in[0]->id));
    }
    for (int i = 0; i < g->nresults; i++) {
        for (int k = 0; k < g->results[i].nvalues; k++) keep(l, g->results[i].values[k]);
        keep(l, g->results[i].weights);
    }
    for (int i = 0; i < g->nparams; i++) keep(l, g->params[i].grad);
}

static bool may_alias(const liveness *l, int i, int input)
{
    const ls__node *node = &l->g->nodes[i];
    int root = find_root(l->root, node->in[input]->id);
    const ls_tensor *x = l->g->tensors[root], *out = node->out[0];
    if (x->role != LS__ROLE_VALUE || l->pieces[root].end != i || bytes_of(x) != bytes_of(out))
        return false;
    for (int k = 0; k < node->nin; k++)
        if (k != input && find_root(l->root, node->in[k]->id) == root) return false;
    return !is_gradient(l->g, x) && !is_gradient(l->g, out);
}

static void find_aliases(liveness *l, ls__alias_fn *alias, void *user)
{
    for (int i = 0; i < l->g->nnodes; i++) {
        const ls__node *node = &l->g->nodes[i];
        if (node->op == &ls__op_reshape) continue;
        for (int k = 0; k < node->nin; k++) {
            if (!may_alias(l, i, k) || !alias(user, node, k)) continue;
            join(l, node->out[0]->id, find_root(l->root, node->in[k]->id));
            break;
        }
    }
}

void ls__graph_liveness(const ls_graph *g, ls__alias_fn *alias, void *user, int *root,
                        ls__lifetime *pieces)
{
    liveness l = { g, root, pieces };
    for (int i = 0; i < g->ntensors; i++) {
        root[i] = i;
        pieces[i] = (ls__lifetime) { .begin = -1, .end = -1, .offset = -1 };
    }
    find_last_reads(&l);
    if (alias) find_aliases(&l, alias, user);
    for (int i = 0; i < g->ntensors; i++) root[i] = find_root(root, i);
    for (int i = 0; i < g->ntensors; i++) {
        const ls_tensor *x = g->tensors[i];
        pieces[i].nbytes = root[i] == i && x->role == LS__ROLE_VALUE ? bytes_of(x) : 0;
    }
}
