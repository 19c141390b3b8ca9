/* Streams: a queue of calls each, and a thread that runs them one after the other.
 *
 * Being real threads they overlap and come late as a GPU's do: what the host forgot to wait for is
 * often not done yet, and what no event orders is a race that the thread sanitizer reports. The
 * queue's own lock is hidden from it (sim_sanitizer.h): a call is ordered behind its enqueueing, and
 * the host behind it only by synchronizing. */
#include <string.h>

#include "backend/cuda/sim/sim_capture.h"
#include "backend/cuda/sim/sim_internal.h"

struct CUstream_st {
    int device;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    sim_call *first, **last;
    uint64_t enqueued, finished;
    bool closing, closed;
    sim_crew *crew; /* made at the first launch */
    sim_capture *capture;
    sim_order done;   /* released by every call, acquired by who waits */
    sim_stream *next; /* of all streams */
};

static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;
static sim_stream *streams;
static sim_stream *default_streams[SIM_MAX_DEVICES];
static __thread const char *current_call;

/* --- the stream's thread --- */

static sim_call *take_call(sim_stream *s)
{
    while (!s->first && !s->closing) sim_wait(&s->changed, &s->lock);
    sim_call *call = s->first;
    if (call) {
        s->first = call->next;
        if (!s->first) s->last = &s->first;
    }
    return call;
}

/* Memory is closed before the last call counts as finished, so that who waits finds it closed. */
static void *run_stream(void *context)
{
    sim_stream *s = context;
    bool open = false;
    sim_lock(&s->lock);
    for (sim_call *call; (call = take_call(s));) {
        sim_unlock(&s->lock);
        sim_acquire(&call->order);
        if (call->kind->touches_memory && !open) {
            ls__sim_memory_open();
            open = true;
        }
        current_call = call->name;
        call->kind->run(s, call);
        SIM_UNSEEN(ls__free(call)); /* threads that were given up may have read it */
        sim_release(&s->done);
        sim_lock(&s->lock);
        if (open && !s->first) {
            ls__sim_memory_close();
            open = false;
        }
        s->finished++;
        sim_wake(&s->changed);
    }
    s->closed = true;
    sim_wake(&s->changed);
    sim_unlock(&s->lock);
    return NULL;
}

const char *ls__sim_current_call(void)
{
    return current_call;
}

/* --- enqueueing --- */

cudaError_t ls__sim_enqueue_now(sim_stream *s, const sim_call_kind *kind, const char *name,
                                const void *arguments, size_t nbytes)
{
    sim_call *call = ls__alloc(1, sizeof(*call) + nbytes);
    if (!call)
        return ls__sim_error(cudaErrorMemoryAllocation, "of the host, for a call's arguments");
    *call = (sim_call) { .kind = kind, .name = name, .nbytes = nbytes };
    if (nbytes) memcpy(call->arguments, arguments, nbytes);
    sim_release(&call->order);
    sim_lock(&s->lock);
    *s->last = call;
    s->last = &call->next;
    s->enqueued++;
    sim_wake(&s->changed);
    sim_unlock(&s->lock);
    return cudaSuccess;
}

cudaError_t ls__sim_enqueue(sim_stream *s, const sim_call_kind *kind, const char *name,
                            const void *arguments, size_t nbytes)
{
    SIM_TRY(ls__sim_known(s->device));
    if (s->capture) return ls__sim_capture_call(s->capture, s, kind, name, arguments, nbytes);
    return ls__sim_enqueue_now(s, kind, name, arguments, nbytes);
}

void ls__sim_stream_wait(sim_stream *s)
{
    sim_lock(&s->lock);
    uint64_t until = s->enqueued;
    while (s->finished < until) sim_wait(&s->changed, &s->lock);
    sim_unlock(&s->lock);
    sim_acquire(&s->done);
}

/* --- life --- */

static sim_stream *create(int device)
{
    sim_stream *s = ls__alloc(1, sizeof(*s));
    if (!s) return NULL;
    s->device = device;
    s->last = &s->first;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    if (pthread_create(&s->thread, NULL, run_stream, s) != 0) {
        ls__free(s);
        return NULL;
    }
    pthread_detach(s->thread); /* a stream may be left when the process ends */
    sim_lock(&streams_lock);
    s->next = streams;
    streams = s;
    sim_unlock(&streams_lock);
    return s;
}

static void forget(sim_stream *s)
{
    sim_lock(&streams_lock);
    for (sim_stream **at = &streams; *at; at = &(*at)->next) {
        if (*at != s) continue;
        *at = s->next;
        break;
    }
    sim_unlock(&streams_lock);
}

static void destroy(sim_stream *s)
{
    forget(s);
    sim_lock(&s->lock);
    s->closing = true;
    sim_wake(&s->changed);
    while (!s->closed) sim_wait(&s->changed, &s->lock);
    sim_unlock(&s->lock);
    ls__sim_crew_destroy(s->crew);
    sim_end(s, &s->lock, &s->changed);
}

static sim_stream *default_stream(int device)
{
    static pthread_mutex_t creating = PTHREAD_MUTEX_INITIALIZER;
    sim_lock(&creating);
    if (!default_streams[device]) default_streams[device] = create(device);
    sim_stream *s = default_streams[device];
    sim_unlock(&creating);
    return s;
}

sim_stream *ls__sim_stream(cudaStream_t stream)
{
    if (stream) return stream;
    sim_stream *s = default_stream(ls__sim_device());
    if (!s) ls__sim_error(cudaErrorMemoryAllocation, "no thread for a stream");
    return s;
}

int ls__sim_stream_device(const sim_stream *s)
{
    return s->device;
}

sim_crew *ls__sim_stream_crew(sim_stream *s)
{
    if (!s->crew) s->crew = ls__sim_crew_create(s->device, ls__sim_workers());
    return s->crew;
}

sim_capture *ls__sim_stream_capture(const sim_stream *s)
{
    return s->capture;
}

void ls__sim_stream_set_capture(sim_stream *s, sim_capture *capture)
{
    s->capture = capture;
}

/* The streams of a device may come and go meanwhile: only those that are there now count. */
void ls__sim_device_wait(int device)
{
    sim_stream *list[256];
    int count = 0;
    sim_lock(&streams_lock);
    for (sim_stream *s = streams; s && count < 256; s = s->next)
        if (s->device == device) list[count++] = s;
    sim_unlock(&streams_lock);
    for (int i = 0; i < count; i++) ls__sim_stream_wait(list[i]);
}

/* --- CUDA's names --- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    (void)flags;
    *out = NULL;
    SIM_TRY(ls__sim_known(ls__sim_device()));
    *out = create(ls__sim_device());
    return *out ? cudaSuccess : ls__sim_error(cudaErrorMemoryAllocation, "no thread for a stream");
}

cudaError_t cudaStreamCreate(cudaStream_t *out)
{
    return cudaStreamCreateWithFlags(out, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority)
{
    (void)priority;
    return cudaStreamCreateWithFlags(out, flags);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    if (!stream) return ls__sim_error(cudaErrorInvalidResourceHandle, "no stream");
    if (stream->capture) ls__sim_capture_leave(stream->capture, stream);
    destroy(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    sim_stream *s = ls__sim_stream(stream);
    if (!s) return cudaErrorMemoryAllocation;
    if (s->capture) return ls__sim_capture_refuse(s->capture, "cudaStreamSynchronize");
    ls__sim_stream_wait(s);
    return ls__sim_found(s->device);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    sim_stream *s = ls__sim_stream(stream);
    if (!s) return cudaErrorMemoryAllocation;
    if (s->capture) return ls__sim_capture_refuse(s->capture, "cudaStreamQuery");
    sim_lock(&s->lock);
    bool done = s->finished == s->enqueued;
    sim_unlock(&s->lock);
    if (!done) return cudaErrorNotReady;
    sim_acquire(&s->done);
    return ls__sim_found(s->device);
}

cudaError_t cudaDeviceSynchronize(void)
{
    SIM_TRY(ls__sim_capture_forbids("cudaDeviceSynchronize"));
    ls__sim_device_wait(ls__sim_device());
    return ls__sim_found(ls__sim_device());
}
