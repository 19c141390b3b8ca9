/* Training state on the device: made and given back by all ranks together, and what waits for it.
 *
 * Ranks that exchange are made by all of them or by none: each step of it ends with what the others
 * say. */
#include "backend/cuda/cuda_resident.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "backend/cuda/vendor_collective.h"

/* --- begin and end --- */

/* Bytes that this rank sends in one call: a bucket's gradients to their owners, or what it owns
 * of the bucket to everybody; a staging area full. */
static size_t most_sent(const ls__resident *r)
{
    int64_t most = 0;
    if (r->fast) return (size_t)r->staging_count * sizeof(float);
    int sources = ls__cuda_subtrees_most(r->micro_batches, r->rank, r->size) + 1;
    for (int b = 0; b < r->nbuckets; b++) {
        int64_t gradients = 0;
        for (int p = 0; p < r->size; p++) {
            const cuda_slice *s = &r->slices[p * r->nbuckets + b];
            gradients += (s->end - s->begin) * sources;
        }
        const cuda_slice *own = &r->slices[r->rank * r->nbuckets + b];
        int64_t params = (own->end - own->begin) * (r->size - 1);
        if (gradients > most) most = gradients;
        if (params > most) most = params;
    }
    return (size_t)most * sizeof(float);
}

/* Everybody learns of a rank that could not take its memory, in its words. */
static ls_status share(ls__resident *r, ls_status status)
{
    struct word {
        int64_t status;
        char text[248];
    } own = { .status = status }, *all = ls__alloc((size_t)r->size, sizeof *all);
    if (status != LS_OK) snprintf(own.text, sizeof own.text, "%s", ls_error_text());
    if (!all) return status != LS_OK ? status : LS_ERR_MEMORY;
    ls_status shared = ls_comm_all_gather(r->comm, &own, all, (int64_t)sizeof own, LS_DTYPE_U8);
    for (int p = 0; p < r->size && shared == LS_OK && status == LS_OK; p++)
        if (all[p].status != LS_OK)
            status = ls_fail((ls_status)all[p].status, "rank %d: %s", p, all[p].text);
    ls__free(all);
    return shared == LS_OK ? status : shared;
}

static ls_status register_floats(ls__resident *r, float *const *list, int n, int64_t count)
{
    for (int i = 0; i < n; i++)
        LS_TRY(
            ls__vendor_collective_register(r->collective, list[i], (size_t)count * sizeof(float)));
    return LS_OK;
}

/* All that travels. */
static ls_status register_memory(ls__resident *r)
{
    float *const flat[] = { r->params, r->leaf };
    LS_TRY(register_floats(r, r->inbox, r->ninbox, r->packed));
    if (r->fast) return register_floats(r, &r->staging, 1, r->staging_count);
    LS_TRY(register_floats(r, flat, 2, r->count));
    return register_floats(r, r->buffers, r->nbuffers, r->count);
}

static ls_status connect(ls__resident *r, const ls__resident_options *o)
{
    int64_t most = (int64_t)most_sent(r); /* of any rank */
    LS_TRY(ls_comm_all_reduce(r->comm, &most, &most, 1, LS_DTYPE_I64, LS_REDUCE_MAX));
    cuda_collective_options options = { .comm = r->comm,
                                        .device = r->device->index,
                                        .most_bytes = (size_t)most,
                                        .timeout_ms = o->timeout_ms,
                                        .root = o->root,
                                        .store = o->store };
    LS_TRY(ls__vendor_collective_create(&options, &r->collective));
    ls_status status = share(r, register_memory(r));
    if (status == LS_OK) return LS_OK;
    ls__vendor_collective_destroy(r->collective);
    r->collective = NULL;
    return status;
}

/* Every step of it is everybody's, or nobody's. */
static ls_status make(ls__resident *r, ls_status status, const ls__resident_options *o)
{
    if (status == LS_OK) status = ls__cuda_resident_describe(r, o);
    if (r->size == 1) return status == LS_OK ? ls__cuda_resident_take(r, o) : status;
    LS_TRY(share(r, status));
    LS_TRY(ls_comm_all_gather(r->comm, r->slices + (size_t)r->rank * (size_t)r->nbuckets, r->slices,
                              2 * r->nbuckets, LS_DTYPE_I64));
    LS_TRY(share(r, ls__cuda_resident_take(r, o)));
    return connect(r, o);
}

static ls_status create(cuda_device *d, const ls__resident_options *o, ls__resident **out)
{
    ls__resident *r = ls__alloc(1, sizeof *r);
    if (!r) return LS_ERR_MEMORY;
    *r = (ls__resident) { .device = d,
                          .comm = o->comm,
                          .rank = ls_comm_rank(o->comm),
                          .size = ls_comm_size(o->comm),
                          .micro_batches = o->micro_batches,
                          .count = o->count,
                          .nsegments = o->nsegments,
                          .nranges = o->nranges,
                          .nstates = o->nstates,
                          .halves_kept = o->halves,
                          .fast = !o->deterministic && ls_comm_size(o->comm) > 1,
                          .timeout_ms = o->timeout_ms,
                          .settled = true };
    ls_status status = ls__cuda_take(d);
    bool taken = status == LS_OK;
    status = make(r, status, o);
    if (status == LS_OK) {
        *out = r;
        return LS_OK;
    }
    cudaStreamSynchronize(d->stream); /* tables may be on their way */
    ls__cuda_resident_free(r);
    if (taken) ls__cuda_release(d);
    return status;
}

static ls_status create_entry(const ls__resident_options *options, ls__resident **out)
{
    cuda_device *d = ls__cuda_device();
    *out = NULL;
    LS_TRY(ls__cuda_enter(d));
    ls_status status = create(d, options, out);
    ls__cuda_leave(d);
    return status;
}

static void destroy_entry(ls__resident *r)
{
    cuda_device *d = r->device;
    ls__cuda_enter_last(d);
    if (r->collective && r->failed != LS_OK)
        ls__vendor_collective_abort(r->collective, "the run has failed");
    cudaStreamSynchronize(d->stream);
    cudaStreamSynchronize(r->stream);
    ls__vendor_collective_destroy(r->collective);
    ls__cuda_resident_free(r);
    ls__cuda_release(d);
    ls__cuda_leave(d);
}

static bool available(ls_comm *comm)
{
    cuda_device *d = ls__cuda_device();
    if (!d->keeps) return false;
    if (ls_comm_size(comm) == 1) return true;
    if (ls__cuda_enter(d) != LS_OK) return false;
    bool there = ls__vendor_collective_available(comm, d->index);
    ls__cuda_leave(d);
    return there;
}

/* --- order, and waiting --- */

ls_status ls__cuda_resident_before(ls__resident *r)
{
    if (r->pending)
        LS_CUDA_TRY(cudaStreamWaitEvent(r->device->stream, r->committed, 0),
                    "waiting for an update");
    r->pending = false;
    return LS_OK;
}

/* The others would wait for this rank. */
static ls_status give_up(ls__resident *r, ls_status status)
{
    if (r->collective) ls__vendor_collective_abort(r->collective, ls_error_text());
    if (r->collective) r->failed = status;
    return status;
}

/* An exchange may wait for a rank that never comes: then the stream is not waited for blindly. */
ls_status ls__cuda_resident_settle(ls__resident *r, cudaStream_t stream, const char *what)
{
    const struct timespec pause = { 0, 20000 };
    if (r->failed != LS_OK) return ls_fail(r->failed, "the device's exchange has failed before");
    for (int tries = 0; r->collective; tries++) {
        cudaError_t error = cudaStreamQuery(stream);
        if (error == cudaSuccess) break;
        if (error != cudaErrorNotReady) return give_up(r, ls__cuda_fail(error, what));
        cudaGetLastError();
        if (tries < 1000) continue;
        if (tries % 16 == 0 && (r->failed = ls__vendor_collective_check(r->collective)) != LS_OK)
            return r->failed;
        nanosleep(&pause, NULL);
    }
    cudaError_t error = cudaStreamSynchronize(stream);
    if (error != cudaSuccess) return give_up(r, ls__cuda_fail(error, what));
    if (r->collective && (r->failed = ls__vendor_collective_check(r->collective)) != LS_OK)
        return r->failed;
    r->settled |= stream == r->stream || !r->pending;
    return LS_OK;
}

static ls_status wait_entry(ls__resident *r)
{
    LS_TRY(ls__cuda_enter(r->device));
    ls_status status = ls__cuda_resident_settle(r, r->stream, "updating parameters");
    ls__cuda_leave(r->device);
    return status;
}

const ls__resident_table ls__cuda_resident_table = {
    .available = available,
    .create = create_entry,
    .destroy = destroy_entry,
    .put = ls__cuda_resident_put,
    .get = ls__cuda_resident_get,
    .begin = ls__cuda_resident_begin,
    .set = ls__cuda_resident_set,
    .leaf_done = ls__cuda_resident_leaf_done,
    .norms = ls__cuda_resident_norms,
    .commit = ls__cuda_resident_commit,
    .drop = ls__cuda_resident_drop,
    .wait = wait_entry,
    .nbytes = ls__cuda_resident_bytes,
};
