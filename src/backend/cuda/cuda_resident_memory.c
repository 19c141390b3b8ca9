/* Memory of the training state: on the device, pinned, and on the host.
 *
 * All of it is taken here, before the first step. Every rank has all parameters, since every rank
 * computes with them; the optimizer's state and what is summed are divided. */
#include <string.h>

#include "backend/cuda/cuda_resident.h"
#include "backend/cuda/vendor_collective.h"

static ls_status take(ls__resident *r, int64_t elements, size_t each, const char *what, void *out)
{
    void *data;
    LS_TRY(ls__cuda_allocate(r->device, (size_t)elements * each, what, &data));
    memcpy(out, &data, sizeof data);
    r->nbytes += elements * (int64_t)each;
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
    ls__cuda_measure(r->device);
    if (error != cudaSuccess) return ls__cuda_fail_memory(r->device, error, nbytes, what);
    *out = data;
    r->nbytes += (int64_t)nbytes;
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
    ls__cuda_resident_list_owned(r, o, list);
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

ls_status ls__cuda_resident_take(ls__resident *r, const ls__resident_options *o)
{
    ls__cuda_resident_lay_out(r, o);
    LS_TRY(make_streams(r));
    LS_TRY(take_space(r));
    LS_TRY(take_tables(r, o));
    return clear(r);
}

int64_t ls__cuda_resident_bytes(const ls__resident *r)
{
    return r->nbytes;
}

/* --- the end --- */

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

void ls__cuda_resident_free(ls__resident *r)
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
