/* Prediction: chunks as in an evaluation, and each sample's outputs handed out one by one on the
 * rank that computed them. */
#include <string.h>

#include "base/check.h"
#include "data/loader.h"
#include "run/share.h"
#include "trainer/model_internal.h"

enum { OUTPUTS_MAX = 32 };

struct ls_outputs {
    int count;
    const char *names[OUTPUTS_MAX];
    ls_array arrays[OUTPUTS_MAX]; /* one sample's */
};

const ls_array *ls_outputs_get(const ls_outputs *outputs, const char *name)
{
    for (int i = 0; i < outputs->count; i++)
        if (strcmp(outputs->names[i], name) == 0) return &outputs->arrays[i];
    return NULL;
}

/* (rows of a sample, ...): an output's first dimension is the micro-batch or a multiple of it. */
static ls_array sample_of(const ls_array *batch, int64_t samples, int64_t i)
{
    ls_array one = *batch;
    int64_t rows = batch->shape[0] / samples;
    size_t nbytes = (size_t)(ls_array_count(batch) / samples) * ls_dtype_size(batch->type);
    one.data = (char *)batch->data + (size_t)i * nbytes;
    if (rows > 1) {
        one.shape[0] = rows;
        return one;
    }
    one.rank--;
    memmove(one.shape, one.shape + 1, (size_t)one.rank * sizeof one.shape[0]);
    return one;
}

static ls_status hand_out(ls_model *model, ls__built *built, const ls__run_context *context,
                          const ls_batch *batch, ls_predict_fn *each, void *user)
{
    const ls__graph_result *results;
    int n = ls__graph_results(built->graph, &results);
    ls_array whole[OUTPUTS_MAX];
    ls_outputs outputs = { 0 };
    if (n > OUTPUTS_MAX)
        return ls_fail(LS_ERR_ARG, "the step function has %d outputs; at most %d", n,
                       (int)OUTPUTS_MAX);
    for (int i = 0; i < n; i++) {
        LS_TRY(model->backend->read(built->executable, context, results[i].values[0], &whole[i]));
        outputs.names[outputs.count++] = results[i].name;
    }
    for (int64_t s = 0; s < batch->count; s++) {
        for (int i = 0; i < n; i++) outputs.arrays[i] = sample_of(&whole[i], batch->count, s);
        each(user, batch->samples[s], &outputs);
    }
    return LS_OK;
}

static ls_status predict_chunk(ls_model *model, ls_dataset *data, const ls__loader_batch *chunk,
                               ls_predict_fn *each, void *user)
{
    ls__built *built;
    ls__run_context context;
    LS_TRY(ls__model_build(model, LS_STAGE_PREDICT, chunk->count, data, true, &built));
    if (!model->values)
        return ls_fail(LS_ERR_ARG,
                       "ls_predict: the model has no weights yet; ls_fit or ls_model_load first");
    ls_batch batch = { chunk->count, chunk->samples, chunk->fields, chunk->begin };
    ls__model_call call = {
        .params = model->values, .batch = &batch, .data = data, .stage = "prediction"
    };
    LS_TRY(ls__model_run(model, built, &call, &context));
    return hand_out(model, built, &context, &batch, each, user);
}

static ls_status predict(ls_model *model, ls_dataset *data, ls_predict_fn *each, void *user)
{
    ls__chunks chunks = ls__chunks_of(ls_dataset_length(data), ls_world_rank(model->world),
                                      ls_world_size(model->world));
    ls__loader *loader;
    ls__loader_options options = {
        .dataset = data, .max_count = chunks.size, .plan = ls__chunks_plan, .user = &chunks
    };
    LS_TRY(ls__loader_create(&options, &loader));
    ls_status status = LS_OK;
    for (bool more = true; status == LS_OK;) {
        ls__loader_batch chunk;
        status = ls__loader_next(loader, &chunk, &more);
        if (status != LS_OK || !more) break;
        status = predict_chunk(model, data, &chunk, each, user);
    }
    ls__loader_destroy(loader);
    return ls__comm_lost(status) ? ls_fail(LS_ERR_IO, "%s", ls_error_text()) : status;
}

ls_status ls_predict(ls_model *model, ls_dataset *data, ls_predict_fn *each, void *user)
{
    if (!model || !data || !each)
        return ls_fail(LS_ERR_ARG, "ls_predict: a model, data and a function are needed");
    return ls__share_failure(ls_world_comm(model->world), predict(model, data, each, user), NULL,
                             NULL);
}
