/* A step on the device: leaves are merged as they come; behind the last one the owner of a slice gets
 * what the others have of it, sums in the tree, updates, and everybody gets the parameters. How that
 * is done where the tree was not asked for: cuda_resident_parts.c.
 *
 * The host only launches. It waits where the agreement needs a number of the device's: the norm of
 * the sum, when gradients are clipped. */
#include <string.h>

#include "backend/cuda/cuda_resident.h"
#include "backend/cuda/kernel_elementwise.h"
#include "backend/cuda/vendor_collective.h"

/* --- leaves --- */

/* The next leaf that holds samples, from `leaf` on; the end when there is none. */
static int next_present(const ls__resident *r, int leaf)
{
    while (leaf < r->own.end && !r->present[leaf]) leaf++;
    return leaf;
}

/* No leaf is to come: with its own last one, if there is one in hand, this rank has all it will have.
 * What is merged with that one is merged where it lies. */
static void end_leaves(ls__resident *r)
{
    cuda_subtrees *own = &r->own;
    int last = next_present(r, own->next);
    if (last < own->end) own->list[own->n++] = (cuda_subtree) { last, CUDA_IN_LEAF };
    own->next = own->end;
    while (ls__cuda_subtrees_mergeable(own, r->micro_batches)) {
        cuda_subtree *a = &own->list[own->n - 2], *b = a + 1;
        r->merges[r->nmerges++] = (cuda_merge) { b->buffer, a->buffer };
        a->buffer = b->buffer;
        own->n--;
    }
    r->ended = true;
}

void ls__cuda_resident_begin(ls__resident *r, const bool *present)
{
    memcpy(r->present, present, (size_t)r->micro_batches * sizeof *present);
    ls__cuda_subtrees_begin(&r->own, r->micro_batches, r->rank, r->size);
    r->own.any = r->fast;
    r->used = 0;
    r->nmerges = 0;
    r->next_bucket = r->nbuckets;
    r->ended = r->summed = false;
    r->sum = NULL;
    if (next_present(r, r->own.begin) == r->own.end) end_leaves(r);
}

/* Into the older one's buffer: the next leaf will be computed where the newer one may lie. */
static void merge(ls__resident *r)
{
    cuda_subtree *a = &r->own.list[r->own.n - 2], *b = a + 1;
    ls__cuda_launch_accumulate(r->device->stream, r->count, ls__cuda_buffer(r, a->buffer),
                               ls__cuda_buffer(r, b->buffer));
    if (b->buffer != CUDA_IN_LEAF) r->used &= ~(1u << b->buffer);
    r->own.n--;
}

static ls_status move_out(ls__resident *r)
{
    cuda_subtree *s = r->own.n ? &r->own.list[r->own.n - 1] : NULL;
    if (!s || s->buffer != CUDA_IN_LEAF) return LS_OK;
    int b = 0;
    while (r->used >> b & 1) b++;
    LS_ASSERT(b < r->nbuffers);
    LS_CUDA_TRY(cudaMemcpyAsync(r->buffers[b], r->leaf, (size_t)r->count * sizeof *r->leaf,
                                cudaMemcpyDeviceToDevice, r->device->stream),
                "keeping gradients");
    r->used |= 1u << b;
    s->buffer = b;
    return LS_OK;
}

static ls_status leaf_done(ls__resident *r, bool added)
{
    if (r->ended) return LS_OK;
    bool present = r->present[r->own.next];
    if (present && !added) {
        LS_TRY(ls__cuda_resident_before(r));
        LS_CUDA_TRY(
            cudaMemsetAsync(r->leaf, 0, (size_t)r->count * sizeof *r->leaf, r->device->stream),
            "clearing gradients");
    }
    if (present && next_present(r, r->own.next + 1) == r->own.end) {
        end_leaves(r);
        return LS_OK;
    }
    if (present) r->own.list[r->own.n++] = (cuda_subtree) { r->own.next, CUDA_IN_LEAF };
    r->own.next++;
    while (ls__cuda_subtrees_mergeable(&r->own, r->micro_batches)) merge(r);
    LS_TRY(move_out(r));
    LS_CUDA_TRY(cudaGetLastError(), "adding gradients");
    return LS_OK;
}

static ls_status set(ls__resident *r, const float *grads, float factor)
{
    cuda_device *d = r->device;
    LS_TRY(ls__cuda_resident_before(r));
    LS_TRY(ls__cuda_upload(d, r->leaf, grads, (size_t)r->count * sizeof *grads));
    ls__cuda_launch_scale(d->stream, r->count, factor, 0, r->leaf, CUDA_F32, r->leaf, false);
    LS_CUDA_TRY(cudaGetLastError(), "scaling gradients");
    return LS_OK;
}

/* --- the exchange --- */

/* What a bucket's owners get of this rank's subtrees, and this rank of the others'. */
static ls_status exchange_bucket(ls__resident *r, int b, const cuda_subtrees *all,
                                 cuda_transfer *sends, cuda_transfer *receives)
{
    int nsends = 0, nreceives = 0, inbox = 0;
    const cuda_slice *own = &r->slices[r->rank * r->nbuckets + b];
    for (int p = 0; p < r->size; p++) {
        const cuda_slice *theirs = &r->slices[p * r->nbuckets + b];
        if (p == r->rank) continue;
        for (int i = 0; i < r->own.n && theirs->end > theirs->begin; i++)
            sends[nsends++] =
                (cuda_transfer) { p, ls__cuda_buffer(r, r->own.list[i].buffer) + theirs->begin,
                                  (size_t)(theirs->end - theirs->begin) * sizeof(float) };
        for (int i = 0; i < all[p].n; i++, inbox++)
            if (own->end > own->begin)
                receives[nreceives++] =
                    (cuda_transfer) { p, r->inbox[inbox] + r->bucket_packed[b],
                                      (size_t)(own->end - own->begin) * sizeof(float) };
    }
    return ls__vendor_collective_exchange(r->collective, r->stream, "gradients", sends, nsends,
                                          receives, nreceives);
}

static void merge_rest(ls__resident *r, int64_t begin, int64_t end)
{
    for (int i = 0; i < r->nmerges; i++)
        ls__cuda_launch_accumulate(r->stream, end - begin,
                                   ls__cuda_buffer(r, r->merges[i].into) + begin,
                                   ls__cuda_buffer(r, r->merges[i].from) + begin);
}

/* The buckets from `first` on that have not been, the deepest first, behind what the device's stream
 * has done so far. */
static ls_status exchange_gradients(ls__resident *r, const cuda_subtrees *all, int first)
{
    size_t room = (size_t)r->size * CUDA_SOURCES_MAX;
    LS_CUDA_TRY(cudaEventRecord(r->computed, r->device->stream), "recording an event");
    LS_CUDA_TRY(cudaStreamWaitEvent(r->stream, r->computed, 0), "ordering streams");
    if (r->size == 1) {
        merge_rest(r, 0, r->count);
        r->next_bucket = 0;
        return LS_OK;
    }
    if (r->fast) return ls__cuda_parts_reduce(r, first);
    cuda_transfer *list = ls__alloc(2 * room, sizeof *list);
    if (!list) return LS_ERR_MEMORY;
    ls_status status = LS_OK;
    while (r->next_bucket > first && status == LS_OK) {
        int b = --r->next_bucket;
        merge_rest(r, r->bucket_begin[b], r->bucket_begin[b + 1]);
        status = exchange_bucket(r, b, all, list, list + room);
    }
    ls__free(list);
    return status;
}

static cuda_subtrees *all_subtrees(const ls__resident *r)
{
    cuda_subtrees *all = ls__alloc((size_t)r->size, sizeof *all);
    for (int p = 0; all && p < r->size; p++)
        ls__cuda_subtrees_of(&all[p], r->micro_batches, p, r->size, r->present);
    return all;
}

ls_status ls__cuda_resident_ready(ls__resident *r, int bucket)
{
    if (!r->ended && next_present(r, next_present(r, r->own.next) + 1) < r->own.end) return LS_OK;
    if (!r->ended) end_leaves(r);
    if (r->next_bucket <= bucket) return LS_OK;
    cuda_subtrees *all = all_subtrees(r);
    ls_status status = all ? exchange_gradients(r, all, bucket) : LS_ERR_MEMORY;
    ls__free(all);
    return status;
}

/* All ranks' subtrees by leaf, and where their values lie. */
static void list_sources(ls__resident *r, const cuda_subtrees *all)
{
    cuda_tree_source *sources = (cuda_tree_source *)(void *)r->host_program;
    int n = 0, inbox = 0;
    for (int p = 0; p < r->size; p++)
        for (int i = 0; i < all[p].n; i++, n++) {
            r->leaves[n] = all[p].list[i].leaf;
            sources[n] = p == r->rank
                             ? (cuda_tree_source) { ls__cuda_buffer(r, r->own.list[i].buffer), 0 }
                             : (cuda_tree_source) { r->inbox[inbox++], 1 };
        }
    ls__tree_build(r->tree, r->leaves, n);
    cuda_tree_op *ops = (cuda_tree_op *)(void *)(r->host_program + r->operations_at);
    for (int i = 0; i < r->tree->nops; i++)
        ops[i] = (cuda_tree_op) { r->tree->ops[i].dst, r->tree->ops[i].a, r->tree->ops[i].b };
}

static ls_status sum_sources(ls__resident *r)
{
    LS_CUDA_TRY(cudaMemcpyAsync(r->program, r->host_program, r->program_bytes,
                                cudaMemcpyHostToDevice, r->stream),
                "copying a step's sums to it");
    cuda_tree_program program = {
        .sources = (const cuda_tree_source *)(const void *)r->program,
        .ops = (const cuda_tree_op *)(const void *)(r->program + r->operations_at),
        .nsources = r->tree->nsources,
        .nops = r->tree->nops,
    };
    ls__cuda_launch_tree(r->stream, r->owned, r->nowned, &program, r->leaf);
    r->sum = r->leaf;
    LS_CUDA_TRY(cudaGetLastError(), "adding gradients");
    return LS_OK;
}

/* The owned blocks of the sum, once a step. */
static ls_status reduce(ls__resident *r)
{
    if (r->summed) return LS_OK;
    /* A rank without leaves has not waited since: what was pinned for the last step may still travel. */
    if (!r->settled) LS_TRY(ls__cuda_resident_settle(r, r->stream, "updating parameters"));
    cuda_subtrees *all = all_subtrees(r);
    if (!all) return LS_ERR_MEMORY;
    ls_status status = exchange_gradients(r, all, 0);
    if (status == LS_OK && !r->fast) list_sources(r, all);
    if (status == LS_OK && r->fast)
        r->sum = r->inbox[0];
    else if (status == LS_OK && r->size == 1 && r->own.n == 1)
        r->sum = ls__cuda_buffer(r, r->own.list[0].buffer);
    else if (status == LS_OK)
        status = sum_sources(r);
    r->summed = status == LS_OK;
    ls__free(all);
    return status;
}

static ls_status norms(ls__resident *r, double *out)
{
    LS_TRY(reduce(r));
    ls__cuda_launch_norms(r->stream, r->owned, r->nowned, r->sum, r->fast, r->norms);
    LS_CUDA_TRY(cudaGetLastError(), "computing the gradient's norm");
    LS_CUDA_TRY(cudaMemcpyAsync(r->host_norms, r->norms, (size_t)r->nowned * sizeof *r->norms,
                                cudaMemcpyDeviceToHost, r->stream),
                "copying the gradient's norm");
    LS_TRY(ls__cuda_resident_settle(r, r->stream, "computing the gradient's norm"));
    for (int64_t i = 0; i < r->nowned; i++) out[r->owned_numbers[i]] = r->host_norms[i];
    return LS_OK;
}

/* Everybody's owned parameters to everybody. */
static ls_status gather(ls__resident *r)
{
    size_t room = (size_t)r->size;
    cuda_transfer *list = ls__alloc(2 * room, sizeof *list);
    if (!list) return LS_ERR_MEMORY;
    ls_status status = LS_OK;
    for (int b = 0; b < r->nbuckets && status == LS_OK; b++) {
        const cuda_slice *own = &r->slices[r->rank * r->nbuckets + b];
        int nsends = 0, nreceives = 0;
        for (int p = 0; p < r->size; p++) {
            const cuda_slice *theirs = &r->slices[p * r->nbuckets + b];
            if (p == r->rank) continue;
            if (own->end > own->begin)
                list[nsends++] =
                    (cuda_transfer) { p, r->params + own->begin,
                                      (size_t)(own->end - own->begin) * sizeof(float) };
            if (theirs->end > theirs->begin)
                list[room + (size_t)nreceives++] =
                    (cuda_transfer) { p, r->params + theirs->begin,
                                      (size_t)(theirs->end - theirs->begin) * sizeof(float) };
        }
        status = ls__vendor_collective_exchange(r->collective, r->stream, "parameters", list,
                                                nsends, list + room, nreceives);
    }
    ls__free(list);
    return status;
}

static ls_status commit(ls__resident *r, const ls__rule_step *steps)
{
    LS_TRY(reduce(r));
    size_t nbytes = (size_t)r->nsegments * sizeof *steps;
    memcpy(r->host_steps, steps, nbytes);
    LS_CUDA_TRY(cudaMemcpyAsync(r->steps, r->host_steps, nbytes, cudaMemcpyHostToDevice, r->stream),
                "copying a step's numbers to it");
    cuda_update u = { .steps = r->steps,
                      .sum = r->sum,
                      .packed = r->fast,
                      .params = r->params,
                      .states = { r->states[0], r->states[1] },
                      .halves = r->size == 1 || r->fast ? r->halves : NULL };
    ls__cuda_launch_update(r->stream, r->owned, r->nowned, &u);
    LS_CUDA_TRY(cudaGetLastError(), "updating parameters");
    if (r->fast)
        LS_TRY(ls__cuda_parts_gather(r));
    else if (r->size > 1)
        LS_TRY(gather(r));
    if (r->size > 1 && !r->fast && r->halves)
        ls__cuda_launch_convert(r->stream, r->count, r->params, false, r->halves, true);
    LS_CUDA_TRY(cudaGetLastError(), "rounding parameters");
    LS_CUDA_TRY(cudaEventRecord(r->committed, r->stream), "recording an event");
    r->pending = true;
    r->settled = false;
    return LS_OK;
}

/* --- entries --- */

/* What fails on one rank alone would leave the others waiting in their exchange. */
static ls_status leave(ls__resident *r, ls_status status)
{
    if (status != LS_OK && r->collective) {
        if (r->failed == LS_OK) r->failed = status;
        ls__vendor_collective_abort(r->collective, ls_error_text());
    }
    ls__cuda_leave(r->device);
    return status;
}

ls_status ls__cuda_resident_set(ls__resident *r, const float *grads, float factor)
{
    LS_TRY(ls__cuda_enter(r->device));
    return leave(r, set(r, grads, factor));
}

ls_status ls__cuda_resident_leaf_done(ls__resident *r, bool added)
{
    LS_TRY(ls__cuda_enter(r->device));
    return leave(r, leaf_done(r, added));
}

ls_status ls__cuda_resident_norms(ls__resident *r, double *out)
{
    LS_TRY(ls__cuda_enter(r->device));
    return leave(r, norms(r, out));
}

ls_status ls__cuda_resident_commit(ls__resident *r, const ls__rule_step *steps)
{
    LS_TRY(ls__cuda_enter(r->device));
    return leave(r, commit(r, steps));
}

void ls__cuda_resident_drop(ls__resident *r, bool broken)
{
    if (ls__cuda_enter(r->device) != LS_OK) return;
    if (broken && r->collective) {
        if (r->failed == LS_OK) r->failed = LS_ERR_PEER;
        ls__vendor_collective_abort(r->collective, "the run has failed");
    } else if (cudaEventRecord(r->committed, r->stream) == cudaSuccess) {
        r->pending = true; /* what was exchanged is still being read */
        r->settled = false;
    }
    ls__cuda_leave(r->device);
}
