/* The table of a model's parameters: the one place that says where in the flat space each lies.
 * It grows in the order of first use, and the training graph comes first in a fit, so offsets
 * depend on the model alone. */
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "trainer/model_internal.h"

enum { ALIGNMENT = 16 /* elements: 64 bytes */ };

static int64_t tensor_count(const ls__space_tensor *t)
{
    int64_t count = 1;
    for (int d = 0; d < t->rank; d++) count *= t->shape[d];
    return count;
}

static int find(const ls_model *model, const char *name)
{
    for (int i = 0; i < model->ntensors; i++)
        if (strcmp(model->tensors[i].name, name) == 0) return i;
    return -1;
}

static ls_status check_same(const ls__space_tensor *t, const ls_tensor *x)
{
    bool same = t->rank == ls_tensor_rank(x);
    for (int d = 0; same && d < t->rank; d++) same = t->shape[d] == ls_tensor_dim(x, d);
    if (same) return LS_OK;
    return ls_fail(
        LS_ERR_SHAPE,
        "parameter %s: its shape depends on the micro-batch or the stage; it must be one and "
        "the same whenever the step function is called",
        t->name);
}

static ls_status append(ls_model *model, const ls__graph_param *param)
{
    size_t n = (size_t)model->ntensors + 1;
    ls__space_tensor *tensors = ls__realloc(model->tensors, n, sizeof *tensors);
    if (tensors) model->tensors = tensors;
    const ls__graph_param **origins = ls__realloc(model->origins, n, sizeof *origins);
    if (origins) model->origins = origins;
    if (!tensors || !origins) return LS_ERR_MEMORY;
    ls__space_tensor *t = &tensors[model->ntensors];
    *t = (ls__space_tensor) {
        .name = param->name,
        .rank = ls_tensor_rank(param->tensor),
        .offset = model->count,
        .decays = param->decays,
        .statistic = param->role == LS__ROLE_STATISTIC,
        .momentum = param->momentum,
        .depth = param->depth,
    };
    for (int d = 0; d < t->rank; d++) t->shape[d] = ls_tensor_dim(param->tensor, d);
    origins[model->ntensors++] = param;
    model->count += (tensor_count(t) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return LS_OK;
}

ls_status ls__model_table(ls_model *model, const ls_graph *graph, int64_t *offsets)
{
    const ls__graph_param *params;
    int n = ls__graph_params(graph, &params);
    bool closed = model->ntensors > 0;
    for (int i = 0; i < n; i++) {
        int at = find(model, params[i].name);
        if (at < 0 && closed)
            return ls_fail(
                LS_ERR_ARG,
                "parameter %s appears only in some stages; create every parameter in every "
                "stage that is used",
                params[i].name);
        if (at >= 0)
            LS_TRY(check_same(&model->tensors[at], params[i].tensor));
        else
            LS_TRY(append(model, &params[i]));
        offsets[i] = model->tensors[at >= 0 ? at : model->ntensors - 1].offset;
    }
    if (n == 0) return ls_fail(LS_ERR_ARG, "the step function creates no parameters");
    return ls__model_apply_loaded(model);
}

ls_status ls__model_saved(const ls_model *model, ls__saved_tensor **out)
{
    ls__saved_tensor *saved = *out = ls__alloc((size_t)model->ntensors, sizeof *saved);
    if (!saved) return LS_ERR_MEMORY;
    for (int i = 0; i < model->ntensors; i++) {
        const ls__space_tensor *t = &model->tensors[i];
        saved[i] = (ls__saved_tensor) {
            .name = t->name, .rank = t->rank, .offset = t->offset, .has_state = !t->statistic
        };
        memcpy(saved[i].shape, t->shape, sizeof t->shape);
    }
    return LS_OK;
}

ls_status ls__model_keep(ls_model *model, const float *params)
{
    size_t nbytes = (size_t)model->count * sizeof(float);
    if (!model->values) model->values = ls__map(nbytes);
    if (!model->values) return LS_ERR_MEMORY;
    memcpy(model->values, params, nbytes);
    ls__model_changed(model);
    return LS_OK;
}

void ls__model_init(void *user, uint64_t seed, float *values)
{
    const ls_model *model = user;
    for (int i = 0; i < model->ntensors; i++) {
        const ls__space_tensor *t = &model->tensors[i];
        if (model->values)
            memcpy(values + t->offset, model->values + t->offset,
                   (size_t)tensor_count(t) * sizeof(float));
        else
            ls__graph_init_param(model->origins[i], seed, values + t->offset);
    }
}
