/* Periods and spans: arithmetic on the run's clock. A period in epochs is counted from the run's
 * beginning in sample positions, so that a step which crosses several marks is due once. */
#include "run/period.h"

#include <math.h>

static bool crosses(double period, const ls__tick *tick)
{
    double mark = period * (double)tick->length;
    return floor((double)tick->after / mark) > floor((double)tick->before / mark);
}

bool ls__period_due(const ls_every *every, const ls__tick *tick)
{
    if (every->steps > 0) return tick->step % every->steps == 0;
    return every->epochs > 0 && crosses(every->epochs, tick);
}

bool ls__tick_ends_epoch(const ls__tick *tick)
{
    return tick->after / tick->length > tick->before / tick->length;
}

ls__span ls__run_span(int64_t max_epochs, int64_t max_steps, int64_t length, int64_t batch,
                      int64_t step, int64_t position)
{
    ls__span span = { INT64_MAX, INT64_MAX };
    if (max_epochs > 0 && __builtin_mul_overflow(max_epochs, length, &span.samples))
        span.samples = INT64_MAX;
    if (span.samples != INT64_MAX) {
        int64_t left = span.samples > position ? span.samples - position : 0;
        span.steps = step + left / batch + (left % batch != 0);
    }
    if (max_steps > 0 && max_steps < span.steps) span.steps = max_steps;
    return span;
}
