/* Which subtrees a rank is left with. On a device neighbours are merged as soon as both are there: its
 * memory is dearer than its time. The tree, and so every bit, is the exchange's. */
#include "backend/cuda/cuda_resident.h"

void ls__cuda_subtrees_begin(cuda_subtrees *s, int micro_batches, int rank, int size)
{
    *s = (cuda_subtrees) { .begin = (int)((int64_t)micro_batches * rank / size),
                           .end = (int)((int64_t)micro_batches * (rank + 1) / size) };
    s->next = s->begin;
}

bool ls__cuda_subtrees_mergeable(const cuda_subtrees *s, int micro_batches)
{
    if (s->n < 2 || s->any) return s->n >= 2;
    int first, span = ls__tree_node(s->list[s->n - 2].leaf, s->list[s->n - 1].leaf, &first);
    int end = first + span < micro_batches ? first + span : micro_batches;
    if (first < s->begin || end > s->next) return false;
    return s->n < 3 || s->list[s->n - 3].leaf < first;
}

void ls__cuda_subtrees_of(cuda_subtrees *s, int micro_batches, int rank, int size,
                          const bool *present)
{
    ls__cuda_subtrees_begin(s, micro_batches, rank, size);
    while (s->next < s->end) {
        if (present[s->next]) s->list[s->n++] = (cuda_subtree) { .leaf = s->next };
        s->next++;
        while (ls__cuda_subtrees_mergeable(s, micro_batches)) s->n--;
    }
}

int ls__cuda_subtrees_most(int micro_batches, int rank, int size)
{
    cuda_subtrees s;
    int most = 0;
    ls__cuda_subtrees_begin(&s, micro_batches, rank, size);
    while (s.next < s.end) {
        if (s.n > most) most = s.n;
        s.list[s.n++] = (cuda_subtree) { .leaf = s.next++ };
        while (ls__cuda_subtrees_mergeable(&s, micro_batches)) s.n--;
    }
    return most;
}
