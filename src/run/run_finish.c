/* The end of a run: what is being written is waited for, ranks meet a last time, and the result is
 * filled in while everything is still there. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/check.h"
#include "base/log.h"
#include "run/run_state.h"
#include "run/space_state.h"

static int64_t own_peak_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (int64_t)usage.ru_maxrss * 1024 : 0;
}

/* The loop was left without having come to its end: what it has done is kept, and no reason to stop
 * with it, so that the next start goes on. */
static void leave_early(ls_run *run)
{
    if (ls__run_over(run) || run->phase == LS__RUN_CREATED) return;
    if (run->phase == LS__RUN_STEPPED && run->status == LS_OK && !ls__run_after_step(run)) return;
    bool saves = run->settings.options.save_every.steps != LS_NONE;
    if (run->status == LS_OK && run->step > run->start_step && saves) ls__run_save(run);
    if (run->status == LS_OK) run->reason = LS_STOP_REQUESTED;
    run->phase = LS__RUN_OVER;
}

static void finish_saves(ls_run *run)
{
    if (!run->checkpointer) return;
    int64_t newest;
    ls_status status = ls__checkpoint_wait(run->checkpointer, &newest);
    if (status != LS_OK) ls__run_fail(run, status);
    if (run->rank != 0 || newest < 0) return;
    char path[LS_PATH_MAX];
    int n =
        snprintf(path, sizeof path, "%s/step-%08lld", run->folder.checkpoints, (long long)newest);
    if (n > 0 && n < (int)sizeof path) ls__world_position(run->world, run->step, path);
}

/* Rank 0 knows which checkpoint is the best; "" = none. */
static void find_best(const ls_run *run, char path[LS_PATH_MAX])
{
    double metric;
    char link[LS_PATH_MAX];
    path[0] = '\0';
    if (run->checkpointer) {
        ls__checkpointer_best(run->checkpointer, path, &metric);
        return;
    }
    if (ls__path_join(link, run->folder.checkpoints, "best") != LS_OK || !ls__path_exists(link))
        return;
    if (snprintf(link, sizeof link, "%s@best", run->folder.path) < (int)sizeof link &&
        ls__checkpoint_resolve(run->settings.options.runs_dir, link, path) != LS_OK)
        path[0] = '\0';
}

static void values_of_stage(const ls_run *run, const char *stage, ls_values *out)
{
    size_t n = strlen(stage);
    for (int i = 0; i < run->nvalues && out->count < LS_VALUES_MAX; i++) {
        if (strncmp(run->values[i].name, stage, n) != 0) continue;
        snprintf(out->items[out->count].name, LS_VALUE_NAME_MAX, "%s", run->values[i].name + n);
        out->items[out->count++].value = run->values[i].value;
    }
}

static int64_t own_device_peak(const ls_run *run)
{
    if (run->memory.device == 0 || !run->model.device_peak) return 0;
    return run->model.device_peak(run->model.user);
}

static void local_result(ls_run *run, ls_run_result *out)
{
    *out = (ls_run_result) {
        .steps = run->step,
        .epochs = run->position / run->length,
        .reason = run->reason,
        .world_size = run->size,
        .micro_batches = run->micro_batches,
        .best = run->best.monitor ? run->best.best : NAN,
        .peak_rss_bytes = own_peak_bytes(),
        .memory_predicted_bytes = run->memory.predicted,
        .device_peak_bytes = own_device_peak(run),
        .device_predicted_bytes = run->memory.device,
        .profiled = run->profiled,
    };
    snprintf(out->name, sizeof out->name, "%s", run->folder.name);
    if (run->settings.options.unit.name) {
        snprintf(out->unit.name, sizeof out->unit.name, "%s", run->settings.options.unit.name);
        out->unit.per_sample = run->settings.options.unit.per_sample;
    }
    snprintf(out->folder, sizeof out->folder, "%s", run->folder.path);
    values_of_stage(run, "train/", &out->train);
    values_of_stage(run, "val/", &out->val);
    ls__stopwatch_result(&run->watch, out);
}

/* Everybody's part of the parameters, where a device had them. */
static void bring_params(ls_run *run)
{
    if (!run->space || !run->space->resident) return;
    ls_status status = ls__space_get(run->space, false, false);
    if (status != LS_OK) ls__run_fail(run, status);
    if (!ls__run_meet(run)) return;
    status = ls__exchange_spread(run->space->exchange, -1); /* to other machines */
    if (status != LS_OK) ls__run_fail_shared(run, status);
}

static ls_status most_memory(ls_run *run, ls_run_result *out)
{
    int64_t most[] = { out->peak_rss_bytes, out->memory_predicted_bytes, out->device_peak_bytes,
                       out->device_predicted_bytes };
    ls_status status = ls_comm_all_reduce(run->comm, most, most, 4, LS_DTYPE_I64, LS_REDUCE_MAX);
    out->peak_rss_bytes = run->memory.peak = most[0];
    out->memory_predicted_bytes = most[1];
    out->device_peak_bytes = run->memory.device_peak = most[2];
    out->device_predicted_bytes = most[3];
    return status;
}

static void common_result(ls_run *run, ls_run_result *out)
{
    bool ok = true;
    bring_params(run);
    if (run->shared) return;
    if (run->space && ls__space_wait(run->space))
        out->weights_xxh3 = ls__space_xxh3(run->space, &ok);
    if (!ok) ls__run_fail(run, LS_ERR_MEMORY);
    if (run->rank == 0) find_best(run, out->best_checkpoint);
    if (!ls__run_meet(run)) return;
    ls_status status = most_memory(run, out);
    if (status == LS_OK)
        status = ls_comm_broadcast(run->comm, out->best_checkpoint, LS_PATH_MAX, LS_DTYPE_U8, 0);
    if (status != LS_OK) ls__run_fail_shared(run, status);
}

/* The model gets a copy of what was learned: in memory that the optimizer leaves. */
static void keep_model(ls_run *run)
{
    if (!run->model.keep || !run->loaded) return;
    ls__space_release_states(run->space);
    if (run->shared) (void)ls__space_get(run->space, false, true); /* as far as it came */
    ls_status status = run->model.keep(run->model.user, ls__space_params(run->space));
    if (status != LS_OK) ls__run_fail(run, status);
}

static const char *final_status(const ls_run *run)
{
    if (run->status != LS_OK) return "failed";
    return run->reason == LS_STOP_SIGNAL ? "stopped" : "finished";
}

static void tell_end(ls_run *run)
{
    bool stopped = run->status == LS_OK && run->reason == LS_STOP_SIGNAL;
    if (run->rank == 0) ls__world_progress(run->world, "");
    ls__world_position(run->world, run->step, "");
    if (stopped) ls__world_stopped(run->world, run->signal); /* whose report says so */
    if (!run->record) return;
    if (run->status != LS_OK)
        ls__record_event(run->record, "failed", json_pack("{s:s}", "text", run->text));
    if (ls__record_close(run->record) != LS_OK)
        ls__log(LS__LOG_WARN, "metrics are incomplete: %s", ls_error_text());
    run->record = NULL;
    ls__run_json(run, final_status(run));
}

ls_status ls_run_finish(ls_run *run, ls_run_result *out)
{
    ls_run_result unwanted;
    if (!run) return LS_OK;
    if (!out) out = &unwanted;
    leave_early(run);
    if (run->reason != LS_STOP_FINISHED_BEFORE) finish_saves(run);
    local_result(run, out);
    if (!run->shared) common_result(run, out);
    keep_model(run);
    tell_end(run);
    ls_status status = run->status;
    char text[sizeof run->text];
    memcpy(text, run->text, sizeof text);
    ls__run_free(run);
    return status == LS_OK ? LS_OK : ls_fail(status, "%s", text);
}
