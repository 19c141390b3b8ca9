/* Where the tree over all leaves falls apart into nodes' own subtrees.
 *
 * The same walk as the tree's program takes, stopped as soon as everything below is of one node:
 * what such a subtree gives is one operand for everybody else, whatever is added inside it. */
#include "comm/net_internal.h"

typedef struct walk {
    const int *leaves, *nodes; /* (nsources) */
    ls__pure *out;
    int n;
} walk;

static bool of_one_node(const walk *w, int from, int to)
{
    for (int i = from + 1; i < to; i++)
        if (w->nodes[i] != w->nodes[from]) return false;
    return true;
}

/* Sources [from, to), all below the tree's node over [first, first + span). */
static void visit(walk *w, int first, int span, int from, int to)
{
    if (from == to) return;
    if (of_one_node(w, from, to)) {
        w->out[w->n++] = (ls__pure) { w->nodes[from], from, to };
        return;
    }
    int half = span / 2, middle = from;
    while (middle < to && w->leaves[middle] < first + half) middle++;
    visit(w, first, half, from, middle);
    visit(w, first + half, half, middle, to);
}

int ls__tree_pure(const int *leaves, const int *nodes, int nsources, ls__pure *out)
{
    walk w = { leaves, nodes, out, 0 };
    int span = 1;
    while (nsources > 0 && span <= leaves[nsources - 1]) span *= 2;
    visit(&w, 0, span, 0, nsources);
    return w.n;
}
