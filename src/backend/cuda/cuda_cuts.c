/* Where a run's steps are cut: behind those with which a bucket of gradients is complete, so that the
 * bucket travels while the next ones are computed. Buckets are exchanged from the deepest on, in one
 * order on every rank; one that is complete early waits for its turn. */
#include "backend/cuda/cuda_executable.h"
#include "backend/cuda/cuda_resident.h"

/* The step behind which the gradient lies where it belongs; 0 = none writes it. */
static int completed(const ls__executable *e, const ls_tensor *grad)
{
    int root = e->root[grad->id];
    for (int i = e->nsteps - 1; i >= 0; i--)
        for (int k = 0; k < e->steps[i].node->nout; k++)
            if (e->steps[i].node->out[k] && e->root[e->steps[i].node->out[k]->id] == root)
                return i + 1;
    return 0;
}

static int bucket_at(const ls__resident *r, int64_t offset)
{
    int b = r->nbuckets - 1;
    while (b > 0 && r->bucket_begin[b] > offset) b--;
    return b;
}

/* Each bucket's step, no earlier than that of the deeper ones. */
static void find_ends(const ls__executable *e, const ls__resident *r, int *ends)
{
    for (int b = 0; b < r->nbuckets; b++) ends[b] = 0;
    for (int i = 0; i < e->nparams; i++) {
        int end = e->params[i].grad ? completed(e, e->params[i].grad) : 0;
        int b = bucket_at(r, e->offsets[i]);
        if (end > ends[b]) ends[b] = end;
    }
    for (int b = r->nbuckets - 2; b >= 0; b--)
        if (ends[b] < ends[b + 1]) ends[b] = ends[b + 1];
}

ls_status ls__cuda_cut_steps(ls__executable *e, const ls__run_context *context)
{
    const ls__resident *r = context->resident;
    bool trains = ls__graph_options_of(e->graph)->stage == LS_STAGE_TRAIN;
    int nbuckets = r && r->size > 1 && trains ? r->nbuckets : 0;
    int *ends = ls__alloc((size_t)nbuckets + 1, sizeof *ends);
    ls__free(e->cuts);
    e->ncuts = 0;
    e->cuts = ls__alloc((size_t)nbuckets + 1, sizeof *e->cuts);
    if (!ends || !e->cuts) {
        ls__free(ends);
        return LS_ERR_MEMORY;
    }
    if (nbuckets) find_ends(e, r, ends);
    for (int b = nbuckets - 1; b >= 0; b--) {
        if (b > 0 && ends[b - 1] == ends[b]) continue; /* together with the next */
        e->cuts[e->ncuts++] = (cuda_cut) { .end = ends[b], .bucket = b };
    }
    if (e->ncuts == 0 || e->cuts[e->ncuts - 1].end < e->nsteps)
        e->cuts[e->ncuts++] = (cuda_cut) { .end = e->nsteps, .bucket = -1 };
    ls__free(ends);
    return LS_OK;
}
