/* The tables of who is where. Built once per rank when all have come together; read by whoever
 * composes a communicator of a node's and of what connects them. Expected: up to some thousand
 * ranks. */
#include "world/world_nodes.h"

#include "base/check.h"
#include "base/memory.h"

static ls_status alloc(int size, int count, ls__nodes **out)
{
    *out = NULL;
    ls__nodes *n = ls__alloc(1, sizeof *n);
    if (!n) return LS_ERR_MEMORY;
    n->size = size;
    n->count = count;
    /* One block: three tables of ranks, then two of nodes. */
    n->node_of = ls__alloc(3 * (size_t)size + 2 * (size_t)count, sizeof(int));
    if (!n->node_of) {
        ls__free(n);
        return LS_ERR_MEMORY;
    }
    n->local_of = n->node_of + size;
    n->ranks = n->local_of + size;
    n->local_sizes = n->ranks + size;
    n->first = n->local_sizes + count;
    *out = n;
    return LS_OK;
}

void ls__nodes_destroy(ls__nodes *nodes)
{
    if (!nodes) return;
    ls__free(nodes->node_of);
    ls__free(nodes);
}

static ls_status fill(ls__nodes *n)
{
    for (int m = 0, sum = 0; m < n->count; m++) {
        if (n->local_sizes[m] == 0)
            return ls_fail(LS_ERR_CONFIG, "node %d of %d has no rank", m, n->count);
        n->first[m] = sum;
        sum += n->local_sizes[m];
    }
    for (int i = 0; i < n->size; i++) n->ranks[i] = -1;
    for (int r = 0; r < n->size; r++) {
        int m = n->node_of[r], local = n->local_of[r];
        if (local < 0 || local >= n->local_sizes[m])
            return ls_fail(LS_ERR_CONFIG, "rank %d is number %d of the %d ranks of node %d", r,
                           local, n->local_sizes[m], m);
        int *at = &n->ranks[n->first[m] + local];
        if (*at >= 0)
            return ls_fail(LS_ERR_CONFIG, "ranks %d and %d are both number %d on node %d", *at, r,
                           local, m);
        *at = r;
    }
    return LS_OK;
}

ls_status ls__nodes_create_from(const int *node_of, const int *local_of, int size, ls__nodes **out)
{
    *out = NULL;
    int count = 1;
    for (int r = 0; r < size; r++) {
        if (node_of[r] < 0 || node_of[r] >= size)
            return ls_fail(LS_ERR_CONFIG, "rank %d is on node %d, and there are %d ranks", r,
                           node_of[r], size);
        if (node_of[r] >= count) count = node_of[r] + 1;
    }
    ls__nodes *n;
    LS_TRY(alloc(size, count, &n));
    for (int r = 0; r < size; r++) {
        n->node_of[r] = node_of[r];
        n->local_of[r] = local_of[r];
        n->local_sizes[node_of[r]]++;
    }
    ls_status status = fill(n);
    if (status != LS_OK) {
        ls__nodes_destroy(n);
        return status;
    }
    *out = n;
    return LS_OK;
}

ls_status ls__nodes_create(const int *local_sizes, int count, ls__nodes **out)
{
    *out = NULL;
    int size = 0;
    for (int m = 0; m < count; m++) size += local_sizes[m];
    ls__nodes *n;
    LS_TRY(alloc(size, count, &n));
    for (int m = 0, r = 0; m < count; m++) {
        for (int i = 0; i < local_sizes[m]; i++, r++) {
            n->node_of[r] = m;
            n->local_of[r] = i;
        }
        n->local_sizes[m] = local_sizes[m];
    }
    ls_status status = fill(n);
    if (status != LS_OK) {
        ls__nodes_destroy(n);
        return status;
    }
    *out = n;
    return LS_OK;
}
