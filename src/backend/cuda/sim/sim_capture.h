/* Capture: calls on streams are recorded instead of run, and become a graph. */
#ifndef LS_BACKEND_CUDA_SIM_CAPTURE_H
#define LS_BACKEND_CUDA_SIM_CAPTURE_H

#include "backend/cuda/sim/sim_internal.h"

/* In what streams a capture is, how many points in them events have marked. */
enum { SIM_CAPTURE_STREAMS = 16 };

typedef struct sim_capture sim_capture;

/* A call, or a point of a stream that is marked, or waited for. Streams are numbered in the order in
 * which they joined; 0 is the one that the graph is launched on. */
typedef enum sim_node_what { SIM_NODE_CALL, SIM_NODE_MARK, SIM_NODE_WAIT } sim_node_what;

typedef struct sim_node {
    sim_node_what what;
    int stream;
    int point;
    const sim_call_kind *kind;
    const char *name;
    void *arguments; /* owned */
    size_t nbytes;
} sim_node;

struct CUgraph_st {
    sim_node *nodes;
    size_t nnodes;
    int nstreams, npoints;
};

/* --- of streams, in sim_stream.c --- */
sim_capture *ls__sim_stream_capture(const sim_stream *stream);
void ls__sim_stream_set_capture(sim_stream *stream, sim_capture *capture);

/* --- of events, in sim_event.c: the point that its last record marks; capture 0 = none --- */
void ls__sim_event_set_point(sim_event *event, uint64_t capture, int point);

cudaError_t ls__sim_capture_call(sim_capture *c, sim_stream *stream, const sim_call_kind *kind,
                                 const char *name, const void *arguments, size_t nbytes);
cudaError_t ls__sim_capture_mark(sim_capture *c, sim_event *event, sim_stream *stream);
/* A stream waits for a point of a capture, and is captured too from here on. */
cudaError_t ls__sim_capture_wait(uint64_t capture, int point, sim_stream *stream);
/* A call that a capture cannot hold: the capture fails. */
cudaError_t ls__sim_capture_refuse(sim_capture *c, const char *call);
/* Fails while the calling thread captures in a mode that forbids calls like this one. */
cudaError_t ls__sim_capture_forbids(const char *call);
/* The stream ends. */
void ls__sim_capture_leave(sim_capture *c, sim_stream *stream);

#endif
