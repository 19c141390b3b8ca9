/* A space for a model's parameters, or for ones by hand: made here because only this room sees both
 * graphs and runs. */
#include "base/check.h"
#include "base/log.h"
#include "run/share.h"
#include "trainer/model_internal.h"

/* The run says what the model computes in. */
static void take_precision(ls_model *model, ls_run *run)
{
    const ls__backend *backend = model->backend;
    bool mixed = ls__run_options(run)->precision == LS_PRECISION_BF16_MIXED;
    model->precision = ls__run_options(run)->precision;
    model->deterministic = ls__run_options(run)->deterministic;
    if (model->precision == LS_PRECISION_TF32 &&
        !(backend->multiplies_tf32 && backend->multiplies_tf32()))
        ls__log(LS__LOG_INFO,
                "--precision tf32: this device (%s) has no TF32; it computes as with --precision "
                "32",
                backend->description);
    model->halves = mixed && model->backend->multiplies_bf16();
    if (mixed && !model->halves)
        ls__log(
            LS__LOG_INFO,
            "--precision bf16-mixed: this device (%s) does not multiply bf16; it rounds alike, but "
            "is no faster than with --precision 32",
            model->backend->description);
}

/* One arena for all of the model's graphs. */
static void device_memory(const ls_model *model, ls__model_memory *out)
{
    const ls__backend *backend = model->backend;
    out->on_device = true;
    for (const ls__built *b = model->built; b; b = b->next) {
        if (!b->executable) continue;
        int64_t arena = (int64_t)backend->device_bytes(b->executable);
        if (arena > out->activations) out->activations = arena;
        out->batches += (int64_t)backend->device_own_bytes(b->executable);
    }
}

int64_t ls__model_device_peak(void *user)
{
    const ls_model *model = user;
    return model->backend->device_peak_bytes ? model->backend->device_peak_bytes() : 0;
}

ls_status ls__model_prepare(void *user, ls_run *run, ls__model_memory *out)
{
    ls_model *model = user;
    ls__built *built;
    int64_t sizes[LS__BATCH_SIZES_MAX];
    int n = ls__run_batch_sizes(run, sizes);
    for (int i = 0; i < n; i++)
        LS_TRY(ls__model_build(model, LS_STAGE_TRAIN, sizes[i], ls__run_train(run), true, &built));
    *out = (ls__model_memory) { .activations = (int64_t)model->arena_bytes };
    if (model->backend->device_bytes) device_memory(model, out);
    return LS_OK;
}

ls_status ls__model_space(ls_model *model, ls_run *run, ls_space **out)
{
    take_precision(model, run);
    ls__model_changed(model);
    ls__space_description description = {
        .tensors = model->tensors,
        .ntensors = model->ntensors,
        .count = model->count,
        .init = ls__model_init,
        .user = model,
        .halves = model->halves,
        .parallel = model->backend->parallel,
        .resident = model->backend->resident,
    };
    ls__run_with_model(run, &(ls__run_model) { .user = model,
                                               .peeks = model->backend->copies_ahead,
                                               .prepare = ls__model_prepare,
                                               .device_peak = ls__model_device_peak });
    return ls__space_create_described(run, &description, out);
}

static ls_status create(ls_run *run, const ls_space_options *options, ls_space **out)
{
    if (!run || !options)
        return ls_fail(LS_ERR_ARG, "ls_space_create: a run and options are needed");
    if (!options->model)
        return ls__space_create_by_hand(run, options->params, options->nparams, options->values,
                                        out);
    if (options->params || options->values)
        return ls_fail(LS_ERR_ARG,
                       "ls_space_create: a model brings its own parameters; leave params and "
                       "values out");
    ls__built *built;
    LS_TRY(ls__model_open_backend(options->model));
    LS_TRY(ls__model_build(options->model, LS_STAGE_TRAIN, 1, ls__run_train(run), false, &built));
    int64_t group = ls__graph_group(built->graph), unit = ls__run_options(run)->norm_group;
    if (unit % group != 0)
        return ls_fail(
            LS_ERR_ARG,
            "ls_space_create: the model's batch norm takes groups of %lld samples; set the run's "
            "norm_group to that",
            (long long)group);
    return ls__model_space(options->model, run, out);
}

ls_status ls_space_create(ls_run *run, const ls_space_options *options, ls_space **out)
{
    *out = NULL;
    return create(run, options, out);
}
