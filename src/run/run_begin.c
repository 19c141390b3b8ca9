/* The beginning of a run, at the first ls_run_next: state is loaded or made, the loader starts,
 * and the first lines say what runs, on what, from where, and which device counts give these
 * bits. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "run/micro_batches.h"
#include "run/run_state.h"
#include "run/space_state.h"

/* --- judges --- */

static ls_mode declared_mode(const ls_run *run, const char *monitor)
{
    for (int i = 0; monitor && i < run->ndeclared; i++)
        if (strcmp(run->declared[i].name, monitor) == 0) return (ls_mode)run->declared[i].value;
    return LS_MODE_AUTO;
}

static ls_status check_monitor(const ls_run *run, const char *key, const char *monitor)
{
    if (!monitor || run->ndeclared == 0) return LS_OK;
    if (strcmp(ls__settings_origin(&run->settings, key), "default") == 0) return LS_OK;
    char label[96], names[512] = "";
    size_t used = 0;
    for (int i = 0; i < run->ndeclared; i++) {
        if (strcmp(run->declared[i].name, monitor) == 0) return LS_OK;
        size_t n = strlen(run->declared[i].name);
        if (used + n + 3 > sizeof names) continue;
        if (used) used = (size_t)(stpcpy(names + used, ", ") - names);
        used = (size_t)(stpcpy(names + used, run->declared[i].name) - names);
    }
    ls__settings_label(&run->settings, key, label);
    return ls_fail(LS_ERR_CONFIG, "%s: there is no such metric; there are %s", label, names);
}

static ls_status set_judges(ls_run *run)
{
    const ls_run_options *o = &run->settings.options;
    LS_TRY(check_monitor(run, "checkpoint.monitor", o->checkpoint.monitor));
    LS_TRY(check_monitor(run, "early_stop.monitor", o->early_stop.monitor));
    run->best = (ls__judge) { .monitor = o->checkpoint.monitor, .best = NAN };
    run->best.mode = ls__judge_mode(o->checkpoint.mode, declared_mode(run, run->best.monitor),
                                    run->best.monitor);
    run->early = (ls__judge) { .monitor = o->early_stop.monitor,
                               .min_delta = o->early_stop.min_delta,
                               .best = NAN };
    if (run->early.monitor)
        run->early.mode = ls__judge_mode(o->early_stop.mode, declared_mode(run, run->early.monitor),
                                         run->early.monitor);
    return LS_OK;
}

/* --- state --- */

static ls_status load(ls_run *run)
{
    ls_space *space = run->space;
    LS_TRY(ls__trainer_json_restore(run));
    return ls__checkpoint_load(run->resumed_path, space->saved, space->ntensors,
                               space->saved_ranges, space->nranges, space->params,
                               space->kind->states, space->nstates, space->states);
}

static ls_status load_or_init(ls_run *run)
{
    const ls_run_options *o = &run->settings.options;
    if (run->resumed)
        LS_TRY(load(run));
    else if (run->rank == 0)
        ls__space_init(run->space, o->seed);
    run->span = ls__run_span(o->max_epochs, o->max_steps, run->length, o->batch_size, run->step,
                             run->position);
    return LS_OK;
}

/* Finished as far as it was asked to go; asked to go further, it goes on. */
static bool is_finished(const ls_run *run)
{
    if (!run->resumed) return false;
    if (run->step >= run->span.steps) return true;
    const json_t *planned = json_object_get(run->resumed, "planned_steps");
    bool further = json_is_integer(planned) && run->span.steps > json_integer_value(planned);
    return json_is_string(json_object_get(run->resumed, "finished")) && !further;
}

static ls_status make_loader(ls_run *run)
{
    int64_t unit = run->settings.options.norm_group, batch = run->settings.options.batch_size;
    int64_t units = (batch + unit - 1) / unit;
    int64_t most = (units / run->micro_batches + 1) * unit;
    ls__loader_options options = {
        .dataset = run->train,
        .seed = run->settings.options.seed,
        .training = true,
        .max_count = most < batch ? most : batch,
        .plan = ls__run_plan_batch,
        .user = &run->plan,
        .peeks = run->model.peeks,
    };
    return ls__loader_create(&options, &run->loader);
}

/* --- first lines --- */

static void tell_cut(const ls_run *run)
{
    int s = run->micro_batches;
    int64_t unit = run->settings.options.norm_group, batch = run->settings.options.batch_size;
    int64_t units = (batch + unit - 1) / unit;
    char even[128], who[192];
    ls__micro_batches_even(s, even);
    if (s == 1)
        snprintf(who, sizeof who, "1 device gives");
    else if (s == 2)
        snprintf(who, sizeof who, "1 or 2 devices give");
    else
        snprintf(who, sizeof who, "1 to %d devices (evenly %s) give", s, even);
    bool loose = run->space && s > 1 && ls__space_adds_loosely(run->space);
    const ls_run_options *o = &run->settings.options;
    /* A GPU's attention in bf16 may be the library's, and then its gradients' last bits vary. */
    loose |= ls__world_devices(run->world)->kind == LS__DEVICE_GPU &&
             o->precision == LS_PRECISION_BF16_MIXED && !o->deterministic;
    ls__log(LS__LOG_INFO, "batches of %" PRId64 " in %d micro-batch%s: %s%s these bits%s", batch, s,
            s == 1 ? "" : "es", loose ? "with --deterministic " : "", who,
            s <= 2 && !run->resumed ? "; a larger --micro-batches allows more" : "");
    if (s % run->size != 0)
        ls__log(LS__LOG_WARN,
                "%d micro-batches do not divide evenly over %d devices: some wait for others", s,
                run->size);
    if (units < run->size)
        ls__log(LS__LOG_WARN,
                "a batch of %" PRId64 " holds %" PRId64 " %s: %" PRId64
                " of the %d devices have nothing to "
                "compute; use --devices %" PRId64 " or a larger --batch-size",
                batch, units, unit > 1 ? "groups of its batch norm" : "samples", run->size - units,
                run->size, units);
}

static void tell_start(const ls_run *run)
{
    const char *name = run->folder.name;
    if (!run->resumed)
        ls__log(LS__LOG_INFO, "run %s begins in %s with %" PRId64 " training samples", name,
                run->folder.path, run->length);
    else
        ls__log(LS__LOG_INFO, "run %s resumes from step %" PRId64 ", epoch %.2f (%s)", name,
                run->step, (double)run->position / (double)run->length, run->resumed_path);
    tell_cut(run);
    if (run->settings.options.deterministic)
        ls__log(LS__LOG_INFO,
                "--deterministic: sums go in one order, whatever the number of devices%s",
                run->space && run->space->table ? "" : "; here they always do");
    ls__run_memory_tell(run);
}

static void tell_finished(const ls_run *run)
{
    const char *own = run->folder.checkpoints;
    if (strncmp(run->resumed_path, own, strlen(own)) != 0)
        ls__log(LS__LOG_INFO,
                "run %s has nothing to do: what it resumes is at its end after %" PRId64
                " steps (%s); raise --max-epochs or --max-steps",
                run->folder.name, run->step, run->resumed_path);
    else
        ls__log(LS__LOG_INFO,
                "run %s is finished after %" PRId64
                " steps (%s) and left alone; to go on, raise --max-epochs "
                "or --max-steps; to begin again, choose another --name",
                run->folder.name, run->step, run->folder.path);
}

/* --- all of it --- */

static ls_status start_records(ls_run *run)
{
    run->last_log = run->last_save = run->last_validation = ls__now();
    if (run->rank != 0) return LS_OK;
    ls__world_position(run->world, run->step, run->resumed ? run->resumed_path : "");
    LS_TRY(ls__record_open(&run->folder, run->step, &run->record));
    ls__run_json(run, "running");
    return LS_OK;
}

static void begin_running(ls_run *run)
{
    ls__model_memory memory = { 0 };
    run->start_step = run->step;
    ls_status status = ls__space_put(run->space);
    if (status == LS_OK) status = ls__run_plan_make(run);
    /* before batches are read: a batch whose activations do not fit would be large itself */
    if (status == LS_OK && run->model.prepare)
        status = run->model.prepare(run->model.user, run, &memory);
    if (status == LS_OK) status = make_loader(run);
    if (status == LS_OK) status = ls__run_checkpointer_make(run);
    if (status == LS_OK) ls__run_memory_plan(run, &memory);
    if (status == LS_OK) status = start_records(run);
    if (status != LS_OK) ls__run_fail(run, status);
    if (!ls__run_meet(run)) return;
    if (run->rank == 0) tell_start(run);
    ls__run_call(run, LS__HOOK_FIT_BEGIN);
    if (run->position % run->length < run->settings.options.batch_size)
        ls__run_call(run, LS__HOOK_EPOCH_BEGIN);
    ls__stopwatch_start(&run->watch);
}

/* Ranks that differ by what they have to do, or share a CPU, are no news. */
static ls_status watch_stragglers(ls_run *run)
{
    const ls__nodes *nodes = ls__world_nodes(run->world);
    bool alike = run->micro_batches % run->size == 0 && !ls__world_crowded(run->world);
    if (run->rank != 0 || run->size == 1 || !alike) return LS_OK;
    return ls__stragglers_make(&run->stragglers, run->size,
                               nodes && nodes->count > 1 ? nodes->node_of : NULL);
}

void ls__run_begin(ls_run *run)
{
    if (!run->space) {
        ls__run_fail_shared(run, ls_fail(LS_ERR_ARG, "ls_run_next: the run has no space; call "
                                                     "ls_space_create first"));
        return;
    }
    ls_status status = run->status;
    if (status == LS_OK) status = set_judges(run);
    if (status == LS_OK) status = watch_stragglers(run);
    if (status != LS_OK) ls__run_fail(run, status);
    /* In front of it every rank has written the first values it wanted; what is loaded outranks
     * them. Behind the second one, everybody's part of the parameters is there. */
    if (!ls__run_meet(run)) return;
    status = load_or_init(run);
    if (status != LS_OK) ls__run_fail(run, status);
    if (!ls__run_meet(run)) return;
    status = ls__exchange_spread(run->space->exchange, run->resumed ? -1 : 0);
    if (status != LS_OK) {
        ls__run_fail_shared(run, status);
        return;
    }
    run->loaded = true;
    ls__space_copy_out(run->space);
    if (is_finished(run)) {
        run->reason = LS_STOP_FINISHED_BEFORE;
        run->phase = LS__RUN_OVER;
        if (run->rank == 0) tell_finished(run);
        return;
    }
    begin_running(run);
}
