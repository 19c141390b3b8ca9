/* Graphs built and compiled from a model's step function, one per stage, number of samples and
 * fields; kept for the model's life, since a run meets the same few shapes over and over. They
 * share one arena: a rank runs one at a time. */
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "data/dataset_internal.h"
#include "trainer/model_internal.h"
#include "world/world_internal.h"

static bool same_fields(const ls__graph_options *o, const ls_field *fields, int nfields)
{
    if (o->nfields != nfields) return false;
    for (int i = 0; i < nfields; i++) {
        const ls_field *a = &o->fields[i], *b = &fields[i];
        if (strcmp(a->name, b->name) != 0 || a->type != b->type || a->rank != b->rank) return false;
        for (int d = 0; d < a->rank; d++)
            if (a->shape[d] != b->shape[d]) return false;
    }
    return true;
}

static ls__built *find(const ls_model *model, const ls__graph_options *wanted)
{
    for (ls__built *b = model->built; b; b = b->next) {
        const ls__graph_options *o = ls__graph_options_of(b->graph);
        if (b->fits && o->stage == wanted->stage && o->batch == wanted->batch &&
            o->decode == wanted->decode && o->precision == wanted->precision &&
            o->halves == wanted->halves && o->deterministic == wanted->deterministic &&
            same_fields(o, wanted->fields, wanted->nfields))
            return b;
    }
    return NULL;
}

static ls_status build(ls_model *model, const ls__graph_options *options, ls__built **out)
{
    ls__built *b = *out = ls__alloc(1, sizeof *b);
    if (!b) return LS_ERR_MEMORY;
    const ls__graph_param *params;
    ls_status status;
    LS_TRY_GOTO(ls__graph_build(model->step, model->user, options, &b->graph), status, failed);
    int n = ls__graph_params(b->graph, &params);
    b->offsets = ls__alloc((size_t)n, sizeof *b->offsets);
    status = b->offsets ? LS_OK : LS_ERR_MEMORY;
    if (status != LS_OK) goto failed;
    /* From here on the table may name this graph's parameters, so the graph stays. */
    b->next = model->built;
    model->built = b;
    LS_TRY(ls__model_table(model, b->graph, b->offsets));
    b->fits = true;
    return LS_OK;
failed:
    ls__graph_destroy(b->graph);
    ls__free(b->offsets);
    ls__free(b);
    *out = NULL;
    return status;
}

ls_status ls__model_open_backend(ls_model *model)
{
    if (model->backend) return LS_OK;
    static const char *const names[] = {
        [LS__DEVICE_CPU] = "cpu", [LS__DEVICE_GPU] = "cuda", [LS__DEVICE_SIM] = "sim"
    };
    const ls__device_plan *plan = ls__world_devices(model->world);
    ls__device_kind kind = plan->kind;
    int device =
        kind == LS__DEVICE_CPU ? 0 : ls__device_of(plan, ls_world_local_rank(model->world));
    LS_TRY(ls__backend_open_device(names[kind], ls_world_threads(model->world), device,
                                   &model->backend));
    ls__log(LS__LOG_DEBUG, "backend %s: %s", model->backend->name, model->backend->description);
    return LS_OK;
}

/* In words here, rather than by a signal when the pages are taken. */
static ls_status check_limit(const ls_model *model, size_t nbytes)
{
    int64_t limit = ls__world_cpus(model->world)->memory;
    int devices = ls_world_size(model->world);
    if (limit <= 0 || nbytes <= (size_t)limit / (size_t)devices) return LS_OK;
    return ls_fail(LS_ERR_MEMORY,
                   "activations take %.0f MB on each device (%d of them), and %.0f MB are allowed "
                   "here; use a smaller batch size, more --micro-batches, or --recompute where the "
                   "program has it",
                   (double)nbytes * 1e-6, devices, (double)limit * 1e-6);
}

static ls_status make_arena(ls_model *model, size_t nbytes)
{
    if (nbytes <= model->arena_bytes) return LS_OK;
    LS_TRY(check_limit(model, nbytes));
    ls__unmap(model->arena, model->arena_bytes);
    model->arena_bytes = 0;
    model->arena = ls__map(nbytes);
    if (!model->arena) return LS_ERR_MEMORY;
    model->arena_bytes = nbytes;
    ls__map_populate(model->arena, nbytes, model->backend->parallel);
    return LS_OK;
}

static ls_status compile(ls_model *model, ls__built *b)
{
    const ls__graph_options *o = ls__graph_options_of(b->graph);
    LS_TRY(ls__model_open_backend(model));
    LS_TRY(model->backend->compile(b->graph, &b->executable));
    if (model->profiling) LS_TRY(ls__model_profile(model, b));
    size_t nbytes = model->backend->arena_bytes(b->executable);
    ls__log(LS__LOG_DEBUG, "stage %d, %lld samples: %.1f MFLOP, %.1f MiB of activations",
            (int)o->stage, (long long)o->batch, ls__graph_flops(b->graph) * 1e-6,
            (double)nbytes / (1 << 20));
    ls_status status = make_arena(model, nbytes);
    if (status == LS_OK) return LS_OK;
    model->backend->destroy(b->executable); /* what cannot run is not there */
    b->executable = NULL;
    return status;
}

ls_status ls__model_build_as(ls_model *model, const ls__graph_options *options, bool compile_too,
                             ls__built **out)
{
    ls__built *b = find(model, options);
    if (!b) LS_TRY(build(model, options, &b));
    *out = b;
    return compile_too && !b->executable ? compile(model, b) : LS_OK;
}

ls_status ls__model_build(ls_model *model, ls_stage stage, int64_t samples, const ls_dataset *data,
                          bool compile_too, ls__built **out)
{
    ls__graph_options options = { .stage = stage,
                                  .batch = samples,
                                  .precision = model->precision,
                                  .halves = model->halves && stage == LS_STAGE_TRAIN,
                                  .deterministic = model->deterministic };
    options.fields = ls_dataset_fields(data, &options.nfields);
    return ls__model_build_as(model, &options, compile_too, out);
}

void ls__model_free_built(ls_model *model)
{
    while (model->built) {
        ls__built *b = model->built;
        model->built = b->next;
        if (b->executable) model->backend->destroy(b->executable);
        ls__graph_destroy(b->graph);
        ls__free(b->offsets);
        ls__free(b);
    }
    ls__unmap(model->arena, model->arena_bytes);
}

/* A sample at fault is named as its owner knows it: by its index in the dataset that the data may be
 * a part of. Asking for it costs a second run, on the way out. */
static ls_status explain(ls_model *model, ls__built *built, const ls__model_call *call,
                         ls__run_context *context, ls_status status)
{
    int64_t count = call->batch->count;
    if (status != LS_ERR_DATA) return status; /* the data has no part in it */
    int64_t *samples = ls__alloc((size_t)count, sizeof *samples);
    const ls_dataset *whole = call->data;
    for (int64_t i = 0; samples && i < count; i++) {
        samples[i] = call->batch->samples[i];
        whole = ls__dataset_resolve(call->data, &samples[i]);
    }
    if (samples) {
        context->samples = samples;
        ls_status again = model->backend->run(built->executable, context);
        if (again != LS_OK) status = again;
    }
    status = ls_fail(status, "%s data (%s): %s", call->stage, whole->name, ls_error_text());
    ls__free(samples);
    return status;
}

ls_status ls__model_run(ls_model *model, ls__built *built, const ls__model_call *call,
                        ls__run_context *context)
{
    *context = (ls__run_context) {
        .params = call->params,
        .params_version = model->params_version,
        .halves = call->halves,
        .resident = call->resident,
        .grads = call->grads,
        .offsets = built->offsets,
        .fields = call->batch->fields,
        .arena = model->arena,
        .seed = call->seed,
        .step = call->step,
        .first = call->batch->first,
        .samples = call->batch->samples,
        .grad_seed = 1,
        .trace = model->tracing,
        .batch = call->number,
        .ahead = call->ahead,
        .ahead_user = call->ahead_user,
    };
    ls_status status = model->backend->run(built->executable, context);
    return status == LS_OK ? LS_OK : explain(model, built, call, context, status);
}

const ls_metric *ls__result_metric(const ls__graph_result *result)
{
    return result->kind == LS__RESULT_METRIC ? result->metric : &ls__mean_metric;
}

ls_status ls__model_read(ls_model *model, ls__built *built, const ls__run_context *context,
                         const ls__graph_result *result, void *state)
{
    ls_array values[9];
    int n = 0;
    for (int i = 0; i < result->nvalues; i++)
        LS_TRY(model->backend->read(built->executable, context, result->values[i], &values[n++]));
    if (result->weights)
        LS_TRY(model->backend->read(built->executable, context, result->weights, &values[n++]));
    ls__result_metric(result)->update(state, values, n);
    return LS_OK;
}
