/* Whether a job that failed is worth another start. A job whose ranks say how far they are (heartbeats or
 * metrics) is judged by that; of one that says nothing, only a quick failure in the same way counts
 * as no progress. */
#include "base/clock.h"
#include "base/log.h"
#include "launch/launcher_job.h"

enum { STALLED_MAX = 3 };

static const double quick_seconds = 30.0; /* a start that failed sooner has done nothing */
static const double longest_delay = 60.0;

static bool same_failure(const ls__launcher_job *j)
{
    return j->before.rank == j->end.rank &&
           ls__report_exit_code(&j->before) == ls__report_exit_code(&j->end);
}

/* Whether this start came further than those before. */
static bool has_progressed(const ls__launcher_job *j, double lasted)
{
    if (j->best_step >= 0 || j->before_step >= 0) return j->best_step > j->before_step;
    return lasted >= quick_seconds || !same_failure(j);
}

static void say_stalled(const ls__launcher_job *j)
{
    if (j->before_step >= 0)
        ls__log(LS__LOG_WARN,
                "not started again: %d starts in a row came no further than step %lld", STALLED_MAX,
                (long long)j->before_step);
    else
        ls__log(LS__LOG_WARN,
                "not started again: it failed in the same way within %g s, %d times in "
                "a row",
                quick_seconds, STALLED_MAX);
}

bool ls__job_may_restart(ls__launcher_job *j)
{
    static const int final[] = { 2, 126, 127 }; /* the same command line would fail the same way */
    int code = ls__report_exit_code(&j->end);
    if (!j->failed || j->orphaned || j->stop_signal || j->restarts >= j->plan->max_restarts)
        return false;
    for (size_t i = 0; i < sizeof final / sizeof final[0]; i++)
        if (code == final[i]) return false;
    double lasted = ls__now() - j->started;
    j->stalled = has_progressed(j, lasted) ? 1 : j->stalled + 1;
    if (j->best_step > j->before_step) j->before_step = j->best_step;
    j->before = j->end;
    j->best_step = -1;
    if (j->stalled >= STALLED_MAX) {
        say_stalled(j);
        return false;
    }
    /* At once, then after 1, 2, 4, ... seconds while starts end soon. */
    j->delay = j->restarts == 0 || lasted >= quick_seconds ? 0 : j->delay > 0 ? j->delay * 2 : 1;
    if (j->delay > longest_delay) j->delay = longest_delay;
    return true;
}
