/* Programs for the fixed tree.
 *
 * A node at level l covers an aligned run of 2^l leaves. Temporaries are numbered as a stack:
 * evaluating a node needs one per level at which both halves still have something to add, so a few
 * kilobytes in L1 are enough for any number of ranks. */
#include "comm/tree.h"

#include "base/check.h"
#include "base/memory.h"

typedef struct builder {
    ls__tree *tree;
    const int *leaves; /* (nsources) */
} builder;

/* Combines sources [from, to), all in the node of `span` leaves that begins at `first`; the result
 * is an operand. Temporaries from `temp` on are free. */
static int build(builder *b, int first, int span, int from, int to, int temp)
{
    if (to - from == 1) return from;
    int half = span / 2, middle = from;
    while (middle < to && b->leaves[middle] < first + half) middle++;
    if (middle == from) return build(b, first + half, half, from, to, temp);
    if (middle == to) return build(b, first, half, from, to, temp);
    int left = build(b, first, half, from, middle, temp);
    int used = temp + (left < 0);
    int right = build(b, first + half, half, middle, to, used);
    ls__tree *tree = b->tree;
    tree->ops[tree->nops++] = (ls__tree_op) { .dst = temp, .a = left, .b = right };
    if (used + (right < 0) > tree->ntemps) tree->ntemps = used + (right < 0);
    if (temp + 1 > tree->ntemps) tree->ntemps = temp + 1;
    return ~temp;
}

static int enclosing_span(int nleaves)
{
    int span = 1;
    while (span < nleaves) span *= 2;
    return span;
}

void ls__tree_build(ls__tree *tree, const int *leaves, int nsources)
{
    LS_ASSERT(nsources <= tree->capacity);
    tree->nsources = nsources;
    tree->nops = tree->ntemps = 0;
    if (nsources < 2) return;
    builder b = { tree, leaves };
    build(&b, 0, enclosing_span(leaves[nsources - 1] + 1), 0, nsources, 0);
    tree->ops[tree->nops - 1].dst = LS__TREE_OUT;
}

ls_status ls__tree_create(int capacity, ls__tree **out)
{
    *out = ls__alloc(1, sizeof **out);
    if (!*out) return LS_ERR_MEMORY;
    (*out)->capacity = capacity;
    (*out)->ops = ls__alloc((size_t)capacity, sizeof *(*out)->ops);
    if ((*out)->ops) return LS_OK;
    ls__tree_destroy(*out);
    *out = NULL;
    return LS_ERR_MEMORY;
}

void ls__tree_destroy(ls__tree *tree)
{
    if (!tree) return;
    ls__free(tree->ops);
    ls__free(tree);
}

ls_status ls__tree_create_full(int n, ls__tree **out)
{
    LS_TRY(ls__tree_create(n, out));
    int *leaves = ls__alloc((size_t)n, sizeof *leaves);
    if (!leaves) {
        ls__tree_destroy(*out);
        *out = NULL;
        return LS_ERR_MEMORY;
    }
    for (int i = 0; i < n; i++) leaves[i] = i;
    ls__tree_build(*out, leaves, n);
    ls__free(leaves);
    return LS_OK;
}

int ls__tree_node(int a, int b, int *first)
{
    int span = 1;
    while (a / span != b / span) span *= 2;
    *first = a / span * span;
    return span;
}
