/* The end of a step: agreement, then commit. Everything that ranks must decide alike is decided
 * here, from the agreement alone. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "run/run_state.h"
#include "run/space_state.h"

/* Leaves that the loop did not ask for hold the others up as much as computed ones do. */
static void finish_leaves(ls_run *run)
{
    ls_space *space = run->space;
    if (run->leaf_open) ls__space_close_leaf(space);
    run->leaf_open = false;
    for (; run->next_leaf < run->plan.end; run->next_leaf++) {
        int64_t begin, end;
        ls__cut_micro_batch(&run->plan.cut, run->step_samples, run->next_leaf, &begin, &end);
        if (end > begin && run->status == LS_OK)
            ls__run_fail(run,
                         ls_fail(LS_ERR_ARG, "ls_space_step: the step has micro-batches left; "
                                             "call ls_run_micro_batch until it returns false"));
        ls__space_skip_leaf(space);
    }
}

static bool seconds_over(const ls_every *every, double since, double now)
{
    return every->seconds > 0 && now - since >= every->seconds;
}

/* This rank's control words. Only rank 0's clock counts. */
static uint64_t control_word(ls_run *run)
{
    const ls_run_options *o = &run->settings.options;
    uint64_t word = 0;
    if (run->status != LS_OK) word |= LS__WORD_ERROR;
    if (run->stop_asked) word |= LS__WORD_STOP;
    if (run->rank != 0) return word;
    double now = ls__now();
    if (seconds_over(&o->log_every, run->last_log, now)) word |= LS__WORD_LOG;
    if (seconds_over(&o->save_every, run->last_save, now)) word |= LS__WORD_SAVE;
    if (seconds_over(&o->validate_every, run->last_validation, now)) word |= LS__WORD_VALIDATE;
    return word;
}

static double record_mean(const ls__agreement *a, const char *name)
{
    for (int i = 0; i < a->nrecords; i++)
        if (strcmp(a->records[i].name, name) == 0) return a->records[i].sum / a->records[i].weight;
    return 0;
}

/* The name of what is not finite, or NULL. */
static const char *diverged(const ls__agreement *a, bool clipping, double *value)
{
    *value = record_mean(a, "train/loss");
    if (a->weight > 0 && !isfinite(*value)) return "train/loss";
    *value = a->norm2;
    return clipping && !isfinite(a->norm2) ? "the gradient's norm" : NULL;
}

static void fail_diverged(ls_run *run, const char *name, double value)
{
    ls__run_fail_shared(
        run, ls_fail(LS_ERR_DIVERGED,
                     "step %" PRId64 ": %s is %s: training diverged, and nothing of this step was "
                     "kept; try a lower --lr, --warmup-steps or --gradient-clip-val",
                     run->step + 1, name, isnan(value) ? "nan" : "infinite"));
}

/* The factor of the summed gradient: mean over the batch's weight, then clipping. */
static float gradient_scale(ls_run *run, const ls__agreement *a)
{
    double clip = run->settings.options.clip_norm, scale = 1.0 / a->weight;
    if (clip <= 0) return (float)scale;
    double norm = sqrt(a->norm2) * scale;
    ls__sums_add(&run->interval, "train/grad_norm", norm, 1);
    return (float)(norm > clip ? scale * (clip / norm) : scale);
}

static void commit(ls_run *run, const ls__agreement *a)
{
    ls_space *space = run->space;
    bool empty = a->weight <= 0;
    space->lr = ls__schedule_lr(&run->settings.options, run->settings.options.optimizer.lr,
                                run->step, run->span.steps == INT64_MAX ? 0 : run->span.steps);
    space->updates = run->updates;
    space->statistic_scale = 1.0f / (float)run->step_samples;
    int64_t began = ls__spent_begin(run);
    ls__space_commit(space, empty ? 0 : gradient_scale(run, a), empty, false);
    ls__spent_end(run, LS__SPENT_OPTIMIZER, began);
    space->waited = false;
    if (!empty) run->updates++;
    for (int i = 0; i < a->nrecords; i++)
        ls__sums_add(&run->interval, a->records[i].name, a->records[i].sum, a->records[i].weight);
}

static void advance(ls_run *run, uint64_t word)
{
    const ls_run_options *o = &run->settings.options;
    run->step++;
    run->tick =
        (ls__tick) { run->step, run->position, run->position + run->step_samples, run->length };
    run->position = run->tick.after;
    bool last = run->step >= run->span.steps;
    if (word & LS__WORD_STOP) run->reason = LS_STOP_REQUESTED;
    if (last)
        run->reason = run->position >= run->span.samples ? LS_STOP_MAX_EPOCHS : LS_STOP_MAX_STEPS;
    /* A signal's stop comes after the last step has been: then the run is simply finished. */
    if (run->signal && run->reason == LS_STOP_NONE) run->reason = LS_STOP_SIGNAL;
    bool ends = run->reason != LS_STOP_NONE && run->reason != LS_STOP_SIGNAL;
    run->due_log = ends || ls__period_due(&o->log_every, &run->tick) || (word & LS__WORD_LOG);
    run->due_save = ls__period_due(&o->save_every, &run->tick) || (word & LS__WORD_SAVE);
    run->due_validation =
        run->reason != LS_STOP_SIGNAL && o->validate_every.steps != LS_NONE &&
        (ends || ls__period_due(&o->validate_every, &run->tick) || (word & LS__WORD_VALIDATE));
    if (run->due_validation) run->last_validation = ls__now();
}

static void send_loose(ls_run *run)
{
    for (int64_t i = 0; i < run->loose.count; i++) {
        const ls__record *r = &run->loose.items[i];
        if (!ls__exchange_record(run->space->exchange, r->name, r->sum, r->weight))
            run->dropped = true;
    }
    run->loose.count = 0;
}

/* Where two ranks fail in one step the largest word is of one of them only; its text is fetched by
 * ls__share_failure, so here it is enough to know that somebody failed. */
static bool agree(ls_run *run, ls__agreement *a)
{
    int signal = ls__world_stop_signal(run->world);
    int64_t began = ls__spent_begin(run);
    ls_status status =
        ls__exchange_agree(run->space->exchange, control_word(run), (uint64_t)signal, a);
    ls__spent_end(run, LS__SPENT_EXCHANGE, began);
    if (status != LS_OK) {
        ls__run_fail_shared(run, status);
        return false;
    }
    if (a->word & LS__WORD_ERROR) {
        ls__space_commit(run->space, 0, true, true);
        run->space->waited = false;
        ls__run_meet(run);
        return false;
    }
    run->signal = (int)a->word_max;
    return true;
}

/* What a person with a slow machine would not find out otherwise. */
static void tell_stragglers(ls_run *run, const ls__agreement *a)
{
    char who[64];
    ls__straggler s;
    if (!ls__stragglers_step(&run->stragglers, a->waits_ms, run->watch.recent * 1e3, &s)) return;
    if (s.rank < 0)
        snprintf(who, sizeof who, "node %d", s.node);
    else if (run->stragglers.node_of)
        snprintf(who, sizeof who, "rank %d on node %d", s.rank, s.node);
    else
        snprintf(who, sizeof who, "rank %d", s.rank);
    ls__log(LS__LOG_WARN,
            "%s is slow: in %d of the last %d steps the others waited for it, %.0f of %.0f ms; is "
            "its CPU busy, throttled or bound too narrowly?",
            who, s.steps, s.of, s.held_ms, run->watch.recent * 1e3);
}

void ls_space_step(ls_space *space)
{
    ls_run *run = space ? space->run : NULL;
    if (!run || ls__run_over(run)) return;
    if (run->phase != LS__RUN_IN_STEP) {
        ls__run_fail(run, ls_fail(LS_ERR_ARG, "ls_space_step: comes once after each ls_run_next"));
        return;
    }
    run->phase = LS__RUN_STEPPED;
    if (!ls__space_wait(space)) return;
    finish_leaves(run);
    send_loose(run);
    ls__agreement a;
    if (!agree(run, &a) || !ls__space_norm(space, &a)) return;
    double value;
    const char *bad = diverged(&a, run->settings.options.clip_norm > 0, &value);
    if (bad) {
        ls__space_commit(space, 0, true, false);
        space->waited = false;
        fail_diverged(run, bad, value);
        return;
    }
    commit(run, &a);
    tell_stragglers(run, &a);
    advance(run, a.word);
    if (space->by_hand && ls__space_wait(space)) ls__space_copy_out(space);
    ls__stopwatch_step(&run->watch, run->step_samples);
}
