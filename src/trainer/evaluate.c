/* Evaluation: every sample once, on any number of devices. The data is cut into chunks that do
 * not depend on the number of ranks; each chunk's state of each metric is kept, and all are
 * merged in chunk order, so the result has the same bits whoever computed what. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "data/loader.h"
#include "run/share.h"
#include "trainer/model_internal.h"

typedef struct evaluation {
    ls_model *model;
    ls_dataset *data;
    const float *params;
    ls__resident *resident;
    const char *stage;
    ls__chunks chunks;
    const ls__graph_result *results; /* of some build: names and metrics are the same in all */
    int nresults;
    char *states[LS_VALUES_MAX]; /* per result: (this rank's chunks) states */
} evaluation;

/* Any build tells which results there are; a rank without chunks needs to know them too. */
static ls_status find_results(evaluation *e)
{
    ls__built *built;
    int64_t samples = ls__chunk_samples(&e->chunks, 0);
    LS_TRY(ls__model_build(e->model, LS_STAGE_EVALUATE, samples, e->data, false, &built));
    e->nresults = ls__graph_results(built->graph, &e->results);
    if (e->nresults > LS_VALUES_MAX)
        return ls_fail(LS_ERR_ARG, "the step function reports %d values; at most %d", e->nresults,
                       (int)LS_VALUES_MAX);
    return LS_OK;
}

static ls_status make_states(evaluation *e)
{
    size_t own = (size_t)(e->chunks.end - e->chunks.first);
    for (int i = 0; i < e->nresults; i++) {
        e->states[i] = ls__alloc(own, ls__result_metric(&e->results[i])->state_size);
        if (!e->states[i]) return LS_ERR_MEMORY;
    }
    return LS_OK;
}

static ls_status evaluate_chunk(evaluation *e, int64_t own, const ls__loader_batch *batch)
{
    ls__built *built;
    ls__run_context context;
    const ls__graph_result *results;
    LS_TRY(ls__model_build(e->model, LS_STAGE_EVALUATE, batch->count, e->data, true, &built));
    ls_batch b = { batch->count, batch->samples, batch->fields, batch->begin };
    ls__model_call call = { .params = e->params,
                            .resident = e->resident,
                            .batch = &b,
                            .data = e->data,
                            .stage = e->stage };
    LS_TRY(ls__model_run(e->model, built, &call, &context));
    int n = ls__graph_results(built->graph, &results);
    if (n != e->nresults)
        return ls_fail(LS_ERR_ARG,
                       "the step function reports other values for other micro-batches; it must "
                       "be pure");
    for (int i = 0; i < n; i++) {
        size_t nbytes = ls__result_metric(&results[i])->state_size;
        LS_TRY(ls__model_read(e->model, built, &context, &results[i],
                              e->states[i] + (size_t)own * nbytes));
    }
    return LS_OK;
}

static ls_status evaluate_chunks(evaluation *e)
{
    ls__loader *loader;
    ls__loader_options options = {
        .dataset = e->data, .max_count = e->chunks.size, .plan = ls__chunks_plan, .user = &e->chunks
    };
    LS_TRY(ls__loader_create(&options, &loader));
    ls_status status = LS_OK;
    for (int64_t own = 0; status == LS_OK; own++) {
        ls__loader_batch batch;
        bool more;
        status = ls__loader_next(loader, &batch, &more);
        if (status != LS_OK || !more) break;
        status = evaluate_chunk(e, own, &batch);
    }
    ls__loader_destroy(loader);
    /* A dataset may fail with any status; a lost communicator is none of its business. */
    return ls__comm_lost(status) ? ls_fail(LS_ERR_IO, "%s", ls_error_text()) : status;
}

static ls_mode mode_of(const ls__graph_result *result)
{
    return result->kind == LS__RESULT_METRIC ? result->metric->better : LS_MODE_AUTO;
}

static ls_status gather(evaluation *e, ls_values *out, ls_mode *modes)
{
    ls_comm *comm = ls_world_comm(e->model->world);
    for (int i = 0; i < e->nresults; i++) {
        const ls_metric *metric = ls__result_metric(&e->results[i]);
        void *merged = ls__alloc(1, metric->state_size);
        ls_status status = merged ? LS_OK : LS_ERR_MEMORY;
        if (merged) status = ls__metric_gather(comm, metric, e->chunks.count, e->states[i], merged);
        if (status == LS_OK) {
            snprintf(out->items[i].name, LS_VALUE_NAME_MAX, "%s", e->results[i].name);
            out->items[i].value = metric->result(merged);
            out->count = i + 1;
            if (modes) modes[i] = mode_of(&e->results[i]);
        }
        ls__free(merged);
        LS_TRY(status);
    }
    return LS_OK;
}

ls_status ls__model_evaluate(ls_model *model, ls_dataset *data, const float *params,
                             ls__resident *resident, const char *stage, ls_values *out,
                             ls_mode *modes)
{
    evaluation e = {
        .model = model, .data = data, .params = params, .resident = resident, .stage = stage
    };
    int64_t length = ls_dataset_length(data);
    *out = (ls_values) { 0 };
    e.chunks = ls__chunks_of(length, ls_world_rank(model->world), ls_world_size(model->world));
    ls_status status =
        length > 0 ? LS_OK : ls_fail(LS_ERR_DATA, "the %s data has no samples", stage);
    if (status == LS_OK) status = find_results(&e);
    if (status == LS_OK) status = make_states(&e);
    if (status == LS_OK && !e.params) e.params = model->values;
    if (status == LS_OK && !e.params)
        status = ls_fail(
            LS_ERR_ARG, "ls_evaluate: the model has no weights yet; ls_fit or ls_model_load first");
    if (status == LS_OK) status = evaluate_chunks(&e);
    status = ls__share_failure(ls_world_comm(model->world), status, NULL, NULL);
    if (status == LS_OK) status = gather(&e, out, modes);
    for (int i = 0; i < e.nresults; i++) ls__free(e.states[i]);
    return status;
}

ls_status ls_evaluate(ls_model *model, ls_dataset *data, ls_values *out)
{
    if (!model || !data || !out)
        return ls_fail(LS_ERR_ARG, "ls_evaluate: a model, data and values are needed");
    return ls__model_evaluate(model, data, NULL, NULL, "evaluation", out, NULL);
}

ls_status ls__model_names(ls_model *model, ls_stage stage, const ls_dataset *data, ls_values *names,
                          ls_mode *modes)
{
    ls__built *built;
    const ls__graph_result *results;
    *names = (ls_values) { 0 };
    LS_TRY(ls__model_build(model, stage, 1, data, false, &built));
    int n = ls__graph_results(built->graph, &results);
    for (int i = 0; i < n && names->count < LS_VALUES_MAX; i++) {
        if (stage == LS_STAGE_TRAIN && results[i].kind == LS__RESULT_METRIC) continue;
        snprintf(names->items[names->count].name, LS_VALUE_NAME_MAX, "%s", results[i].name);
        modes[names->count++] = mode_of(&results[i]);
    }
    return LS_OK;
}
