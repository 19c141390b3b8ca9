/* Copies and fills, with every range checked against what is allocated. */
#include <string.h>

#include "backend/cuda/sim/sim_capture.h"
#include "backend/cuda/sim/sim_internal.h"

typedef struct copy_call {
    void *to;
    const void *from;
    size_t nbytes;
} copy_call;

typedef struct fill_call {
    void *at;
    int value;
    size_t nbytes;
} fill_call;

static void run_copy(sim_stream *stream, const sim_call *call)
{
    (void)stream;
    const copy_call *c = (const copy_call *)call->arguments;
    memmove(c->to, c->from, c->nbytes);
}

static void run_fill(sim_stream *stream, const sim_call *call)
{
    (void)stream;
    const fill_call *f = (const fill_call *)call->arguments;
    memset(f->at, f->value, f->nbytes);
}

static const sim_call_kind copy_kind = { run_copy, true };
static const sim_call_kind fill_kind = { run_fill, true };

typedef enum place { PAGEABLE, PINNED, ON_DEVICE } place;

/* Where [p, p + nbytes) lies; an error when it is not one thing, or not what it is said to be. */
static cudaError_t find_place(const char *call, const char *which, const void *p, size_t nbytes,
                              place *out)
{
    sim_range r;
    *out = PAGEABLE;
    if (!ls__sim_find(p, false, &r)) return cudaSuccess;
    *out = r.device >= 0 ? ON_DEVICE : PINNED;
    size_t left = (size_t)(r.begin + r.nbytes - (const char *)p);
    if (nbytes <= left) return cudaSuccess;
    return ls__sim_error(cudaErrorInvalidValue,
                         "%s: %zu bytes of the %s, but its memory ends behind %zu", call, nbytes,
                         which, left);
}

static cudaError_t check_side(const char *call, const char *which, const void *p, place is,
                              bool device)
{
    if (device == (is == ON_DEVICE)) return cudaSuccess;
    char what[160];
    ls__sim_describe(p, what, sizeof(what));
    return ls__sim_error(cudaErrorInvalidValue, "%s: the %s %p is said to be %s memory, but is %s",
                         call, which, p, device ? "device" : "host", what);
}

static cudaError_t check_copy(const char *call, const copy_call *c, enum cudaMemcpyKind kind,
                              bool *pageable)
{
    place to, from;
    SIM_TRY(find_place(call, "destination", c->to, c->nbytes, &to));
    SIM_TRY(find_place(call, "source", c->from, c->nbytes, &from));
    *pageable = to == PAGEABLE || from == PAGEABLE;
    if (kind == cudaMemcpyDefault) return cudaSuccess;
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    SIM_TRY(check_side(call, "destination", c->to, to, to_device));
    return check_side(call, "source", c->from, from, from_device);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t nbytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    sim_stream *s = ls__sim_stream(stream);
    if (!s) return cudaErrorMemoryAllocation;
    if (nbytes == 0) return ls__sim_known(ls__sim_stream_device(s));
    copy_call call = { to, from, nbytes };
    bool pageable;
    SIM_TRY(check_copy("cudaMemcpyAsync", &call, kind, &pageable));
    sim_capture *capture = ls__sim_stream_capture(s);
    if (capture && pageable)
        return ls__sim_capture_refuse(capture, "cudaMemcpyAsync of pageable memory");
    SIM_TRY(ls__sim_enqueue(s, &copy_kind, "copy", &call, sizeof(call)));
    if (pageable) ls__sim_stream_wait(s);
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t nbytes, enum cudaMemcpyKind kind)
{
    SIM_TRY(ls__sim_capture_forbids("cudaMemcpy"));
    SIM_TRY(cudaMemcpyAsync(to, from, nbytes, kind, NULL));
    return cudaStreamSynchronize(NULL);
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t nbytes, cudaStream_t stream)
{
    sim_stream *s = ls__sim_stream(stream);
    if (!s) return cudaErrorMemoryAllocation;
    if (nbytes == 0) return ls__sim_known(ls__sim_stream_device(s));
    place at;
    SIM_TRY(find_place("cudaMemset", "destination", p, nbytes, &at));
    SIM_TRY(check_side("cudaMemset", "destination", p, at, true));
    fill_call call = { p, value, nbytes };
    return ls__sim_enqueue(s, &fill_kind, "fill", &call, sizeof(call));
}

cudaError_t cudaMemset(void *p, int value, size_t nbytes)
{
    SIM_TRY(ls__sim_capture_forbids("cudaMemset"));
    SIM_TRY(cudaMemsetAsync(p, value, nbytes, NULL));
    return cudaStreamSynchronize(NULL);
}

/* --- memory in the order of a stream --- */

static void run_free(sim_stream *stream, const sim_call *call)
{
    void *p = *(void *const *)call->arguments;
    if (ls__sim_free_now(p) == cudaSuccess) return;
    ls__sim_fault(ls__sim_stream_device(stream), cudaErrorInvalidValue,
                  "cudaFreeAsync: %p is not allocated when its turn comes", p);
}

static const sim_call_kind free_kind = { run_free, false };

cudaError_t cudaMallocAsync(void **out, size_t nbytes, cudaStream_t stream)
{
    *out = NULL;
    sim_stream *s = ls__sim_stream(stream);
    if (!s) return cudaErrorMemoryAllocation;
    sim_capture *capture = ls__sim_stream_capture(s);
    if (capture) return ls__sim_capture_refuse(capture, "cudaMallocAsync");
    return ls__sim_malloc(ls__sim_stream_device(s), nbytes, out);
}

cudaError_t cudaFreeAsync(void *p, cudaStream_t stream)
{
    sim_stream *s = ls__sim_stream(stream);
    if (!p) return cudaSuccess;
    if (!s) return cudaErrorMemoryAllocation;
    sim_capture *capture = ls__sim_stream_capture(s);
    if (capture) return ls__sim_capture_refuse(capture, "cudaFreeAsync");
    return ls__sim_enqueue(s, &free_kind, "free", &p, sizeof(p));
}
