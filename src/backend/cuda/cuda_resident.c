/* Training state on the device: made and given back, and what waits for it.
 *
 * All memory is taken here, before the first step. Every rank has all parameters, since every rank
 * computes with them; the optimizer's state and what is summed are divided. */
#include "backend/cuda/cuda_resident.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "backend/cuda/vendor_collective.h"

enum { MARGIN = 16 }; /* elements: what lies side by side begins at multiples of it */

static int64_t round_up(int64_t n)
{
    return (n + MARGIN - 1) / MARGIN * MARGIN;
}

/* --- who owns what --- */

/* Buckets are numbered from 0 on without gaps. */
static int bucket_of(const ls__resident_options *o, int segment)
{
    return o->segments[segment].bucket - o->segments[0].bucket;
}

static ls_status find_slices(ls__resident *r, const ls__resident_options *o)
{
    r->nbuckets = bucket_of(o, o->nsegments - 1) + 1;
    size_t n = (size_t)r->nbuckets;
    r->slices = ls__alloc(n * (size_t)r->size, sizeof *r->slices);
    r->bucket_packed = ls__alloc(n + 1, sizeof *r->bucket_packed);
    r->range_packed = ls__alloc((size_t)r->nranges + 1, sizeof *r->range_packed);
    r->bucket_begin = ls__alloc(n + 1, sizeof *r->bucket_begin);
    if (!r->slices || !r->bucket_packed || !r->range_packed || !r->bucket_begin)
        return LS_ERR_MEMORY;
    for (int i = o->nsegments - 1; i >= 0; i--)
        r->bucket_begin[bucket_of(o, i)] = o->segments[i].offset;
    r->bucket_begin[0] = 0;
    r->bucket_begin[n] = o->count;
    cuda_slice *own = r->slices + (size_t)r->rank * n;
    for (int i = 0; i < r->nranges; i++) {
        cuda_slice *s = &own[bucket_of(o, r->ranges[i].segment)];
        if (s->end == 0) s->begin = r->ranges[i].offset;
        s->end = r->ranges[i].offset + r->ranges[i].count;
    }
    return LS_OK;
}

/* Everybody's slices are known: what a rank owns lies at the same places on all of them. */
static void lay_out(ls__resident *r, const ls__resident_options *o)
{
    r->packed = MARGIN; /* 0 says that a source is not packed */
    for (int b = 0; b < r->nbuckets; b++) {
        int64_t most = 0;
        for (int p = 0; p < r->size; p++) {
            const cuda_slice *s = &r->slices[p * r->nbuckets + b];
            if (s->end - s->begin > most) most = s->end - s->begin;
        }
        r->bucket_packed[b] = r->packed;
        r->packed += round_up(most);
    }
    r->bucket_packed[r->nbuckets] = r->packed;
    const cuda_slice *own = r->slices + (size_t)r->rank * (size_t)r->nbuckets;
    for (int i = 0; i < r->nranges; i++) {
        int b = bucket_of(o, r->ranges[i].segment);
        r->range_packed[i] = r->bucket_packed[b] + r->ranges[i].offset - own[b].begin;
    }
    if (r->fast) ls__cuda_parts_plan(r);
}

static int64_t blocks_of(int64_t count)
{
    return (count + LS__BLOCK - 1) / LS__BLOCK;
}

static void fill_owned(ls__resident *r, const ls__resident_options *o, cuda_owned *list)
{
    int64_t first = 0, n = 0; /* block of the whole space, of the owned ones */
    int segment = 0;
    for (int i = 0; i < r->nranges; i++) {
        const ls__range *range = &r->ranges[i];
        for (; segment < range->segment; segment++) first += blocks_of(o->segments[segment].count);
        int64_t number = first + (range->offset - o->segments[segment].offset) / LS__BLOCK;
        for (int64_t at = 0; at < range->count; at += LS__BLOCK, n++, number++) {
            int64_t left = range->count - at;
            list[n] = (cuda_owned) { .at = range->offset + at,
                                     .packed = r->range_packed[i] + at,
                                     .count = (int32_t)(left < LS__BLOCK ? left : LS__BLOCK),
                                     .segment = segment };
            r->owned_numbers[n] = number;
        }
    }
}

/* --- memory --- */

static ls_status take(ls__resident *r, int64_t elements, size_t each, const char *what, void *out)
{
    void *data;
    LS_TRY(ls__cuda_allocate(r->device, (size_t)elements * each, what, &data));
    memcpy(out, &data, sizeof data);
    return LS_OK;
}

static ls_status take_floats(ls__resident *r, float **list, int n, int64_t count, const char *what)
{
    for (int i = 0; i < n; i++) LS_TRY(take(r, count, sizeof(float), what, &list[i]));
    return LS_OK;
}

/* Of all other ranks together. */
static int most_sources(const ls__resident *r)
{
    int n = 0;
    for (int p = 0; p < r->size; p++)
        if (p != r->rank) n += ls__cuda_subtrees_most(r->micro_batches, p, r->size) + 1;
    return n;
}

/* Into what travels by the library's own collectives. */
static ls_status take_for_travel(ls__resident *r, int64_t count, const char *what, float **out)
{
    void *data;
    size_t nbytes = (size_t)count * sizeof(float);
    cudaError_t error = ls__vendor_collective_allocate(nbytes, &data);
    if (error != cudaSuccess) return ls__cuda_fail_memory(r->device, error, nbytes, what);
    *out = data;
    return LS_OK;
}

static ls_status take_parts(ls__resident *r)
{
    size_t nslices = (size_t)r->size * (size_t)r->nbuckets;
    LS_TRY(take_for_travel(r, r->packed, "gradients' sums", &r->inbox[0]));
    LS_TRY(take_for_travel(r, r->staging_count, "what is exchanged", &r->staging));
    LS_TRY(take(r, (int64_t)nslices, sizeof *r->parts, "tables of slices", &r->parts));
    return ls__cuda_upload(r->device, r->parts, r->slices, nslices * sizeof *r->parts);
}

static ls_status take_space(ls__resident *r)
{
    r->nbuffers = ls__cuda_subtrees_most(r->micro_batches, r->rank, r->size);
    if (r->fast && r->nbuffers > 1) r->nbuffers = 1;
    r->ninbox = r->fast ? 1 : most_sources(r);
    r->buffers = ls__alloc((size_t)r->nbuffers + 1, sizeof *r->buffers);
    r->inbox = ls__alloc((size_t)r->ninbox + 1, sizeof *r->inbox);
    if (!r->buffers || !r->inbox) return LS_ERR_MEMORY;
    LS_TRY(take(r, r->count, sizeof(float), "parameters", &r->params));
    if (r->halves_kept)
        LS_TRY(take(r, r->count, sizeof(uint16_t), "parameters in bf16", &r->halves));
    LS_TRY(take(r, r->count, sizeof(float), "gradients", &r->leaf));
    LS_TRY(take_floats(r, r->buffers, r->nbuffers, r->count, "gradients of micro-batches"));
    LS_TRY(take_floats(r, r->states, r->nstates, r->packed, "the optimizer's state"));
    return r->fast ? take_parts(r)
                   : take_floats(r, r->inbox, r->ninbox, r->packed, "other ranks' gradients");
}

static ls_status take_pinned(size_t nbytes, void *out)
{
    void *data;
    LS_CUDA_TRY(cudaHostAlloc(&data, nbytes ? nbytes : 1, cudaHostAllocDefault),
                "pinning memory for a step's numbers");
    memcpy(out, &data, sizeof data);
    return LS_OK;
}

static ls_status take_tables(ls__resident *r, const ls__resident_options *o)
{
    size_t sources = (size_t)r->ninbox + CUDA_SOURCES_MAX;
    r->operations_at = sources * sizeof(cuda_tree_source);
    r->program_bytes = r->operations_at + sources * sizeof(cuda_tree_op);
    for (int i = 0; i < r->nranges; i++) r->nowned += blocks_of(r->ranges[i].count);
    r->owned_numbers = ls__alloc((size_t)r->nowned + 1, sizeof *r->owned_numbers);
    r->leaves = ls__alloc(sources, sizeof *r->leaves);
    if (!r->owned_numbers || !r->leaves) return LS_ERR_MEMORY;
    LS_TRY(ls__tree_create((int)sources, &r->tree));
    const char *what = "tables of the optimizer";
    LS_TRY(take(r, r->nowned, sizeof *r->owned, what, &r->owned));
    LS_TRY(take(r, r->nowned, sizeof *r->norms, what, &r->norms));
    LS_TRY(take(r, r->nsegments, sizeof *r->steps, what, &r->steps));
    LS_TRY(take(r, (int64_t)r->program_bytes, 1, what, &r->program));
    LS_TRY(take_pinned((size_t)r->nsegments * sizeof *r->host_steps, &r->host_steps));
    LS_TRY(take_pinned((size_t)r->nowned * sizeof *r->host_norms, &r->host_norms));
    LS_TRY(take_pinned(r->program_bytes, &r->host_program));
    cuda_owned *list = ls__alloc((size_t)r->nowned + 1, sizeof *list);
    if (!list) return LS_ERR_MEMORY;
    fill_owned(r, o, list);
    ls_status status = ls__cuda_upload(r->device, r->owned, list, (size_t)r->nowned * sizeof *list);
    ls__free(list);
    return status;
}

/* Gaps between tensors are read by merges: nothing is to be made of what lay there before. */
static ls_status clear(ls__resident *r)
{
    size_t flat = (size_t)r->count * sizeof(float), own = (size_t)r->packed * sizeof(float);
    cudaStream_t stream = r->device->stream;
    LS_CUDA_TRY(cudaMemsetAsync(r->leaf, 0, flat, stream), "clearing gradients");
    for (int i = 0; i < r->nbuffers; i++)
        LS_CUDA_TRY(cudaMemsetAsync(r->buffers[i], 0, flat, stream), "clearing gradients");
    for (int i = 0; i < r->ninbox; i++)
        LS_CUDA_TRY(cudaMemsetAsync(r->inbox[i], 0, own, stream), "clearing gradients");
    for (int i = 0; i < r->nstates; i++)
        LS_CUDA_TRY(cudaMemsetAsync(r->states[i], 0, own, stream), "clearing states");
    return LS_OK;
}

static ls_status make_streams(ls__resident *r)
{
    LS_CUDA_TRY(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking), "making a stream");
    LS_CUDA_TRY(cudaEventCreateWithFlags(&r->computed, cudaEventDisableTiming), "making an event");
    LS_CUDA_TRY(cudaEventCreateWithFlags(&r->committed, cudaEventDisableTiming), "making an event");
    return LS_OK;
}

/* --- begin and end --- */

static void free_device(ls__resident *r)
{
    void *const single[] = { r->params, r->leaf,  r->halves, r->states[0], r->states[1],
                             r->owned,  r->norms, r->steps,  r->program,   r->parts };
    for (size_t i = 0; i < sizeof single / sizeof single[0]; i++)
        if (single[i]) cudaFree(single[i]);
    for (int i = 0; r->buffers && i < r->nbuffers; i++)
        if (r->buffers[i]) cudaFree(r->buffers[i]);
    for (int i = 0; r->inbox && i < r->ninbox; i++)
        if (r->fast)
            ls__vendor_collective_free(r->inbox[i]);
        else if (r->inbox[i])
            cudaFree(r->inbox[i]);
    ls__vendor_collective_free(r->staging);
    void *const pinned[] = { r->host_steps, r->host_norms, r->host_program };
    for (size_t i = 0; i < sizeof pinned / sizeof pinned[0]; i++)
        if (pinned[i]) cudaFreeHost(pinned[i]);
    if (r->computed) cudaEventDestroy(r->computed);
    if (r->committed) cudaEventDestroy(r->committed);
    if (r->stream) cudaStreamDestroy(r->stream);
}

static void free_resident(ls__resident *r)
{
    free_device(r);
    ls__tree_destroy(r->tree);
    ls__free(r->leaves);
    ls__free(r->ranges);
    ls__free(r->range_packed);
    ls__free(r->slices);
    ls__free(r->bucket_packed);
    ls__free(r->bucket_begin);
    ls__free(r->owned_numbers);
    ls__free(r->buffers);
    ls__free(r->inbox);
    ls__free(r);
}

static ls_status describe(ls__resident *r, const ls__resident_options *o)
{
    r->ranges = ls__alloc((size_t)o->nranges + 1, sizeof *r->ranges);
    if (!r->ranges) return LS_ERR_MEMORY;
    memcpy(r->ranges, o->ranges, (size_t)o->nranges * sizeof *r->ranges);
    if (o->nstates > CUDA_STATES_MAX || o->micro_batches > CUDA_LEAVES_MAX)
        return ls_fail(LS_ERR_ARG, "%d states, %d micro-batches", o->nstates, o->micro_batches);
    for (int i = 0; i < o->nsegments; i++) /* kernels read four neighbours at once */
        if (o->segments[i].offset % 4 != 0)
            return ls_fail(LS_ERR_ARG, "segment %d begins at element %lld, no multiple of 4", i,
                           (long long)o->segments[i].offset);
    return find_slices(r, o);
}

static ls_status build(ls__resident *r, const ls__resident_options *o)
{
    lay_out(r, o);
    LS_TRY(make_streams(r));
    LS_TRY(take_space(r));
    LS_TRY(take_tables(r, o));
    return clear(r);
}

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
                                        .root = o->root };
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
    if (status == LS_OK) status = describe(r, o);
    if (r->size == 1) return status == LS_OK ? build(r, o) : status;
    LS_TRY(share(r, status));
    LS_TRY(ls_comm_all_gather(r->comm, r->slices + (size_t)r->rank * (size_t)r->nbuckets, r->slices,
                              2 * r->nbuckets, LS_DTYPE_I64));
    LS_TRY(share(r, build(r, o)));
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
    free_resident(r);
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
    free_resident(r);
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

static int64_t device_bytes(const ls__resident *r)
{
    int64_t flat = r->count * (int64_t)sizeof(float), own = r->packed * (int64_t)sizeof(float);
    int64_t staging = r->staging_count * (int64_t)sizeof(float);
    return flat * (2 + r->nbuffers) + (r->halves ? flat / 2 : 0) + own * (r->nstates + r->ninbox) +
           staging;
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
    .nbytes = device_bytes,
};
