/* The loop: ls_run_next and ls_run_micro_batch. What is due behind a step is done at the next
 * call of ls_run_next, in one fixed order: log, callbacks, stop, save. All of it is decided from
 * agreed values, so no rank asks another. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "run/run_state.h"
#include "run/space_state.h"

static void begin_step(ls_run *run)
{
    int64_t left = run->span.samples - run->position, batch = run->settings.options.batch_size;
    run->phase = LS__RUN_IN_STEP;
    run->step_samples = left < batch ? left : batch;
    run->next_leaf = run->plan.begin;
    run->leaf_open = false;
    run->due_validation = false;
    run->improved = false;
    run->judged = NAN;
    ls__space_begin_step(run->space);
}

/* Which of the ranks asked, and why, is for people; the decision has been made. */
static void tell_request(ls_run *run)
{
    char *texts = ls__alloc((size_t)run->size, LS__STOP_TEXT_MAX);
    char *own = texts ? texts + (size_t)run->rank * LS__STOP_TEXT_MAX : run->stop_text;
    if (texts) memcpy(own, run->stop_text, LS__STOP_TEXT_MAX);
    ls_status status = ls_comm_all_gather(run->comm, own, texts, LS__STOP_TEXT_MAX, LS_DTYPE_U8);
    if (status != LS_OK) ls__run_fail_shared(run, status);
    for (int r = 0; texts && status == LS_OK && run->rank == 0 && r < run->size; r++)
        if (texts[(size_t)r * LS__STOP_TEXT_MAX])
            ls__log(LS__LOG_INFO, "stops after step %lld as asked: %s", (long long)run->step,
                    texts + (size_t)r * LS__STOP_TEXT_MAX);
    ls__free(texts);
}

static void over(ls_run *run)
{
    run->phase = LS__RUN_OVER;
    ls__run_call(run, LS__HOOK_FIT_END);
}

/* A stop by signal is no end: the point that is due belongs to a later step. */
static bool is_last(const ls_run *run)
{
    return run->reason != LS_STOP_NONE && run->reason != LS_STOP_SIGNAL;
}

static void log_point(ls_run *run)
{
    if (is_last(run)) ls__run_gather_loose(run);
    if (run->interval.count > 0) ls__run_log_point(run);
}

/* A stop by signal is always saved, whatever the period: the same command goes on from it. */
static bool is_save_due(const ls_run *run, bool ends)
{
    const ls_run_options *o = &run->settings.options;
    if (run->due_save || run->reason == LS_STOP_SIGNAL) return true;
    if (ends && o->save_every.steps != LS_NONE) return true;
    if (run->improved) return o->checkpoint.keep_best != 0;
    return !isnan(run->judged) &&
           (o->checkpoint.keep_best > 1 || o->checkpoint.keep_best == LS_NONE);
}

bool ls__run_after_step(ls_run *run)
{
    bool ends = run->reason != LS_STOP_NONE;
    if (run->rank == 0 && run->step == run->start_step + 1)
        ls__log(LS__LOG_DEBUG, "the first step was done %.0f ms after the start of the program",
                (run->watch.mark - ls__world_started(run->world)) * 1e3);
    if (ends && run->reason == LS_STOP_REQUESTED) tell_request(run);
    ls__run_call(run, LS__HOOK_STEP_END);
    if (ls__tick_ends_epoch(&run->tick)) ls__run_call(run, LS__HOOK_EPOCH_END);
    if (run->due_log || is_last(run)) log_point(run);
    ends = run->reason != LS_STOP_NONE || run->signal;
    if (ends && run->reason == LS_STOP_NONE) run->reason = LS_STOP_SIGNAL;
    if (run->shared) return false;
    if (is_save_due(run, ends)) ls__run_save(run);
    if (run->shared) return false;
    if (ends) {
        over(run);
        return false;
    }
    return true;
}

bool ls_run_next(ls_run *run)
{
    if (!run || ls__run_over(run)) return false;
    if (run->phase == LS__RUN_IN_STEP) {
        ls__run_fail_shared(run,
                            ls_fail(LS_ERR_ARG, "ls_run_next: ls_space_step has not been called"));
        return false;
    }
    if (run->phase == LS__RUN_CREATED) {
        ls__run_begin(run);
        if (ls__run_over(run)) return false;
    } else if (run->status == LS_OK) {
        if (!ls__run_after_step(run)) return false;
        if (ls__tick_ends_epoch(&run->tick)) ls__run_call(run, LS__HOOK_EPOCH_BEGIN);
        ls__run_progress(run, "train");
    }
    begin_step(run);
    return true;
}

/* A read error is the dataset's, whatever status it chose: one that means a lost communicator here
 * would make this rank leave alone. */
static void fail_read(ls_run *run, ls_status status)
{
    if (ls__comm_lost(status)) status = ls_fail(LS_ERR_IO, "%s", ls_error_text());
    ls__run_fail(run, status);
}

static bool next_batch(ls_run *run, int64_t begin, int64_t end, ls_batch *out)
{
    ls__loader_batch batch;
    bool more;
    int64_t began = ls__spent_begin(run);
    ls_status status = ls__loader_next(run->loader, &batch, &more);
    ls__spent_end(run, LS__SPENT_DATA, began);
    if (status != LS_OK) {
        fail_read(run, status);
        return false;
    }
    LS_ASSERT(more && batch.begin == run->position + begin && batch.count == end - begin);
    *out = (ls_batch) {
        .count = batch.count, .samples = batch.samples, .fields = batch.fields, .first = begin
    };
    run->batches++;
    return true;
}

bool ls__run_peek(ls_run *run, ls_batch *out)
{
    ls__loader_batch batch;
    if (run->status != LS_OK || !run->model.peeks || !ls__loader_peek(run->loader, &batch))
        return false;
    *out = (ls_batch) { .count = batch.count, .samples = batch.samples, .fields = batch.fields };
    return true;
}

int64_t ls__run_batches(const ls_run *run)
{
    return run->batches;
}

bool ls_run_micro_batch(ls_run *run, ls_batch *out)
{
    if (!run || ls__run_over(run) || run->status != LS_OK || run->phase != LS__RUN_IN_STEP)
        return false;
    if (!ls__space_wait(run->space)) return false;
    if (run->leaf_open) ls__space_close_leaf(run->space);
    run->leaf_open = false;
    while (run->next_leaf < run->plan.end) {
        int64_t begin, end;
        ls__cut_micro_batch(&run->plan.cut, run->step_samples, run->next_leaf, &begin, &end);
        if (end > begin && !next_batch(run, begin, end, out)) return false;
        run->next_leaf++;
        if (end == begin) {
            ls__space_skip_leaf(run->space);
            continue;
        }
        ls__space_open_leaf(run->space);
        run->leaf_open = true;
        return true;
    }
    return false;
}

bool ls_run_due_validation(ls_run *run)
{
    return run && !ls__run_over(run) && run->phase == LS__RUN_STEPPED && run->due_validation;
}

void ls_run_stop(ls_run *run, const char *reason)
{
    if (!run || run->stop_asked) return;
    run->stop_asked = true;
    size_t n = reason ? strnlen(reason, LS__STOP_TEXT_MAX - 1) : 0;
    memcpy(run->stop_text, reason ? reason : "", n);
    if (n == 0) memcpy(run->stop_text, "no reason given", 16);
}

int64_t ls_run_step(const ls_run *run)
{
    return run->step;
}

int64_t ls_run_epoch(const ls_run *run)
{
    return run->position / run->length;
}

const char *ls_run_folder(const ls_run *run)
{
    return run->folder.path;
}

const ls_run_options *ls__run_options(const ls_run *run)
{
    return &run->settings.options;
}

void ls__run_with_model(ls_run *run, const ls__run_model *model)
{
    run->model = *model;
}

ls_dataset *ls__run_train(const ls_run *run)
{
    return run->train;
}
