/* A run's failure: latched where it happens, known to all ranks at the next agreement. In
 * between a failing rank goes on through the motions, because a rank that leaves alone makes the
 * others wait. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "run/run_state.h"

void ls__run_fail(ls_run *run, ls_status status)
{
    if (ls__comm_lost(status)) run->shared = true;
    if (run->status != LS_OK) return;
    run->status = status;
    snprintf(run->text, sizeof run->text, "%s", ls_error_text());
}

void ls__run_fail_shared(ls_run *run, ls_status status)
{
    ls__run_fail(run, status);
    run->shared = true;
}

bool ls__run_over(const ls_run *run)
{
    return run->phase == LS__RUN_OVER || run->shared;
}

bool ls__run_meet(ls_run *run)
{
    if (run->shared) return false;
    /* The text travels from the thread's last failure. */
    ls_status own = run->status == LS_OK ? LS_OK : ls_fail(run->status, "%s", run->text);
    uint64_t signal = (uint64_t)ls__world_stop_signal(run->world);
    ls_status status = ls__share_failure(run->comm, own, NULL, &signal);
    if (status != LS_OK) {
        run->status = LS_OK; /* the first failing rank's words, on every rank */
        ls__run_fail_shared(run, status);
        return false;
    }
    run->signal = (int)signal;
    return true;
}
