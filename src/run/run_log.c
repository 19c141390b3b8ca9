/* What is logged: sums until the next point, then values that every rank knows. A point is due
 * by the run's clock, so a resumed run writes the points that an undisturbed one would have
 * written. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "metric/metric_internal.h"
#include "run/run_state.h"
#include "run/space_state.h"

static const double sign_seconds = 0.25; /* between two signs of life */

void ls__run_log_sum(ls_run *run, const char *name, double sum, double weight)
{
    if (!run || ls__run_over(run)) return;
    char full[LS__RECORD_NAME_MAX];
    ls__evaluation *e = run->evaluation;
    bool ok = name && ls__metric_name(e ? e->stage : "train", name, full);
    if (ok && e)
        ok = e->own > 0 && ls__sums_add(&e->sums[e->own - 1], full, sum, weight);
    else if (ok && run->leaf_open)
        ok = ls__exchange_record(run->space->exchange, full, sum, weight);
    else if (ok)
        ok = ls__sums_add(&run->loose, full, sum, weight);
    if (!ok && !run->dropped)
        ls__log(LS__LOG_WARN, "ls_run_log: \"%.64s\" is dropped: at most %d names of %d bytes each",
                name ? name : "", LS__RECORDS_MAX, LS__RECORD_NAME_MAX - 1);
    if (!ok) run->dropped = true;
}

void ls_run_log(ls_run *run, const char *name, double value, double weight)
{
    ls__run_log_sum(run, name, value * weight, weight);
}

double ls_run_metric(const ls_run *run, const char *name)
{
    for (int i = 0; i < run->nvalues; i++)
        if (strcmp(run->values[i].name, name) == 0) return run->values[i].value;
    return NAN;
}

void ls__run_know(ls_run *run, const char *name, double value)
{
    int i = 0;
    while (i < run->nvalues && strcmp(run->values[i].name, name) != 0) i++;
    if (i == LS__VALUES_KEPT) return;
    if (i == run->nvalues) {
        snprintf(run->values[i].name, sizeof run->values[i].name, "%s", name);
        run->nvalues++;
    }
    run->values[i].value = value;
}

void ls__run_declare(ls_run *run, const char *stage, const char *name, ls_mode better)
{
    if (run->ndeclared == LS__VALUES_KEPT) return;
    ls__known_value *d = &run->declared[run->ndeclared];
    if (!ls__metric_name(stage, name, d->name)) return;
    d->value = better;
    run->ndeclared++;
}

/* What was logged behind the last agreement, and would wait for the next one, which may be on other
 * ranks or not come at all. */
void ls__run_gather_loose(ls_run *run)
{
    ls__sums all;
    ls_status status = ls__metric_gather(run->comm, &ls__sums_metric, run->size, &run->loose, &all);
    if (status != LS_OK) {
        ls__run_fail_shared(run, status);
        return;
    }
    ls__sums_merge(&run->interval, &all);
    run->loose.count = 0;
}

/* --- judging --- */

static void list_names(const ls_run *run, char *out, size_t nbytes)
{
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i < run->nvalues + run->ndeclared && used < nbytes; i++) {
        const char *name =
            i < run->nvalues ? run->values[i].name : run->declared[i - run->nvalues].name;
        bool twice = false;
        for (int j = 0; i >= run->nvalues && j < run->nvalues; j++)
            twice = twice || strcmp(run->values[j].name, name) == 0;
        int n = twice ? 0 : snprintf(out + used, nbytes - used, "%s%s", used ? ", " : "", name);
        used += n > 0 ? (size_t)n : 0;
    }
}

static bool is_of_stage(const char *name, const char *stage)
{
    size_t n = strlen(stage);
    return strncmp(name, stage, n) == 0 && name[n] == '/';
}

/* True when value is the best so far. */
static bool judge(ls_run *run, ls__judge *j, const char *key, const char *stage)
{
    if (!j->monitor || !is_of_stage(j->monitor, stage)) return false;
    for (int i = 0; i < run->nvalues; i++)
        if (strcmp(run->values[i].name, j->monitor) == 0)
            return ls__judge_see(j, run->values[i].value, run->step);
    if (strcmp(ls__settings_origin(&run->settings, key), "default") == 0) return false;
    char label[96], names[512];
    ls__settings_label(&run->settings, key, label);
    list_names(run, names, sizeof names);
    ls__run_fail_shared(
        run, ls_fail(LS_ERR_CONFIG, "%s: there is no such metric; there are %s", label, names));
    return false;
}

void ls__run_judge(ls_run *run, const char *stage)
{
    if (judge(run, &run->best, "checkpoint.monitor", stage)) run->improved = true;
    if (run->best.monitor && is_of_stage(run->best.monitor, stage))
        run->judged = ls_run_metric(run, run->best.monitor);
    judge(run, &run->early, "early_stop.monitor", stage);
    bool watched = run->early.monitor && is_of_stage(run->early.monitor, stage);
    if (watched && run->early.waited >= run->settings.options.early_stop.patience &&
        run->reason == LS_STOP_NONE)
        run->reason = LS_STOP_EARLY_STOP;
}

/* --- points --- */

static void record_values(ls_run *run, const char *stage)
{
    if (!run->record) return;
    const char *names[LS__VALUES_KEPT];
    double values[LS__VALUES_KEPT];
    int n = 0;
    for (int i = 0; i < run->nvalues; i++) {
        if (!is_of_stage(run->values[i].name, stage)) continue;
        names[n] = run->values[i].name;
        values[n++] = run->values[i].value;
    }
    double epoch = (double)run->position / (double)run->length;
    if (n > 0) ls__record_metrics(run->record, run->step, epoch, names, values, n);
}

void ls__run_log_point(ls_run *run)
{
    for (int64_t i = 0; i < run->interval.count; i++) {
        const ls__record *r = &run->interval.items[i];
        ls__run_know(run, r->name, r->weight != 0 ? r->sum / r->weight : NAN);
    }
    ls__run_know(run, "train/lr", run->space->lr);
    run->interval = (ls__sums) { 0 };
    run->last_log = ls__now();
    record_values(run, "train");
    ls__run_judge(run, "train");
}

/* One line for people: "step 633, epoch 3.00: val loss 0.41, accuracy 0.87 (best so far)". */
static void tell_values(const ls_run *run, const char *stage)
{
    char text[512] = "";
    size_t used = 0, prefix = strlen(stage) + 1;
    for (int i = 0; i < run->nvalues && used < sizeof text; i++) {
        if (!is_of_stage(run->values[i].name, stage)) continue;
        int n = snprintf(text + used, sizeof text - used, "%s%s %.4g", used ? ", " : " ",
                         run->values[i].name + prefix, run->values[i].value);
        used += n > 0 ? (size_t)n : 0;
    }
    ls__log(LS__LOG_INFO, "step %lld, epoch %.2f: %s%s%s", (long long)run->step,
            (double)run->position / (double)run->length, stage, text,
            run->improved ? " (best so far)" : "");
}

void ls__run_validated(ls_run *run, const char *stage, const ls_values *values,
                       const ls_mode *modes)
{
    if (!ls__run_meet(run)) return;
    for (int i = 0; i < values->count; i++) {
        char full[LS__RECORD_NAME_MAX];
        if (!ls__metric_name(stage, values->items[i].name, full)) continue;
        ls__run_know(run, full, values->items[i].value);
        if (run->ndeclared == 0 && modes) ls__run_declare(run, stage, full, modes[i]);
    }
    run->due_validation = false;
    record_values(run, stage);
    ls__run_judge(run, stage);
    if (run->shared) return;
    if (run->rank == 0) tell_values(run, stage);
    ls__run_call(run, LS__HOOK_VALIDATION_END);
}

/* --- progress --- */

static double eta(const ls_run *run)
{
    if (run->span.steps == INT64_MAX || run->watch.recent <= 0) return NAN;
    return (double)(run->span.steps - run->step) * run->watch.recent;
}

/* Running means of what is logged meanwhile, the loss apart. */
static int running(const ls_run *run, double *loss, const char **names, double *values, int most)
{
    int n = 0;
    *loss = ls_run_metric(run, "train/loss");
    for (int64_t i = 0; i < run->interval.count; i++) {
        const ls__record *r = &run->interval.items[i];
        if (strncmp(r->name, "train/", 6) != 0 || r->weight == 0) continue;
        if (strcmp(r->name, "train/loss") == 0)
            *loss = r->sum / r->weight;
        else if (n < most && strcmp(r->name, "train/grad_norm") != 0) {
            names[n] = r->name + 6;
            values[n++] = r->sum / r->weight;
        }
    }
    return n;
}

void ls__run_progress(ls_run *run, const char *stage)
{
    double now = ls__now();
    if (now - run->last_position > sign_seconds) {
        ls__world_position(run->world, run->step, "");
        run->last_position = now;
    }
    if (run->rank != 0) return;
    bool terminal = ls__world_terminal(run->world);
    if (!ls__progress_due(&run->last_progress, terminal)) return;
    const char *names[4];
    double values[4];
    int64_t epochs = run->settings.options.max_epochs;
    const char *unit = run->settings.options.unit.name;
    double per_sample = (double)run->settings.options.unit.per_sample;
    ls__progress p = {
        .step = run->step,
        .steps = run->span.steps == INT64_MAX ? 0 : run->span.steps,
        .epoch = (double)run->position / (double)run->length,
        .epochs = epochs > 0 ? epochs : 0,
        .rate = run->watch.seconds > 0
                    ? (double)run->watch.samples * (unit ? per_sample : 1) / run->watch.seconds
                    : NAN,
        .unit = unit,
        .eta = eta(run),
        .stage = stage,
        .names = names,
        .values = values,
    };
    p.n = running(run, &p.loss, names, values, 4);
    char text[256];
    ls__progress_text(&p, terminal ? 100 : 0, text, sizeof text);
    if (terminal)
        ls__world_progress(run->world, text);
    else
        ls__log(LS__LOG_INFO, "%s", text);
}
