/* A run's steps, one by one or as a captured graph.
 *
 * A small model's run is hundreds of launches of a few microseconds each, and the host is what it
 * waits for; a graph is one launch. Steps read from device memory whatever changes from run to run,
 * so a graph stays right until pointers move. The first run after that is made step by step: then
 * kernels are loaded and the vendors' libraries have chosen. What cannot be captured (operations on
 * the host, a measured run) goes on step by step, and so does what a library refuses to have
 * captured.
 *
 * Where gradients are exchanged while others are computed, the steps are cut into stretches: behind
 * each some buckets of gradients are complete, and an event outside of any graph says so. */
#include "backend/cuda/cuda_executable.h"
#include "backend/cuda/cuda_resident.h"
#include "base/log.h"

static int begin_of(const ls__executable *e, int piece)
{
    return piece ? e->cuts[piece - 1].end : 0;
}

static ls_status run_steps(ls__executable *e, int piece)
{
    for (int i = begin_of(e, piece); i < e->cuts[piece].end; i++) {
        LS_TRY(ls__cuda_run_step(e, &e->steps[i]));
        LS_TRY(ls__cuda_mark(e, 2 + i));
    }
    return LS_OK;
}

void ls__cuda_forget_capture(ls__executable *e)
{
    for (int i = 0; i < e->ncuts; i++) {
        if (e->cuts[i].captured) cudaGraphExecDestroy(e->cuts[i].captured);
        e->cuts[i].captured = NULL;
    }
    e->ran = false;
}

static bool may_capture(const ls__executable *e)
{
    if (!ls__cuda_device()->captures || e->not_captured || e->nsteps < 2) return false;
    for (int i = 0; i < e->nsteps; i++)
        if (!e->steps[i].op) return false;
    return true;
}

/* The capture is ended in any case: else the stream would be lost. */
static ls_status capture(ls__executable *e, int piece)
{
    cudaStream_t stream = ls__cuda_device()->stream;
    cudaGraphExec_t *captured = &e->cuts[piece].captured;
    cudaGraph_t graph = NULL;
    LS_CUDA_TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing");
    ls_status status = run_steps(e, piece);
    cudaError_t error = cudaStreamEndCapture(stream, &graph);
    if (status == LS_OK && error == cudaSuccess) error = cudaGraphInstantiate(captured, graph, 0);
    if (graph) cudaGraphDestroy(graph);
    if (status == LS_OK && error != cudaSuccess) status = ls__cuda_fail(error, "capturing");
    if (status != LS_OK) *captured = NULL;
    return status;
}

static ls_status compute_piece(ls__executable *e, int piece, bool captures)
{
    const cuda_cut *cut = &e->cuts[piece];
    if (begin_of(e, piece) == cut->end) return LS_OK;
    if (captures && !cut->captured && !e->not_captured && capture(e, piece) != LS_OK) {
        ls__log(LS__LOG_DEBUG, "a run's steps are not captured: %s", ls_error_text());
        cudaGetLastError();
        e->not_captured = true;
    }
    if (!captures || !cut->captured) return run_steps(e, piece);
    LS_CUDA_TRY(cudaGraphLaunch(cut->captured, ls__cuda_device()->stream), "launching a run");
    return LS_OK;
}

ls_status ls__cuda_compute(ls__executable *e, const ls__run_context *context)
{
    bool captures = !e->profile && e->ran && may_capture(e);
    for (int i = 0; i < e->ncuts; i++) {
        LS_TRY(compute_piece(e, i, captures));
        if (e->cuts[i].bucket >= 0)
            LS_TRY(ls__cuda_resident_ready(context->resident, e->cuts[i].bucket));
    }
    e->ran |= !e->profile;
    return LS_OK;
}
