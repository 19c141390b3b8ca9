/* The double-precision executor of tests/graph behind a backend's table. */
#include "golden.h"

#include "testing.h"

#include "../graph/reference.h"

struct ls__executable {
    reference *run;
    float *buffers[512]; /* what read gave out, by tensor */
};

static ls_status open_threads(int threads, int device)
{
    (void)threads, (void)device;
    return LS_OK;
}

static ls_status compile(const ls_graph *graph, ls__executable **out)
{
    *out = calloc(1, sizeof **out);
    (*out)->run = reference_create(graph);
    assert_true(ls__graph_tensors(graph, NULL) <= 512);
    return LS_OK;
}

static void destroy(ls__executable *e)
{
    for (int i = 0; i < 512; i++) free(e->buffers[i]);
    reference_destroy(e->run);
    free(e);
}

static size_t arena_bytes(const ls__executable *e)
{
    (void)e;
    return 0;
}

static double number(const void *data, ls_dtype type, int64_t i)
{
    switch (type) {
    case LS_DTYPE_U8:
        return ((const uint8_t *)data)[i];
    case LS_DTYPE_I32:
        return ((const int32_t *)data)[i];
    case LS_DTYPE_I64:
        return (double)((const int64_t *)data)[i];
    default:
        return (double)((const float *)data)[i];
    }
}

static void take_in(ls__executable *e, const ls__run_context *c, const ls_tensor *x)
{
    double *values = reference_of(e->run, x);
    for (int64_t i = 0; i < reference_count(x); i++) {
        if (x->role == LS__ROLE_INPUT) values[i] = number(c->fields[x->slot], x->type, i);
        if (x->role == LS__ROLE_PARAM || x->role == LS__ROLE_STATISTIC)
            values[i] = (double)c->params[c->offsets[x->slot] + i];
    }
}

static void give_gradients(ls__executable *e, const ls__run_context *c)
{
    const ls__graph_param *params;
    int n = ls__graph_params(e->run->graph, &params);
    for (int i = 0; i < n && c->grads; i++)
        for (int64_t k = 0; k < reference_count(params[i].tensor); k++)
            c->grads[c->offsets[i] + k] =
                params[i].grad ? (float)reference_of(e->run, params[i].grad)[k] : 0;
}

static ls_status run(ls__executable *e, const ls__run_context *c)
{
    ls_tensor *const *tensors;
    int n = ls__graph_tensors(e->run->graph, &tensors);
    for (int i = 0; i < n; i++) take_in(e, c, tensors[i]);
    e->run->seed = c->seed;
    e->run->step = c->step;
    e->run->first = c->first;
    e->run->grad_seed = c->grad_seed;
    ls_status status = reference_run(e->run);
    if (status == LS_OK) give_gradients(e, c);
    return status;
}

static ls_status read_plain(ls__executable *e, const ls__run_context *c, const ls_tensor *x,
                            ls_array *out)
{
    (void)c;
    int64_t count = reference_count(x);
    float *values = e->buffers[x->id];
    if (!values) values = e->buffers[x->id] = malloc((size_t)count * sizeof *values);
    for (int64_t i = 0; i < count; i++) values[i] = (float)reference_of(e->run, x)[i];
    *out = (ls_array) { .type = LS_DTYPE_F32, .rank = x->rank, .data = values };
    memcpy(out->shape, x->shape, sizeof out->shape);
    return LS_OK;
}

const ls__backend reference_backend = { .name = "reference",
                                        .open = open_threads,
                                        .compile = compile,
                                        .destroy = destroy,
                                        .arena_bytes = arena_bytes,
                                        .run = run,
                                        .read = read_plain };
