/* Fit: the loop of one's own, written once. Everything that makes it a training run is the
 * run's. */
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "run/share.h"
#include "trainer/model_internal.h"

typedef struct fit {
    ls_model *model;
    ls_dataset *train, *val;
    ls_run *run;
    ls_space *space;
} fit;

static ls_status declare(fit *f, ls_stage stage, const ls_dataset *data, const char *name)
{
    ls_values names;
    ls_mode modes[LS_VALUES_MAX];
    LS_TRY(ls__model_names(f->model, stage, data, &names, modes));
    for (int i = 0; i < names.count; i++)
        ls__run_declare(f->run, name, names.items[i].name, modes[i]);
    return LS_OK;
}

/* Before anything is made on disk: a model that cannot be built is refused. */
static ls_status check_model(const fit *f, ls_run_options *options)
{
    ls__built *built;
    LS_TRY(ls__model_open_backend(f->model));
    LS_TRY(ls__model_build(f->model, LS_STAGE_TRAIN, 1, f->train, false, &built));
    options->norm_group = ls__graph_group(built->graph);
    if (f->val) LS_TRY(ls__model_build(f->model, LS_STAGE_EVALUATE, 1, f->val, false, &built));
    return LS_OK;
}

/* This rank's chunks of a validation: all of one size, but for the last of all. */
static ls_status prepare_validation(const fit *f)
{
    const ls_world *world = f->model->world;
    ls__chunks chunks =
        ls__chunks_of(ls_dataset_length(f->val), ls_world_rank(world), ls_world_size(world));
    ls__built *built;
    if (chunks.end == chunks.first) return LS_OK;
    LS_TRY(ls__model_build(f->model, LS_STAGE_EVALUATE, ls__chunk_samples(&chunks, chunks.first),
                           f->val, true, &built));
    return ls__model_build(f->model, LS_STAGE_EVALUATE, ls__chunk_samples(&chunks, chunks.end - 1),
                           f->val, true, &built);
}

/* Validation may take more memory than a step. The model's own copy of its weights would only lie
 * there: they are in the space by now, and come back at the end. */
static ls_status prepare(void *user, ls_run *run, ls__model_memory *out)
{
    fit *f = user;
    ls_model *model = f->model;
    if (f->val && ls__run_options(run)->validate_every.steps != LS_NONE)
        LS_TRY(prepare_validation(f));
    LS_TRY(ls__model_prepare(model, run, out));
    ls__unmap(model->values, (size_t)model->count * sizeof(float));
    model->values = NULL;
    return LS_OK;
}

static int64_t device_peak(void *user)
{
    return ls__model_device_peak(((fit *)user)->model);
}

static ls_status keep(void *user, const float *params)
{
    return ls__model_keep(((fit *)user)->model, params);
}

static ls_status make_space(fit *f)
{
    ls__run_model model = { .user = f,
                            .peeks = f->model->backend->copies_ahead,
                            .prepare = prepare,
                            .device_peak = device_peak,
                            .keep = keep };
    LS_TRY(ls__model_space(f->model, f->run, &f->space));
    ls__run_with_model(f->run, &model);
    if (ls__run_options(f->run)->profile) LS_TRY(ls__fit_profile_begin(f->model, f->run));
    LS_TRY(declare(f, LS_STAGE_TRAIN, f->train, "train"));
    return f->val ? declare(f, LS_STAGE_EVALUATE, f->val, "val") : LS_OK;
}

static ls_status begin(fit *f, const ls_run_options *options)
{
    ls_run_options own = options ? *options : (ls_run_options) { 0 };
    ls_comm *comm = ls_world_comm(f->model->world);
    LS_TRY(ls__share_failure(comm, check_model(f, &own), NULL, NULL));
    LS_TRY(ls_run_create(f->model->world, f->train, &own, &f->run));
    return ls__share_failure(comm, make_space(f), NULL, NULL);
}

static void validate(fit *f)
{
    ls_values values;
    ls_mode modes[LS_VALUES_MAX];
    double began = ls__run_pause_begin(f->run);
    ls__model_at_step(f->model, ls_run_step(f->run));
    ls_status status = ls__model_evaluate(f->model, f->val, ls__space_params(f->space),
                                          ls__space_resident(f->space), "val", &values, modes);
    ls__run_pause_end(f->run, began);
    if (status != LS_OK)
        ls__run_fail_shared(f->run, status);
    else
        ls__run_validated(f->run, "val", &values, modes);
}

static void latch(fit *f, ls_status status)
{
    if (status != LS_OK) ls__run_fail(f->run, status);
}

static void loop(fit *f)
{
    ls_batch batch;
    bool profile = ls__run_options(f->run)->profile;
    for (int64_t steps = 0; ls_run_next(f->run); steps++) {
        if (profile) latch(f, ls__fit_profile_step(f->model, f->run, steps));
        while (ls_run_micro_batch(f->run, &batch)) ls_model_gradients(f->model, f->space, &batch);
        ls_space_step(f->space);
        if (f->val && ls_run_due_validation(f->run)) validate(f);
    }
}

ls_status ls_fit(ls_model *model, ls_dataset *train, ls_dataset *val, const ls_run_options *options,
                 ls_run_result *out)
{
    if (!model || !train)
        return ls_fail(LS_ERR_ARG, "ls_fit: a model and training data are needed");
    fit f = { .model = model, .train = train, .val = val };
    ls_status status = begin(&f, options);
    if (status != LS_OK && f.run) ls__run_fail_shared(f.run, status);
    if (status == LS_OK) {
        loop(&f);
        if (ls__run_options(f.run)->profile) latch(&f, ls__fit_profile_end(model, f.run));
    }
    return f.run ? ls_run_finish(f.run, out) : status;
}
