/* Events: a count of records asked for and of records reached.
 *
 * To wait for an event is to wait until the record that was the last one when waiting was asked for
 * is reached. For the thread sanitizer each record orders for itself: who waits for one and comes late
 * is not ordered behind the next one too, which may be there already. */
#include <time.h>

#include "backend/cuda/sim/sim_capture.h"
#include "backend/cuda/sim/sim_internal.h"

enum { RECORDS = 8 };

struct CUevent_st {
    int device;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t asked, reached;
    int64_t reached_ns;
    bool untimed;
    int users; /* calls in queues; the last one frees it when it was destroyed */
    bool destroyed;
    sim_order orders[RECORDS]; /* of the last ones, in turn */
    uint64_t capture;          /* the one that its last record marks a point in; 0 = none */
    int point;
};

typedef struct event_call {
    sim_event *event;
    uint64_t record; /* which one */
} event_call;

static sim_order *order_of(sim_event *e, uint64_t record)
{
    return &e->orders[record % RECORDS];
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Unlocks it. */
static void leave(sim_event *e)
{
    bool last = --e->users == 0 && e->destroyed;
    sim_unlock(&e->lock);
    if (last) sim_end(e, &e->lock, &e->changed);
}

static void run_record(sim_stream *stream, const sim_call *call)
{
    (void)stream;
    const event_call *a = (const event_call *)call->arguments;
    sim_release(order_of(a->event, a->record));
    sim_lock(&a->event->lock);
    if (a->event->reached < a->record) a->event->reached = a->record;
    a->event->reached_ns = now_ns();
    sim_wake(&a->event->changed);
    leave(a->event);
}

static void wait_for(sim_event *e, uint64_t record)
{
    while (e->reached < record) sim_wait(&e->changed, &e->lock);
    sim_acquire(order_of(e, record));
}

static void run_wait(sim_stream *stream, const sim_call *call)
{
    (void)stream;
    const event_call *a = (const event_call *)call->arguments;
    sim_lock(&a->event->lock);
    wait_for(a->event, a->record);
    leave(a->event);
}

static const sim_call_kind record_kind = { run_record, false };
static const sim_call_kind wait_kind = { run_wait, false };

static cudaError_t enqueue(sim_event *e, sim_stream *stream, const sim_call_kind *kind,
                           event_call call)
{
    cudaError_t error = ls__sim_enqueue_now(stream, kind, "event", &call, sizeof(call));
    if (error == cudaSuccess) return error;
    sim_lock(&e->lock);
    leave(e);
    return error;
}

cudaError_t ls__sim_event_record(sim_event *e, sim_stream *stream)
{
    sim_lock(&e->lock);
    event_call call = { e, ++e->asked };
    e->users++;
    e->capture = 0;
    sim_unlock(&e->lock);
    return enqueue(e, stream, &record_kind, call);
}

cudaError_t ls__sim_event_wait(sim_event *e, sim_stream *stream)
{
    sim_lock(&e->lock);
    event_call call = { e, e->asked };
    e->users++;
    sim_unlock(&e->lock);
    return enqueue(e, stream, &wait_kind, call);
}

void ls__sim_event_set_point(sim_event *e, uint64_t capture, int point)
{
    e->capture = capture;
    e->point = point;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    *out = NULL;
    sim_event *e = ls__alloc(1, sizeof(*e));
    if (!e) return ls__sim_error(cudaErrorMemoryAllocation, "of the host, for an event");
    e->device = ls__sim_device();
    e->untimed = (flags & cudaEventDisableTiming) != 0;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->changed, NULL);
    *out = e;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    return cudaEventCreateWithFlags(out, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    if (!e) return ls__sim_error(cudaErrorInvalidResourceHandle, "no event");
    sim_lock(&e->lock);
    e->destroyed = true;
    e->users++;
    leave(e);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t stream)
{
    sim_stream *s = ls__sim_stream(stream);
    if (!e || !s) return ls__sim_error(cudaErrorInvalidResourceHandle, "no event or no stream");
    SIM_TRY(ls__sim_known(ls__sim_stream_device(s)));
    sim_capture *capture = ls__sim_stream_capture(s);
    if (capture) return ls__sim_capture_mark(capture, e, s);
    if (e->device != ls__sim_stream_device(s))
        return ls__sim_error(cudaErrorInvalidResourceHandle,
                             "an event of device %d in a stream of %d", e->device,
                             ls__sim_stream_device(s));
    return ls__sim_event_record(e, s);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t e, unsigned flags)
{
    (void)flags;
    sim_stream *s = ls__sim_stream(stream);
    if (!e || !s) return ls__sim_error(cudaErrorInvalidResourceHandle, "no event or no stream");
    SIM_TRY(ls__sim_known(ls__sim_stream_device(s)));
    if (e->capture) return ls__sim_capture_wait(e->capture, e->point, s);
    sim_capture *capture = ls__sim_stream_capture(s);
    if (capture) return ls__sim_capture_refuse(capture, "cudaStreamWaitEvent for outside work");
    return ls__sim_event_wait(e, s);
}

static cudaError_t check_not_captured(const sim_event *e)
{
    if (!e->capture) return cudaSuccess;
    return ls__sim_error(cudaErrorInvalidValue, "the event was last recorded in a capture");
}

cudaError_t cudaEventQuery(cudaEvent_t e)
{
    SIM_TRY(check_not_captured(e));
    sim_lock(&e->lock);
    uint64_t asked = e->asked;
    bool done = e->reached == asked;
    sim_unlock(&e->lock);
    if (!done) return cudaErrorNotReady;
    sim_acquire(order_of(e, asked));
    return ls__sim_found(e->device);
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    SIM_TRY(check_not_captured(e));
    sim_lock(&e->lock);
    wait_for(e, e->asked);
    sim_unlock(&e->lock);
    return ls__sim_found(e->device);
}

cudaError_t cudaEventElapsedTime(float *out_ms, cudaEvent_t begin, cudaEvent_t e)
{
    if (begin->untimed || e->untimed)
        return ls__sim_error(cudaErrorInvalidResourceHandle, "an event without timing");
    SIM_TRY(cudaEventQuery(begin));
    SIM_TRY(cudaEventQuery(e));
    *out_ms = (float)((double)(e->reached_ns - begin->reached_ns) / 1e6);
    return cudaSuccess;
}
