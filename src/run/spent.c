/* What a step's time is spent on besides computing, for profiles. A run that is not profiled reads no
 * clock for it. */
#include "base/clock.h"
#include "run/run_state.h"

const char *ls__spent_name(ls__spent_kind kind)
{
    static const char *const names[] = { [LS__SPENT_DATA] = "data",
                                         [LS__SPENT_EXCHANGE] = "exchange",
                                         [LS__SPENT_OPTIMIZER] = "optimizer" };
    return names[kind];
}

int64_t ls__spent_begin(const ls_run *run)
{
    return run->spent.on ? ls__now_ns() : 0;
}

void ls__spent_end(ls_run *run, ls__spent_kind kind, int64_t began)
{
    ls__spent *s = &run->spent;
    if (!s->on) return;
    int64_t end = ls__now_ns();
    s->seconds[kind] += (double)(end - began) * 1e-9;
    if (s->tracing && s->nspans < LS__SPANS_MAX)
        s->spans[s->nspans++] = (ls__span_of_time) { kind, began, end };
}

void ls__run_profile_begin(ls_run *run)
{
    run->spent = (ls__spent) { .on = true };
    run->spent.step = run->watch.steps;
    run->spent.began = run->watch.total;
}

void ls__run_profile_trace(ls_run *run, bool tracing)
{
    run->spent.tracing = tracing;
}

const ls__spent *ls__run_profile_end(ls_run *run)
{
    ls__spent *s = &run->spent;
    s->steps = run->watch.steps - s->step;
    s->total = run->watch.total - s->began;
    s->on = false;
    run->profiled = s->steps > 0;
    return s;
}
