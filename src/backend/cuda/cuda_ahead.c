/* Batches copied ahead: while the device computes one micro-batch, the next one is read on the host,
 * put into pinned memory and copied on a stream of its own. The run that is about it waits for that
 * copy and moves it to where its tensors lie, at the speed of the device's memory; so captured steps
 * keep their addresses. Two events order the two streams: a batch is not moved before it has come,
 * and the next one does not come before this one was moved.
 *
 * Which batch lies there is known by its number. Whatever fails here only costs the overlap. */
#include <string.h>

#include "backend/cuda/cuda_executable.h"
#include "base/clock.h"
#include "base/log.h"

typedef struct cuda_ahead {
    cudaStream_t stream;
    cudaEvent_t begun, copied, moved; /* the first two with times */
    char *pinned, *device;
    size_t nbytes;
    int64_t batch; /* that lies there; 0 = none */
    bool measured; /* the last copy was asked for while runs are measured */
} cuda_ahead;

void ls__cuda_ahead_free(cuda_ahead *a)
{
    if (!a) return;
    if (a->stream) cudaStreamSynchronize(a->stream);
    cudaEvent_t events[] = { a->begun, a->copied, a->moved };
    for (int i = 0; i < 3; i++)
        if (events[i]) cudaEventDestroy(events[i]);
    if (a->stream) cudaStreamDestroy(a->stream);
    if (a->pinned) cudaFreeHost(a->pinned);
    if (a->device) cudaFree(a->device);
    ls__free(a);
}

static ls_status make(cuda_ahead *a)
{
    LS_CUDA_TRY(cudaStreamCreateWithFlags(&a->stream, cudaStreamNonBlocking), "making a stream");
    LS_CUDA_TRY(cudaEventCreate(&a->begun), "making an event");
    LS_CUDA_TRY(cudaEventCreate(&a->copied), "making an event");
    LS_CUDA_TRY(cudaEventCreateWithFlags(&a->moved, cudaEventDisableTiming), "making an event");
    LS_CUDA_TRY(cudaHostAlloc((void **)&a->pinned, a->nbytes, cudaHostAllocDefault),
                "pinning memory for batches");
    return ls__cuda_allocate(ls__cuda_device(), a->nbytes, "a batch", (void **)&a->device);
}

/* As in the executable's own pinned memory. */
size_t ls__cuda_ahead_bytes(const ls__executable *e)
{
    size_t nbytes = 0;
    for (int i = 0; i < e->nin; i++)
        if (e->in[i].at + e->in[i].nbytes > nbytes) nbytes = e->in[i].at + e->in[i].nbytes;
    return nbytes;
}

/* NULL after saying why: then batches are copied when they are needed. */
static cuda_ahead *create(ls__executable *e)
{
    if (e->ahead || e->not_ahead) return e->ahead;
    cuda_ahead *a = ls__alloc(1, sizeof *a);
    if (a) a->nbytes = ls__cuda_ahead_bytes(e);
    e->not_ahead = !a || a->nbytes == 0 || make(a) != LS_OK;
    if (!e->not_ahead) return e->ahead = a;
    if (a && a->nbytes) ls__log(LS__LOG_DEBUG, "batches are not copied ahead: %s", ls_error_text());
    ls__cuda_ahead_free(a);
    return NULL;
}

/* --- the batch that is needed now --- */

static ls_status move(const ls__executable *e)
{
    cuda_ahead *a = e->ahead;
    cudaStream_t stream = ls__cuda_device()->stream;
    LS_CUDA_TRY(cudaStreamWaitEvent(stream, a->copied, 0), "waiting for a batch");
    for (int i = 0; i < e->nin; i++)
        LS_CUDA_TRY(cudaMemcpyAsync(e->in[i].device, a->device + e->in[i].at, e->in[i].nbytes,
                                    cudaMemcpyDeviceToDevice, stream),
                    "moving a batch");
    LS_CUDA_TRY(cudaEventRecord(a->moved, stream), "recording an event");
    a->batch = 0;
    return LS_OK;
}

ls_status ls__cuda_ahead_take(ls__executable *e, const ls__run_context *context, bool *taken)
{
    bool there = e->ahead && context->batch && e->ahead->batch == context->batch;
    *taken = there;
    if (there) return move(e);
    if (e->ahead) e->ahead->batch = 0; /* another one came */
    return LS_OK;
}

/* --- the next one --- */

static ls_status copy(const ls__executable *e, void *const *fields)
{
    cuda_ahead *a = e->ahead;
    LS_CUDA_TRY(cudaEventSynchronize(a->copied), "copying a batch ahead"); /* pinned is free */
    for (int i = 0; i < e->nin; i++)
        memcpy(a->pinned + e->in[i].at, fields[e->in[i].tensor->slot], e->in[i].nbytes);
    LS_CUDA_TRY(cudaStreamWaitEvent(a->stream, a->moved, 0), "waiting for a batch");
    LS_CUDA_TRY(cudaEventRecord(a->begun, a->stream), "recording an event");
    for (int i = 0; i < e->nin; i++)
        LS_CUDA_TRY(cudaMemcpyAsync(a->device + e->in[i].at, a->pinned + e->in[i].at,
                                    e->in[i].nbytes, cudaMemcpyHostToDevice, a->stream),
                    "copying a batch ahead");
    LS_CUDA_TRY(cudaEventRecord(a->copied, a->stream), "recording an event");
    return LS_OK;
}

ls_status ls__cuda_ahead_start(ls__executable *e, const ls__run_context *context)
{
    void *const *fields;
    if (!context->ahead || !context->batch || e->nin == 0 || !create(e)) return LS_OK;
    e->ahead->batch = 0;
    if (!context->ahead(context->ahead_user, &fields)) return LS_OK;
    LS_TRY(copy(e, fields));
    e->ahead->batch = context->batch + 1;
    e->ahead->measured = e->profile != NULL;
    return LS_OK;
}

ls_status ls__cuda_ahead_time(const ls__executable *e, cudaEvent_t since, double *begin_ms,
                              double *ms)
{
    const cuda_ahead *a = e->ahead;
    float begin = 0, took = 0;
    *ms = *begin_ms = 0;
    if (!a || !a->batch || !a->measured) return LS_OK;
    LS_CUDA_TRY(cudaEventSynchronize(a->copied), "copying a batch ahead");
    LS_CUDA_TRY(cudaEventElapsedTime(&begin, since, a->begun), "measuring");
    LS_CUDA_TRY(cudaEventElapsedTime(&took, a->begun, a->copied), "measuring");
    *begin_ms = (double)begin;
    *ms = (double)took;
    return LS_OK;
}
