/* Graphs that can be launched: the captured calls, made again.
 *
 * Calls of the first captured stream go into the stream that the graph is launched on, those of the
 * others into streams of the graph's own. */
#include <string.h>

#include "backend/cuda/sim/sim_capture.h"

struct CUgraphExec_st {
    sim_node *nodes;
    size_t nnodes;
    sim_stream *others[SIM_CAPTURE_STREAMS]; /* [0] unused */
    int nstreams;
    sim_event **points;
    int npoints;
    sim_event *done; /* the last launch: the next one waits for it */
};

/* nnodes counts those whose arguments are the graph's own, also when memory runs out in between. */
static bool copy_nodes(cudaGraphExec_t e, const struct CUgraph_st *graph)
{
    e->nodes = ls__alloc(graph->nnodes, sizeof(*e->nodes));
    for (; e->nodes && e->nnodes < graph->nnodes; e->nnodes++) {
        const sim_node *from = &graph->nodes[e->nnodes];
        sim_node *node = &e->nodes[e->nnodes];
        *node = *from;
        if (!from->arguments) continue;
        node->arguments = ls__alloc(1, from->nbytes);
        if (!node->arguments) return false;
        memcpy(node->arguments, from->arguments, from->nbytes);
    }
    return e->nodes != NULL;
}

static bool make_own(cudaGraphExec_t e, const struct CUgraph_st *graph)
{
    e->nstreams = graph->nstreams;
    for (int i = 1; i < e->nstreams; i++)
        if (cudaStreamCreate(&e->others[i]) != cudaSuccess) return false;
    e->points = ls__alloc((size_t)graph->npoints, sizeof(*e->points));
    if (!e->points) return false;
    for (; e->npoints < graph->npoints; e->npoints++)
        if (cudaEventCreate(&e->points[e->npoints]) != cudaSuccess) return false;
    return cudaEventCreate(&e->done) == cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
    (void)flags;
    *out = NULL;
    if (!graph) return ls__sim_error(cudaErrorInvalidValue, "no graph");
    cudaGraphExec_t e = ls__alloc(1, sizeof(*e));
    if (!e || !copy_nodes(e, graph) || !make_own(e, graph)) {
        if (e) cudaGraphExecDestroy(e);
        return ls__sim_error(cudaErrorMemoryAllocation, "of the host, for a graph");
    }
    *out = e;
    return cudaSuccess;
}

static cudaError_t make_call(cudaGraphExec_t e, const sim_node *node, sim_stream *stream)
{
    sim_stream *to = node->stream ? e->others[node->stream] : stream;
    switch (node->what) {
    case SIM_NODE_MARK:
        return ls__sim_event_record(e->points[node->point], to);
    case SIM_NODE_WAIT:
        return ls__sim_event_wait(e->points[node->point], to);
    default:
        return ls__sim_enqueue_now(to, node->kind, node->name, node->arguments, node->nbytes);
    }
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t stream)
{
    sim_stream *s = ls__sim_stream(stream);
    if (!e || !s) return ls__sim_error(cudaErrorInvalidValue, "no graph or no stream");
    sim_capture *capture = ls__sim_stream_capture(s);
    if (capture) return ls__sim_capture_refuse(capture, "cudaGraphLaunch");
    SIM_TRY(ls__sim_known(ls__sim_stream_device(s)));
    SIM_TRY(ls__sim_event_wait(e->done, s));
    for (size_t i = 0; i < e->nnodes; i++) SIM_TRY(make_call(e, &e->nodes[i], s));
    return ls__sim_event_record(e->done, s);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t e)
{
    if (!e) return ls__sim_error(cudaErrorInvalidValue, "no graph");
    for (int i = 1; i < e->nstreams; i++)
        if (e->others[i]) cudaStreamDestroy(e->others[i]);
    for (int i = 0; i < e->npoints; i++) cudaEventDestroy(e->points[i]);
    if (e->done) cudaEventDestroy(e->done);
    for (size_t i = 0; i < e->nnodes; i++) ls__free(e->nodes[i].arguments);
    ls__free(e->points);
    ls__free(e->nodes);
    ls__free(e);
    return cudaSuccess;
}
