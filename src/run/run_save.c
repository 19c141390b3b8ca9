/* Saves: what is due is handed to the checkpointer, which copies and returns; a thread of its own
 * writes. Before that, parameters are looked at once: a checkpoint that holds a NaN would be worse
 * than none. */
#include <math.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "run/run_state.h"
#include "run/space_state.h"

ls_status ls__run_checkpointer_make(ls_run *run)
{
    const ls_run_options *o = &run->settings.options;
    const ls_space *space = run->space;
    ls__checkpointer_options options = {
        .folder = run->folder.checkpoints,
        .rank = run->rank,
        .size = run->size,
        .store = run->size > 1 ? ls__world_store(run->world) : NULL,
        .timeout_ms = ls__world_timeout_ms(run->world),
        .tensors = space->saved,
        .ntensors = space->ntensors,
        .ranges = space->saved_ranges,
        .nranges = space->nranges,
        .states = space->kind->states,
        .nstates = space->nstates,
        .keep_last = o->checkpoint.keep_last,
        .keep_best = o->checkpoint.keep_best,
        .monitor = run->best.monitor,
        .higher_is_better = run->best.mode == LS_MODE_MAX,
        .seldom = !ls__run_saves(run),
    };
    return ls__checkpointer_create(&options, &run->checkpointer);
}

static void check_finite(ls_run *run)
{
    int tensor;
    if (run->status != LS_OK || ls__space_finite(run->space, &tensor)) return;
    ls__run_fail(run,
                 ls_fail(LS_ERR_DIVERGED,
                         "step %lld: parameter %s is not finite: training diverged, and this step "
                         "is not saved; try a lower --lr, --warmup-steps or --gradient-clip-val",
                         (long long)run->step, run->space->tensors[tensor].name));
}

/* A checkpoint of the step is in the writer's hands. */
static void saved(ls_run *run)
{
    run->saved_step = run->step;
    run->last_save = ls__now();
    if (run->record)
        ls__record_event(run->record, "checkpoint",
                         json_pack("{s:I}", "step", (json_int_t)run->step));
    ls__run_call(run, LS__HOOK_CHECKPOINT_SAVED);
}

void ls__run_save(ls_run *run)
{
    double began = ls__now();
    if (run->saved_step == run->step) return;
    ls_status there = run->status == LS_OK ? ls__space_get(run->space, true, false) : LS_OK;
    if (there != LS_OK) ls__run_fail(run, there);
    check_finite(run);
    if (!ls__run_meet(run)) return;
    ls__run_gather_loose(run);
    if (run->shared) return;
    json_t *trainer = run->rank == 0 ? ls__trainer_json(run) : NULL;
    ls_status status = run->rank == 0 && !trainer ? LS_ERR_MEMORY : LS_OK;
    status = ls__share_failure(run->comm, status, NULL, NULL);
    if (status == LS_OK) {
        status = ls__checkpoint_save(run->checkpointer, run->step, run->space->params,
                                     run->space->states, trainer, run->judged);
        if (status == LS_OK) saved(run);
        /* The error of an earlier save is the same on every rank; one of this save may not be. */
        if (status != LS_OK) ls__run_fail(run, status);
    } else {
        ls__run_fail_shared(run, status);
    }
    json_decref(trainer);
    ls__stopwatch_pause(&run->watch, ls__now() - began);
}
