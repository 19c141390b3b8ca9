/* Evaluation in a loop of one's own: the dataset is cut into chunks of a fixed size and one
 * tail, each rank walks a contiguous part of them, and what is logged is kept per chunk, so that
 * the totals are added in chunk order whichever ranks computed them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"
#include "metric/metric_internal.h"
#include "run/run_state.h"

static void free_evaluation(ls_run *run)
{
    ls__evaluation *e = run->evaluation;
    if (!e) return;
    ls__stopwatch_pause(&run->watch, ls__now() - e->began);
    ls__loader_destroy(e->loader);
    ls__free(e->sums);
    ls__free(e);
    run->evaluation = NULL;
}

static ls_status begin(ls_run *run, ls_dataset *data, const char *stage)
{
    ls__evaluation *e = run->evaluation = ls__alloc(1, sizeof *e);
    if (!e) return LS_ERR_MEMORY;
    e->began = ls__now();
    e->data = data;
    e->chunks = ls__chunks_of(ls_dataset_length(data), run->rank, run->size);
    if (!stage || !stage[0] || strchr(stage, '/') || strlen(stage) >= sizeof e->stage)
        return ls_fail(LS_ERR_ARG,
                       "ls_run_evaluate: stage \"%s\": a short word is needed, as \"val\"",
                       stage ? stage : "");
    snprintf(e->stage, sizeof e->stage, "%s", stage);
    if (e->chunks.length < 1)
        return ls_fail(LS_ERR_DATA, "ls_run_evaluate: the %s data has no samples", stage);
    e->sums = ls__alloc((size_t)(e->chunks.end - e->chunks.first), sizeof *e->sums);
    if (!e->sums) return LS_ERR_MEMORY;
    ls__loader_options options = {
        .dataset = data, .max_count = e->chunks.size, .plan = ls__chunks_plan, .user = &e->chunks
    };
    return ls__loader_create(&options, &e->loader);
}

static bool next_chunk(ls_run *run, ls_batch *out)
{
    ls__evaluation *e = run->evaluation;
    ls__loader_batch batch;
    bool more;
    ls_status status = ls__loader_next(e->loader, &batch, &more);
    if (status != LS_OK || !more) {
        if (ls__comm_lost(status)) status = ls_fail(LS_ERR_IO, "%s", ls_error_text());
        if (status != LS_OK) ls__run_fail(run, status);
        return false;
    }
    e->own++;
    *out = (ls_batch) {
        .count = batch.count, .samples = batch.samples, .fields = batch.fields, .first = batch.begin
    };
    return true;
}

/* [all] Totals, on every rank. */
static void finish(ls_run *run)
{
    ls__evaluation *e = run->evaluation;
    char stage[sizeof e->stage] = "";
    ls__sums all = { 0 };
    int64_t nchunks = e ? e->chunks.count : 0;
    if (e) memcpy(stage, e->stage, sizeof stage);
    if (ls__run_meet(run)) {
        ls_status status = ls__metric_gather(run->comm, &ls__sums_metric, nchunks, e->sums, &all);
        if (status != LS_OK) ls__run_fail_shared(run, status);
    }
    free_evaluation(run);
    if (run->shared) return;
    ls_values values = { 0 };
    for (int64_t i = 0; i < all.count && i < LS_VALUES_MAX; i++) {
        const ls__record *r = &all.items[i];
        snprintf(values.items[i].name, sizeof values.items[i].name, "%s", r->name);
        values.items[i].value = r->weight != 0 ? r->sum / r->weight : NAN;
        values.count++;
    }
    ls__run_validated(run, stage, &values, NULL);
}

bool ls_run_evaluate(ls_run *run, ls_dataset *data, const char *stage, ls_batch *out)
{
    if (!run || ls__run_over(run)) return false;
    if (!run->evaluation) {
        ls__space_params(run->space);
        ls_status status = begin(run, data, stage);
        if (status != LS_OK) ls__run_fail(run, status);
    }
    if (run->status == LS_OK && next_chunk(run, out)) {
        ls__run_progress(run, "val");
        return true;
    }
    if (!run->shared) finish(run);
    return false;
}

double ls__run_pause_begin(ls_run *run)
{
    ls__run_progress(run, "val");
    return ls__now();
}

void ls__run_pause_end(ls_run *run, double began)
{
    ls__stopwatch_pause(&run->watch, ls__now() - began);
}
