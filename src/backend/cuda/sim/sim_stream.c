/* Streams: a queue of calls each, and a thread that runs them one after the other.
 *
 * Being real threads they overlap and come late as a GPU's do: what the host forgot to wait for is
 * often not done yet, and what no event orders is a race that the thread sanitizer reports. The
 * queue's own lock is hidden from it (sim_sanitizer.h): a call is ordered behind its enqueueing, and
 * the host behind it only by synchronizing. */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "backend/cuda/sim/sim_capture.h"
#include "backend/cuda/sim/sim_internal.h"

enum { LINGER_NS = 200000 };

struct CUstream_st {
    int device;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    sim_call *first, **last;
    uint64_t enqueued, finished;
    bool closing, closed;
    bool open; /* device memory, by this stream */
    int waiters;
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

/* Whether nothing came for a while, and nobody waits for the stream. */
static bool is_quiet(sim_stream *s)
{
    if (s->waiters > 0) return true;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += LINGER_NS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    bool timed_out = false;
    SIM_HIDDEN(timed_out = pthread_cond_timedwait(&s->changed, &s->lock, &until) == ETIMEDOUT);
    return timed_out && !s->first;
}

/* NULL = the stream is closing. Memory stays open while more may come at any moment, since opening
 * and closing cost more than a small kernel; but who waits for the stream finds it closed. */
static sim_call *take_call(sim_stream *s)
{
    while (!s->first) {
        if (s->open && is_quiet(s)) {
            ls__sim_memory_close();
            s->open = false;
            sim_wake(&s->changed);
        } else if (!s->open) {
            if (s->closing) return NULL;
            sim_wait(&s->changed, &s->lock);
        }
    }
    sim_call *call = s->first;
    s->first = call->next;
    if (!s->first) s->last = &s->first;
    return call;
}

static void run_call(sim_stream *s, sim_call *call)
{
    sim_acquire(&call->order);
    current_call = call->name;
    call->kind->run(s, call);
    SIM_UNSEEN(ls__free(call)); /* threads that were given up may have read it */
    sim_release(&s->done);
}

static void *run_stream(void *context)
{
    sim_stream *s = context;
    sim_lock(&s->lock);
    for (sim_call *call; (call = take_call(s));) {
        bool opens = call->kind->touches_memory && !s->open;
        s->open |= opens;
        sim_unlock(&s->lock);
        if (opens) ls__sim_memory_open();
        run_call(s, call);
        sim_lock(&s->lock);
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
    s->waiters++;
    sim_wake(&s->changed); /* to close memory */
    while (s->finished < until || (s->open && s->finished == s->enqueued))
        sim_wait(&s->changed, &s->lock);
    s->waiters--;
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
    ls__sim_stream_wait(s); /* for memory to be closed */
    return ls__sim_found(s->device);
}

cudaError_t cudaDeviceSynchronize(void)
{
    SIM_TRY(ls__sim_capture_forbids("cudaDeviceSynchronize"));
    ls__sim_device_wait(ls__sim_device());
    return ls__sim_found(ls__sim_device());
}
