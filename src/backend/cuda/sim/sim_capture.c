/* Capture of streams.
 *
 * Calls are kept in the order in which they were made, with the stream they belong to; launching a
 * graph makes the same calls again. So what a graph orders is what its events ordered, and an event
 * that is missing is missed in the graph as well. A clock per stream (how many calls of every other
 * stream it is behind) tells at the end whether all streams were joined. */
#include "backend/cuda/sim/sim_capture.h"

#include <string.h>

typedef struct clock_of {
    uint64_t seen[SIM_CAPTURE_STREAMS];
} clock_of;

struct sim_capture {
    uint64_t id;
    enum cudaStreamCaptureMode mode;
    pthread_t thread;
    bool spoiled;
    sim_stream *streams[SIM_CAPTURE_STREAMS];
    clock_of clocks[SIM_CAPTURE_STREAMS];
    int nstreams;
    sim_node *nodes;
    size_t nnodes, nodes_room;
    clock_of *points;
    int npoints, points_room;
    sim_capture *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static sim_capture *captures;
static uint64_t last_id;

cudaError_t ls__sim_capture_refuse(sim_capture *c, const char *call)
{
    c->spoiled = true;
    return ls__sim_error(cudaErrorStreamCaptureUnsupported, "%s while the stream is captured",
                         call);
}

static sim_capture *find_forbidding(void)
{
    sim_lock(&lock);
    sim_capture *c = captures;
    for (; c; c = c->next) {
        if (c->mode == cudaStreamCaptureModeRelaxed) continue;
        if (c->mode == cudaStreamCaptureModeGlobal || pthread_equal(c->thread, pthread_self()))
            break;
    }
    sim_unlock(&lock);
    return c;
}

cudaError_t ls__sim_capture_forbids(const char *call)
{
    sim_capture *c = find_forbidding();
    return c ? ls__sim_capture_refuse(c, call) : cudaSuccess;
}

static int index_of(const sim_capture *c, const sim_stream *s)
{
    int i = 0;
    while (i < c->nstreams && c->streams[i] != s) i++;
    return i;
}

/* room for one more */
static bool grow(void **array, size_t count, size_t *room, size_t size)
{
    if (count < *room) return true;
    size_t more = *room ? 2 * *room : 64;
    void *grown = ls__realloc(*array, more, size);
    if (!grown) return false;
    *array = grown;
    *room = more;
    return true;
}

static cudaError_t no_memory(sim_capture *c)
{
    c->spoiled = true;
    return ls__sim_error(cudaErrorMemoryAllocation, "of the host, for a captured call");
}

static cudaError_t add_node(sim_capture *c, sim_stream *s, sim_node node)
{
    if (c->spoiled) {
        ls__free(node.arguments);
        return ls__sim_error(cudaErrorStreamCaptureInvalidated, NULL);
    }
    node.stream = index_of(c, s);
    void *nodes = c->nodes;
    bool room = grow(&nodes, c->nnodes, &c->nodes_room, sizeof(*c->nodes));
    c->nodes = nodes;
    if (!room) {
        ls__free(node.arguments);
        return no_memory(c);
    }
    c->nodes[c->nnodes++] = node;
    c->clocks[node.stream].seen[node.stream]++;
    return cudaSuccess;
}

cudaError_t ls__sim_capture_call(sim_capture *c, sim_stream *s, const sim_call_kind *kind,
                                 const char *name, const void *arguments, size_t nbytes)
{
    sim_node node = { .what = SIM_NODE_CALL, .kind = kind, .name = name, .nbytes = nbytes };
    node.arguments = ls__alloc(1, nbytes);
    if (!node.arguments) return no_memory(c);
    memcpy(node.arguments, arguments, nbytes);
    return add_node(c, s, node);
}

cudaError_t ls__sim_capture_mark(sim_capture *c, sim_event *event, sim_stream *s)
{
    void *points = c->points;
    size_t room = (size_t)c->points_room;
    bool grown = grow(&points, (size_t)c->npoints, &room, sizeof(*c->points));
    c->points = points;
    c->points_room = (int)room;
    if (!grown) return no_memory(c);
    SIM_TRY(add_node(c, s, (sim_node) { .what = SIM_NODE_MARK, .point = c->npoints }));
    c->points[c->npoints] = c->clocks[index_of(c, s)];
    ls__sim_event_set_point(event, c->id, c->npoints++);
    return cudaSuccess;
}

static sim_capture *find_capture(uint64_t id)
{
    sim_lock(&lock);
    sim_capture *c = captures;
    while (c && c->id != id) c = c->next;
    sim_unlock(&lock);
    return c;
}

static cudaError_t join(sim_capture *c, sim_stream *s)
{
    sim_capture *other = ls__sim_stream_capture(s);
    if (other == c) return cudaSuccess;
    if (other) {
        c->spoiled = other->spoiled = true;
        return ls__sim_error(cudaErrorStreamCaptureMerge, NULL);
    }
    if (c->nstreams == SIM_CAPTURE_STREAMS) {
        c->spoiled = true;
        return ls__sim_error(cudaErrorNotSupported, "more than %d streams in a capture",
                             SIM_CAPTURE_STREAMS);
    }
    c->clocks[c->nstreams] = (clock_of) { 0 };
    c->streams[c->nstreams++] = s;
    ls__sim_stream_set_capture(s, c);
    return cudaSuccess;
}

cudaError_t ls__sim_capture_wait(uint64_t capture, int point, sim_stream *s)
{
    sim_capture *c = find_capture(capture);
    if (!c)
        return ls__sim_error(cudaErrorInvalidValue, "the event was last recorded in a capture that "
                                                    "has ended");
    SIM_TRY(join(c, s));
    SIM_TRY(add_node(c, s, (sim_node) { .what = SIM_NODE_WAIT, .point = point }));
    clock_of *clock = &c->clocks[index_of(c, s)];
    for (int i = 0; i < c->nstreams; i++)
        if (c->points[point].seen[i] > clock->seen[i]) clock->seen[i] = c->points[point].seen[i];
    return cudaSuccess;
}

void ls__sim_capture_leave(sim_capture *c, sim_stream *s)
{
    c->spoiled = true;
    c->streams[index_of(c, s)] = NULL;
}

/* --- begin and end --- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    if (!stream) return ls__sim_error(cudaErrorStreamCaptureUnsupported, "the default stream");
    if (ls__sim_stream_capture(stream))
        return ls__sim_error(cudaErrorInvalidValue, "the stream is captured already");
    sim_capture *c = ls__alloc(1, sizeof(*c));
    if (!c) return ls__sim_error(cudaErrorMemoryAllocation, "of the host, for a capture");
    c->mode = mode;
    c->thread = pthread_self();
    c->streams[c->nstreams++] = stream;
    sim_lock(&lock);
    c->id = ++last_id;
    c->next = captures;
    captures = c;
    sim_unlock(&lock);
    ls__sim_stream_set_capture(stream, c);
    return cudaSuccess;
}

static void forget(sim_capture *c)
{
    sim_lock(&lock);
    sim_capture **at = &captures;
    while (*at != c) at = &(*at)->next;
    *at = c->next;
    sim_unlock(&lock);
    for (int i = 0; i < c->nstreams; i++)
        if (c->streams[i]) ls__sim_stream_set_capture(c->streams[i], NULL);
}

static cudaError_t verdict(const sim_capture *c)
{
    if (c->spoiled) return ls__sim_error(cudaErrorStreamCaptureInvalidated, NULL);
    for (int i = 1; i < c->nstreams; i++)
        if (c->clocks[0].seen[i] < c->clocks[i].seen[i])
            return ls__sim_error(cudaErrorStreamCaptureUnjoined,
                                 "the stream that joined as number %d is not waited for at the end",
                                 i);
    return cudaSuccess;
}

static void free_nodes(sim_node *nodes, size_t count)
{
    for (size_t i = 0; i < count; i++) ls__free(nodes[i].arguments);
    ls__free(nodes);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
    *out = NULL;
    sim_capture *c = stream ? ls__sim_stream_capture(stream) : NULL;
    if (!c) return ls__sim_error(cudaErrorInvalidValue, "the stream is not captured");
    if (c->streams[0] != stream) {
        c->spoiled = true;
        return ls__sim_error(cudaErrorStreamCaptureUnmatched, NULL);
    }
    forget(c);
    cudaError_t error = verdict(c);
    struct CUgraph_st *graph = error == cudaSuccess ? ls__alloc(1, sizeof(*graph)) : NULL;
    if (graph) {
        *graph = (struct CUgraph_st) { c->nodes, c->nnodes, c->nstreams, c->npoints };
        *out = graph;
    } else {
        free_nodes(c->nodes, c->nnodes);
        if (error == cudaSuccess)
            error = ls__sim_error(cudaErrorMemoryAllocation, "of the host, for a graph");
    }
    ls__free(c->points);
    ls__free(c);
    return error;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *out)
{
    const sim_capture *c = stream ? ls__sim_stream_capture(stream) : NULL;
    *out = !c           ? cudaStreamCaptureStatusNone
           : c->spoiled ? cudaStreamCaptureStatusInvalidated
                        : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    if (!graph) return ls__sim_error(cudaErrorInvalidValue, "no graph");
    free_nodes(graph->nodes, graph->nnodes);
    ls__free(graph);
    return cudaSuccess;
}
