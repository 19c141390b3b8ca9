/* Times steps: from the end of one to the end of the next, without validation and saves. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"
#include "run/run_state.h"

enum { RING = 1 << 16 /* the newest steps; enough for a percentile */ };

ls_status ls__stopwatch_make(ls__stopwatch *watch)
{
    *watch = (ls__stopwatch) { .step_ms = ls__alloc(RING, sizeof(float)) };
    return watch->step_ms ? LS_OK : LS_ERR_MEMORY;
}

void ls__stopwatch_start(ls__stopwatch *watch)
{
    watch->mark = ls__now();
    watch->paused = 0;
}

void ls__stopwatch_pause(ls__stopwatch *watch, double seconds)
{
    watch->paused += seconds;
}

void ls__stopwatch_step(ls__stopwatch *watch, int64_t samples)
{
    double now = ls__now(), seconds = now - watch->mark - watch->paused;
    watch->mark = now;
    watch->paused = 0;
    watch->step_ms[watch->steps % RING] = (float)(seconds * 1e3);
    watch->total += seconds;
    /* The first step makes what later ones reuse. */
    if (watch->steps++ == 0) return;
    watch->seconds += seconds;
    watch->samples += samples;
    watch->recent = watch->recent > 0 ? 0.95 * watch->recent + 0.05 * seconds : seconds;
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

void ls__stopwatch_result(ls__stopwatch *watch, ls_run_result *out)
{
    if (watch->steps == 0) return;
    size_t n = watch->steps < RING ? (size_t)watch->steps : RING;
    qsort(watch->step_ms, n, sizeof(float), by_value);
    out->step_ms_median = watch->step_ms[n / 2];
    out->step_ms_p95 = watch->step_ms[(n * 95) / 100 < n ? (n * 95) / 100 : n - 1];
    if (watch->seconds > 0) out->samples_per_s = (double)watch->samples / watch->seconds;
}
