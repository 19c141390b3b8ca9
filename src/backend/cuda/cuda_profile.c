/* Where a run's time goes: an event behind every step, and their differences added up when the run
 * is over. On the device events cost microseconds, so that what is measured is what runs. */
#include <string.h>

#include "backend/cuda/cuda_executable.h"
#include "base/clock.h"

#define AHEAD "next batch to the device, beside the steps"

typedef struct cuda_profile {
    cudaEvent_t *marks; /* (nmarks) */
    int nmarks;
    ls__profile_step *steps; /* (nsteps) copies there, steps, copies back, copies ahead */
    int nsteps;
    ls__profile_event *events;
    int64_t nevents, room;
    int64_t runs;
    double seconds;
} cuda_profile;

void ls__cuda_profile_free(cuda_profile *profile)
{
    if (!profile) return;
    for (int i = 0; i < profile->nmarks; i++)
        if (profile->marks[i]) cudaEventDestroy(profile->marks[i]);
    ls__free(profile->marks);
    ls__free(profile->steps);
    ls__free(profile->events);
    ls__free(profile);
}

static double node_bytes(const ls__node *node)
{
    double nbytes = 0;
    for (int k = 0; k < node->nin; k++) nbytes += (double)ls__cuda_stored_bytes(node->in[k]);
    for (int k = 0; k < node->nout; k++) nbytes += (double)ls__cuda_stored_bytes(node->out[k]);
    return nbytes;
}

static void describe_steps(const ls__executable *e, cuda_profile *p)
{
    const ls__node *nodes;
    int n = ls__graph_nodes(e->graph, &nodes);
    p->steps[0] = (ls__profile_step) { .node = 0, .partner = -1, .what = "copies to the device" };
    for (int i = 0; i < e->nsteps; i++)
        p->steps[1 + i] = (ls__profile_step) { .node = (int)(e->steps[i].node - nodes),
                                               .partner = -1,
                                               .nbytes = node_bytes(e->steps[i].node) };
    p->steps[1 + e->nsteps] = (ls__profile_step) { .node = n > 0 ? n - 1 : 0,
                                                   .partner = -1,
                                                   .what = "copies from the device" };
    p->steps[2 + e->nsteps] =
        (ls__profile_step) { .node = 0, .partner = -1, .what = AHEAD, .beside = true };
}

static ls_status make_profile(const ls__executable *e, cuda_profile *p, int64_t events)
{
    p->nsteps = e->nsteps + 3;
    p->nmarks = p->nsteps; /* copies ahead have marks of their own */
    p->room = events;
    p->marks = ls__alloc((size_t)p->nmarks, sizeof(cudaEvent_t));
    p->steps = ls__alloc((size_t)p->nsteps, sizeof *p->steps);
    p->events = ls__alloc((size_t)events + 1, sizeof *p->events);
    if (!p->marks || !p->steps || !p->events) return LS_ERR_MEMORY;
    for (int i = 0; i < p->nmarks; i++)
        LS_CUDA_TRY(cudaEventCreate(&p->marks[i]), "making an event");
    describe_steps(e, p);
    return LS_OK;
}

ls_status ls__cuda_profile_begin(ls__executable *e, int64_t events)
{
    cuda_device *d = ls__cuda_device();
    cuda_profile *p = ls__alloc(1, sizeof *p);
    if (!p) return LS_ERR_MEMORY;
    ls_status status = ls__cuda_enter(d);
    if (status != LS_OK) {
        ls__free(p);
        return status;
    }
    status = make_profile(e, p, events);
    if (status == LS_OK) {
        ls__cuda_profile_free(e->profile);
        e->profile = p;
    } else {
        ls__cuda_profile_free(p);
    }
    ls__cuda_leave(d);
    return status;
}

ls_status ls__cuda_mark(ls__executable *e, int mark)
{
    if (!e->profile) return LS_OK;
    LS_CUDA_TRY(cudaEventRecord(e->profile->marks[mark], ls__cuda_device()->stream),
                "recording an event");
    return LS_OK;
}

static void add_event(cuda_profile *p, int step, int thread, int64_t begin_ns, int64_t end_ns)
{
    if (p->nevents < p->room)
        p->events[p->nevents++] = (ls__profile_event) { step, thread, begin_ns, end_ns };
}

/* The next batch's copy, which ran beside the steps. */
static ls_status add_ahead(ls__executable *e, bool trace, int64_t begin_ns)
{
    cuda_profile *p = e->profile;
    double at, ms;
    int step = p->nsteps - 1;
    LS_TRY(ls__cuda_ahead_time(e, p->marks[0], &at, &ms));
    if (ms <= 0) return LS_OK;
    p->steps[step].calls++;
    p->steps[step].seconds += ms * 1e-3;
    if (trace)
        add_event(p, step, 1, begin_ns + (int64_t)(at * 1e6),
                  begin_ns + (int64_t)((at + ms) * 1e6));
    return LS_OK;
}

ls_status ls__cuda_profile_add(ls__executable *e, const ls__run_context *context, int64_t begin_ns)
{
    cuda_profile *p = e->profile;
    double at = 0; /* ms since the first mark */
    if (!p) return LS_OK;
    for (int i = 0; i < p->nsteps - 1; i++) {
        float ms = 0;
        LS_CUDA_TRY(cudaEventElapsedTime(&ms, p->marks[i], p->marks[i + 1]), "measuring");
        p->steps[i].calls++;
        p->steps[i].seconds += (double)ms * 1e-3;
        if (context->trace)
            add_event(p, i, 0, begin_ns + (int64_t)(at * 1e6),
                      begin_ns + (int64_t)((at + ms) * 1e6));
        at += ms;
    }
    LS_TRY(add_ahead(e, context->trace, begin_ns));
    p->runs++;
    p->seconds += (double)(ls__now_ns() - begin_ns) * 1e-9;
    return LS_OK;
}

void ls__cuda_profile_read(ls__executable *e, ls__profile *out)
{
    cuda_profile *p = e->profile;
    *out = (ls__profile) { 0 };
    if (!p) return;
    *out = (ls__profile) { .threads = 1,
                           .runs = p->runs,
                           .seconds = p->seconds,
                           .steps = p->steps,
                           .nsteps = p->nsteps,
                           .events = p->events,
                           .nevents = p->nevents };
}
