/* A run: the batch and what changed goes to the device, the steps are launched one after another on
 * one stream, results and gradients come back. The host waits once, at the end.
 *
 * Where training state is the host's, parameters travel only when the caller says that they may have
 * changed: micro-batches of one step and the validation behind it share a copy. Where it stays here
 * (cuda_resident.h) neither they nor gradients travel. */
#include <string.h>

#include "backend/cuda/cuda_executable.h"
#include "backend/cuda/cuda_resident.h"
#include "backend/cuda/kernel_elementwise.h"
#include "base/clock.h"

/* --- to the device --- */

static ls_status upload_params(ls__executable *e, const ls__run_context *context)
{
    cuda_device *d = ls__cuda_device();
    if (context->resident) return ls__cuda_resident_before(context->resident);
    bool there = context->params_version && d->params_of == context->params &&
                 d->params_version == context->params_version && d->params_count >= e->extent;
    if (there || e->extent == 0) return LS_OK;
    d->params_of = NULL; /* not whole until it is */
    LS_TRY(ls__cuda_upload(d, d->params.data, context->params, (size_t)e->extent * sizeof(float)));
    d->params_of = context->params;
    d->params_version = context->params_version;
    d->params_count = e->extent;
    return LS_OK;
}

static ls_status send(const ls__executable *e, const cuda_travel *list, int n, void *const *from)
{
    for (int i = 0; i < n; i++) {
        memcpy(e->pinned + list[i].at, from[list[i].tensor->slot], list[i].nbytes);
        LS_CUDA_TRY(cudaMemcpyAsync(list[i].device, e->pinned + list[i].at, list[i].nbytes,
                                    cudaMemcpyHostToDevice, ls__cuda_device()->stream),
                    "copying a batch to it");
    }
    return LS_OK;
}

/* Tests: nothing may be read before it is written. */
static ls_status spoil(const ls__executable *e)
{
    for (int i = 0; e->apart && i < e->npieces; i++)
        if (e->apart[i])
            LS_CUDA_TRY(
                cudaMemsetAsync(e->apart[i], 0xff, e->pieces[i].nbytes, ls__cuda_device()->stream),
                "filling its memory");
    return LS_OK;
}

static ls_status send_all(ls__executable *e, const ls__run_context *context)
{
    LS_TRY(upload_params(e, context));
    LS_TRY(spoil(e));
    e->host_values[0] = (cuda_values) { .seed = context->seed,
                                        .step = context->step,
                                        .first = context->first,
                                        .grad_seed = context->grad_seed,
                                        .failure = ~0ull };
    LS_CUDA_TRY(cudaMemcpyAsync(e->values, &e->host_values[0], sizeof *e->values,
                                cudaMemcpyHostToDevice, ls__cuda_device()->stream),
                "copying a run's values to it");
    bool taken;
    LS_TRY(ls__cuda_ahead_take(e, context, &taken));
    if (!taken) LS_TRY(send(e, e->in, e->nin, context->fields));
    return send(e, e->states, e->nstates, context->states);
}

/* --- computing --- */

ls_status ls__cuda_run_step(ls__executable *e, cuda_step *step)
{
    const ls__node *node = step->node;
    (void)e;
    if (!step->op) return ls__cuda_user_op_run(step->user, &step->call);
    LS_TRY(step->op->run(&step->call));
    for (int i = 0; i < step->nroundings; i++) {
        int k = step->roundings[i].output;
        ls__cuda_launch_convert(step->call.stream, ls__cuda_count(node->out[k]), step->call.out[k],
                                false, step->rounded[i], true);
    }
    LS_CUDA_TRY(cudaGetLastError(), node->op->name);
    return LS_OK;
}

/* --- from the device --- */

static ls_status fetch(const ls__executable *e, const cuda_travel *list, int n)
{
    for (int i = 0; i < n; i++)
        LS_CUDA_TRY(cudaMemcpyAsync(e->pinned + list[i].at, list[i].device, list[i].nbytes,
                                    cudaMemcpyDeviceToHost, ls__cuda_device()->stream),
                    "copying results from it");
    return LS_OK;
}

static ls_status zero_missing_gradients(const ls__executable *e, const ls__run_context *context)
{
    if (ls__graph_options_of(e->graph)->stage != LS_STAGE_TRAIN) return LS_OK;
    for (int i = 0; i < e->nparams; i++) {
        size_t nbytes = (size_t)ls__cuda_count(e->params[i].tensor) * sizeof(float);
        if (e->params[i].grad) continue;
        if (context->resident)
            LS_CUDA_TRY(
                cudaMemsetAsync(e->grads + e->offsets[i], 0, nbytes, ls__cuda_device()->stream),
                "clearing gradients");
        else
            memset(context->grads + context->offsets[i], 0, nbytes);
    }
    return LS_OK;
}

static ls_status fetch_gradients(ls__executable *e, const ls__run_context *context)
{
    cuda_device *d = ls__cuda_device();
    if (context->resident) return LS_OK;
    return ls__cuda_download(d, context->grads, (const float *)d->grads.data, e->stretches,
                             e->nstretches);
}

static ls_status settle(const ls__run_context *context)
{
    cudaStream_t stream = ls__cuda_device()->stream;
    if (context->resident) return ls__cuda_resident_settle(context->resident, stream, "computing");
    LS_CUDA_TRY(cudaStreamSynchronize(stream), "computing");
    return LS_OK;
}

static ls_status fetch_all(ls__executable *e, const ls__run_context *context)
{
    cuda_device *d = ls__cuda_device();
    LS_TRY(fetch(e, e->out, e->nout));
    LS_TRY(fetch(e, e->states, e->nstates));
    LS_CUDA_TRY(cudaMemcpyAsync(&e->host_values[1], e->values, sizeof *e->values,
                                cudaMemcpyDeviceToHost, d->stream),
                "copying a run's values from it");
    LS_TRY(fetch_gradients(e, context));
    LS_TRY(ls__cuda_mark(e, 2 + e->nsteps));
    LS_TRY(settle(context));
    for (int i = 0; i < e->nstates; i++)
        memcpy(context->states[e->states[i].tensor->slot], e->pinned + e->states[i].at,
               e->states[i].nbytes);
    return LS_OK;
}

/* --- entries --- */

static ls_status run(ls__executable *e, const ls__run_context *context)
{
    int64_t begin_ns = ls__now_ns();
    LS_TRY(ls__cuda_check_positions(e, context));
    LS_TRY(ls__cuda_bind(e, context));
    LS_TRY(ls__cuda_mark(e, 0));
    LS_TRY(send_all(e, context));
    LS_TRY(ls__cuda_mark(e, 1));
    LS_TRY(zero_missing_gradients(e, context));
    LS_TRY(ls__cuda_compute(e, context));
    LS_TRY(ls__cuda_ahead_start(e, context));
    LS_TRY(fetch_all(e, context));
    unsigned long long failure = e->host_values[1].failure;
    if (failure != ~0ull) return ls__cuda_explain(e, context, failure);
    return ls__cuda_profile_add(e, context, begin_ns);
}

ls_status ls__cuda_run(ls__executable *e, const ls__run_context *context)
{
    cuda_device *d = ls__cuda_device();
    LS_TRY(ls__cuda_enter(d));
    ls_status status = run(e, context);
    ls__cuda_leave(d);
    return status;
}

static void *host_data(const ls__executable *e, const ls__run_context *context,
                       const ls_tensor *root)
{
    switch (root->role) {
    case LS__ROLE_INPUT:
        return context->fields[root->slot];
    case LS__ROLE_STATE:
        return context->states[root->slot];
    case LS__ROLE_CONSTANT:
        return (void *)(uintptr_t)root->values; /* read only */
    case LS__ROLE_PARAM:
    case LS__ROLE_STATISTIC:
        return (float *)(uintptr_t)context->params + context->offsets[root->slot];
    case LS__ROLE_VALUE:
        break;
    }
    if (e->place[root->id].space == CUDA_GRAD)
        return context->grads + context->offsets[e->place[root->id].slot];
    return e->result[root->id] >= 0 ? e->pinned + e->out[e->result[root->id]].at : NULL;
}

/* Of what stays on the device: the executable's, until it is read again. */
static ls_status peek(ls__executable *e, const ls_tensor *root, void **out)
{
    cuda_device *d = ls__cuda_device();
    size_t nbytes = ls__cuda_stored_bytes(root);
    if (!e->peeked) e->peeked = ls__alloc((size_t)e->ntensors, sizeof *e->peeked);
    if (!e->peeked) return LS_ERR_MEMORY;
    void **copy = &e->peeked[root->id];
    if (!*copy) *copy = ls__alloc(1, nbytes);
    if (!*copy) return LS_ERR_MEMORY;
    LS_TRY(ls__cuda_enter(d));
    cudaError_t error =
        cudaMemcpyAsync(*copy, ls__cuda_at(e, root), nbytes, cudaMemcpyDeviceToHost, d->stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(d->stream);
    ls__cuda_leave(d);
    *out = *copy;
    return error == cudaSuccess ? LS_OK : ls__cuda_fail(error, "reading a value of it");
}

static bool is_kept(const ls__executable *e, const ls__run_context *context, const ls_tensor *root)
{
    cuda_space space = e->place[root->id].space;
    return context->resident && (space == CUDA_PARAM || space == CUDA_GRAD);
}

ls_status ls__cuda_read(ls__executable *e, const ls__run_context *context, const ls_tensor *tensor,
                        ls_array *out)
{
    void *data = NULL;
    const ls_tensor *root = tensor->id < e->ntensors ? e->tensors[e->root[tensor->id]] : NULL;
    if (root && is_kept(e, context, root))
        LS_TRY(peek(e, root, &data));
    else if (root)
        data = host_data(e, context, root);
    if (!data) return ls_fail(LS_ERR_ARG, "tensor %d is no result of this graph", tensor->id);
    *out = (ls_array) { .type = tensor->type, .rank = tensor->rank, .data = data };
    memcpy(out->shape, tensor->shape, sizeof out->shape);
    return LS_OK;
}
