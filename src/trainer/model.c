/* A model: a step function, and whatever has been made from it so far. Nothing is built before
 * it is needed, because only then the data's fields are known. */
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"
#include "trainer/model_internal.h"

ls_status ls_model_create(ls_world *world, ls_step_fn *step, void *user, ls_model **out)
{
    *out = NULL;
    if (!world || !step)
        return ls_fail(LS_ERR_ARG, "ls_model_create: a world and a step function are needed");
    ls_model *model = ls__alloc(1, sizeof *model);
    if (!model) return LS_ERR_MEMORY;
    model->world = world;
    model->step = step;
    model->user = user;
    ls__model_changed(model);
    *out = model;
    return LS_OK;
}

void ls_model_set_precision(ls_model *model, ls_precision precision)
{
    model->precision = precision;
}

/* A moment: no other model's version either, should its weights lie where these lay. */
void ls__model_changed(ls_model *model)
{
    model->params_version = (uint64_t)ls__now_ns();
    model->version_step = -1;
}

void ls__model_at_step(ls_model *model, int64_t step)
{
    if (model->version_step == step) return;
    ls__model_changed(model);
    model->version_step = step;
}

void ls_model_destroy(ls_model *model)
{
    if (!model) return;
    ls__model_free_built(model);
    ls__loaded_free(model->loaded);
    ls__unmap(model->values, (size_t)model->count * sizeof(float));
    ls__free(model->tensors);
    ls__free(model->origins);
    ls__free(model);
}
