/* Running a program: lanes over threads, tiles in a lane, steps in a tile.
 *
 * Neighbouring tiled steps form a segment; between segments and around whole steps all threads
 * meet. A run allocates nothing and makes no system call of its own. */
#include <omp.h>

#include "backend/cpu/cpu.h"
#include "base/clock.h"

typedef struct run {
    const cpu_program *program;
    const ls__run_context *context;
    char **base;
    int first, last; /* the steps of this segment: [first, last) */
} run;

static char *scratch_of(const run *r, int thread)
{
    return (char *)r->context->arena + r->program->whole_bytes +
           (size_t)thread * r->program->scratch_bytes;
}

static cpu_call call_of(run *r, int thread)
{
    return (cpu_call) { .program = r->program,
                        .context = r->context,
                        .base = r->base,
                        .scratch = scratch_of(r, thread),
                        .failure = &r->program->failures[thread],
                        .thread = thread,
                        .end = r->program->batch };
}

static void run_lane(run *r, cpu_call *call)
{
    const cpu_program *p = r->program;
    int64_t begin = p->ntiles * call->lane / p->lanes,
            end = p->ntiles * (call->lane + 1) / p->lanes;
    for (int64_t tile = begin; tile < end; tile++) {
        call->begin = tile * p->tile;
        call->end = call->begin + p->tile < p->batch ? call->begin + p->tile : p->batch;
        call->tail = call->end - call->begin < p->tile;
        call->lane_begins = tile == begin;
        for (int s = r->first; s < r->last; s++) {
            call->step = &p->steps[s];
            ls__cpu_run_step(call);
        }
    }
}

static void run_lanes(void *context, int thread)
{
    run *r = context;
    const cpu_program *p = r->program;
    cpu_call call = call_of(r, thread);
    int begin = p->lanes * thread / p->threads, end = p->lanes * (thread + 1) / p->threads;
    for (call.lane = begin; call.lane < end; call.lane++) run_lane(r, &call);
}

static void run_tasks(void *context, int thread)
{
    run *r = context;
    const cpu_step *step = &r->program->steps[r->first];
    int threads = r->program->threads;
    cpu_call call = call_of(r, thread);
    call.step = step;
    int64_t begin = step->ntasks * thread / threads, end = step->ntasks * (thread + 1) / threads;
    for (call.task = begin; call.task < end; call.task++) ls__cpu_run_step(&call);
}

static int segment_end(const cpu_program *p, int first)
{
    int last = first + 1;
    while (p->steps[first].tiled && last < p->nsteps && p->steps[last].tiled) last++;
    return last;
}

static ls_status fail_value(const cpu_failure *f, const int64_t *samples)
{
    return ls_fail(LS_ERR_DATA, "%s %lld of sample %lld is not in [0, %lld)", f->what,
                   (long long)f->value, (long long)(samples ? samples[f->sample] : f->sample),
                   (long long)f->limit);
}

static ls_status failed(const cpu_program *p, const int64_t *samples)
{
    const cpu_failure *first = NULL;
    for (int t = 0; t < p->threads; t++) {
        const cpu_failure *f = &p->failures[t];
        if (f->dnnl != dnnl_success)
            return ls_fail(LS_ERR_INTERNAL, "oneDNN: status %d while running", (int)f->dnnl);
        if (f->sample >= 0 && (!first || f->sample < first->sample)) first = f;
    }
    return first ? fail_value(first, samples) : LS_OK;
}

ls_status ls__cpu_program_run(const cpu_program *p, char **base, const ls__run_context *context)
{
    run r = { .program = p, .context = context, .base = base };
    for (int t = 0; t < p->threads; t++) p->failures[t] = (cpu_failure) { .sample = -1 };
    int64_t begin = p->profile ? ls__now_ns() : 0;
    omp_set_num_threads(p->threads); /* the caller may be a thread that OpenMP has not seen yet */
    for (r.first = 0; r.first < p->nsteps; r.first = r.last) {
        r.last = segment_end(p, r.first);
        ls__cpu_parallel_threads(p->steps[r.first].tiled ? run_lanes : run_tasks, &r);
    }
    if (p->profile) {
        p->profile->ns += ls__now_ns() - begin;
        p->profile->runs++;
    }
    return failed(p, context->samples);
}
