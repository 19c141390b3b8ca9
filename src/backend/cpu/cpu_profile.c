/* Where a run's time goes: a time stamp before and behind every call of a step, kept per thread so
 * that threads share no line, added up when somebody asks. Only while profiling: else a step costs
 * one comparison more. */
#include <string.h>

#include "backend/cpu/compile.h"
#include "base/clock.h"

/* Threads write neighbouring rows: a row is whole cache lines. */
static int64_t row_of(const cpu_program *p)
{
    return ((int64_t)p->nsteps + 7) / 8 * 8;
}

void ls__cpu_measure(const cpu_call *call)
{
    const cpu_program *p = call->program;
    cpu_profile *profile = p->profile;
    int step = (int)(call->step - p->steps);
    int64_t at = call->thread * row_of(p) + step, begin = ls__now_ns();
    call->step->run(call);
    int64_t end = ls__now_ns();
    profile->step_ns[at] += end - begin;
    profile->calls[at]++;
    int64_t *n = &profile->nevents[call->thread * 8];
    if (!call->context->trace || *n >= profile->room) return;
    profile->events[call->thread * profile->room + (*n)++] =
        (ls__profile_event) { step, call->thread, begin, end };
}

/* What a run of the step reads and writes; a temporary buffer is in the cache. */
static double step_bytes(const cpu_program *p, const cpu_step *step)
{
    double nbytes = 0;
    for (int i = 0; i < step->nbuffers; i++) {
        const cpu_buffer *b = &p->buffers[step->buffers[i]];
        if (!b->temporary) nbytes += (double)b->nbytes;
    }
    return nbytes;
}

static ls_status make_profile(const cpu_program *p, cpu_profile *profile, int64_t events)
{
    size_t threads = (size_t)p->threads, cells = threads * (size_t)row_of(p);
    profile->threads = p->threads;
    profile->room = events;
    profile->step_ns = ls__alloc(cells + 1, sizeof *profile->step_ns);
    profile->calls = ls__alloc(cells + 1, sizeof *profile->calls);
    profile->steps = ls__alloc((size_t)p->nsteps + 1, sizeof *profile->steps);
    profile->events = ls__alloc(threads * (size_t)events + 1, sizeof *profile->events);
    profile->nevents = ls__alloc(threads * 8, sizeof *profile->nevents);
    return profile->step_ns && profile->calls && profile->steps && profile->events &&
                   profile->nevents
               ? LS_OK
               : LS_ERR_MEMORY;
}

void ls__cpu_profile_free(cpu_profile *profile)
{
    if (!profile) return;
    ls__free(profile->step_ns);
    ls__free(profile->calls);
    ls__free(profile->steps);
    ls__free(profile->events);
    ls__free(profile->nevents);
    ls__free(profile);
}

ls_status ls__cpu_program_profile(cpu_program *p, int64_t events)
{
    cpu_profile *profile = ls__alloc(1, sizeof *profile);
    if (!profile) return LS_ERR_MEMORY;
    ls_status status = make_profile(p, profile, events);
    if (status != LS_OK) {
        ls__cpu_profile_free(profile);
        return status;
    }
    ls__cpu_profile_free(p->profile);
    p->profile = profile;
    return LS_OK;
}

static void add_up(const cpu_program *p, int step)
{
    const cpu_step *s = &p->steps[step];
    ls__profile_step *out = &p->profile->steps[step];
    int64_t ns = 0, calls = 0;
    for (int t = 0; t < p->threads; t++) {
        ns += p->profile->step_ns[t * row_of(p) + step];
        calls += p->profile->calls[t * row_of(p) + step];
    }
    *out = (ls__profile_step) { .node = s->node,
                                .partner = s->partner,
                                .what = s->what,
                                .calls = calls,
                                .seconds = (double)ns * 1e-9,
                                .nbytes = step_bytes(p, s) };
}

/* The threads' events behind one another. */
static int64_t join_events(cpu_profile *profile)
{
    int64_t n = 0;
    for (int t = 0; t < profile->threads; t++) {
        int64_t own = profile->nevents[t * 8];
        memmove(profile->events + n, profile->events + t * profile->room,
                (size_t)own * sizeof *profile->events);
        n += own;
    }
    return n;
}

void ls__cpu_program_profile_read(const cpu_program *p, ls__profile *out)
{
    cpu_profile *profile = p->profile;
    *out = (ls__profile) { 0 };
    if (!profile) return;
    for (int s = 0; s < p->nsteps; s++) add_up(p, s);
    *out = (ls__profile) { .threads = p->threads,
                           .runs = profile->runs,
                           .seconds = (double)profile->ns * 1e-9,
                           .steps = profile->steps,
                           .nsteps = p->nsteps,
                           .events = profile->events,
                           .nevents = join_events(profile) };
    for (int t = 0; t < p->threads; t++) profile->nevents[t * 8] = profile->room; /* no more */
}
