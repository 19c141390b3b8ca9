/* A run's steps, one by one or as a captured graph.
 *
 * A small model's run is hundreds of launches of a few microseconds each, and the host is what it
 * waits for; a graph is one launch. Steps read from device memory whatever changes from run to run,
 * so a graph stays right until pointers move. The first run after that is made step by step: then
 * kernels are loaded and the vendors' libraries have chosen. What cannot be captured (operations on
 * the host, a measured run) goes on step by step, and so does what a library refuses to have
 * captured. */
#include "backend/cuda/cuda_executable.h"
#include "base/log.h"

static ls_status run_steps(ls__executable *e)
{
    for (int i = 0; i < e->nsteps; i++) {
        LS_TRY(ls__cuda_run_step(e, &e->steps[i]));
        LS_TRY(ls__cuda_mark(e, 2 + i));
    }
    return LS_OK;
}

void ls__cuda_forget_capture(ls__executable *e)
{
    if (e->captured) cudaGraphExecDestroy(e->captured);
    e->captured = NULL;
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
static ls_status capture(ls__executable *e)
{
    cudaStream_t stream = ls__cuda_device()->stream;
    cudaGraph_t graph = NULL;
    LS_CUDA_TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing");
    ls_status status = run_steps(e);
    cudaError_t error = cudaStreamEndCapture(stream, &graph);
    if (status == LS_OK && error == cudaSuccess)
        error = cudaGraphInstantiate(&e->captured, graph, 0);
    if (graph) cudaGraphDestroy(graph);
    if (status == LS_OK && error != cudaSuccess) status = ls__cuda_fail(error, "capturing");
    if (status != LS_OK) e->captured = NULL;
    return status;
}

static ls_status launch(const ls__executable *e)
{
    LS_CUDA_TRY(cudaGraphLaunch(e->captured, ls__cuda_device()->stream), "launching a run");
    return LS_OK;
}

ls_status ls__cuda_compute(ls__executable *e)
{
    if (e->profile) return run_steps(e);
    if (e->captured) return launch(e);
    if (!e->ran || !may_capture(e)) {
        e->ran = true;
        return run_steps(e);
    }
    if (capture(e) == LS_OK) return launch(e);
    ls__log(LS__LOG_DEBUG, "a run's steps are not captured: %s", ls_error_text());
    cudaGetLastError();
    e->not_captured = true;
    return run_steps(e);
}
