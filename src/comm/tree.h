/* The fixed binary tree of every sum, as a program over the parts that are there.
 *
 * Leaves 0 .. n-1 are combined as in a tournament: 0 with 1, 2 with 3, ...; then the pairs, and so
 * on; a node whose sibling is absent moves up unchanged. A *source* is a finished subtree, named by
 * any one of its leaves. Which sources there are decides how much is still to be added, never in
 * which order: the bits depend on the leaves alone. */
#ifndef LS_COMM_TREE_H
#define LS_COMM_TREE_H

#include <lockstep/base.h>

/* dst = a op b. Operands >= 0 are sources; ~t is temporary t; dst is a temporary, or LS__TREE_OUT
 * for the last. */
enum { LS__TREE_OUT = -1 };
typedef struct ls__tree_op {
    int dst, a, b;
} ls__tree_op;

typedef struct ls__tree {
    int nsources, nops, ntemps; /* nops = nsources - 1, or 0 */
    int capacity;               /* sources there is room for */
    ls__tree_op *ops;
} ls__tree;

/* Room for at most `capacity` sources. */
ls_status ls__tree_create(int capacity, ls__tree **out);
void ls__tree_destroy(ls__tree *tree);
/* The program for sources at these leaves, increasing. */
void ls__tree_build(ls__tree *tree, const int *leaves, int nsources);
/* One source per leaf of n. */
ls_status ls__tree_create_full(int n, ls__tree **out);

/* The aligned run of leaves [*first, *first + span) of the smallest node over leaves a <= b. */
int ls__tree_node(int a, int b, int *first);

#endif
