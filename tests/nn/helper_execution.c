/* Runs a step function on a backend: memory, and values by name. */
#include "golden.h"

#include "base/memory.h"
#include "testing.h"

static void allocate(execution *e)
{
    const ls__graph_param *params;
    int n = ls__graph_params(e->graph, &params);
    e->offsets = ls__alloc((size_t)n + 1, sizeof *e->offsets);
    for (int i = 0; i < n; i++) {
        ls_array like = { .rank = params[i].tensor->rank };
        memcpy(like.shape, params[i].tensor->shape, sizeof like.shape);
        e->offsets[i] = e->count;
        e->count += (ls_array_count(&like) + 15) / 16 * 16;
    }
    e->count += 16;
    e->params = ls__map((size_t)e->count * sizeof(float));
    e->grads = ls__map((size_t)e->count * sizeof(float));
    for (int i = 0; i < n; i++) ls__graph_init_param(&params[i], 0, e->params + e->offsets[i]);
    memset(e->grads, 0xff, (size_t)e->count * sizeof(float)); /* every one must be written */
}

const ls__backend *execution_backend(int threads)
{
    const char *name = getenv("LS_TEST_BACKEND");
    const ls__backend *backend;
    assert_ok(ls__backend_open(name ? name : "cpu", threads, &backend));
    return backend;
}

void execution_open(execution *e, const ls__backend *backend, ls_step_fn *step, void *user,
                    const ls__graph_options *options)
{
    *e = (execution) { .backend = backend };
    assert_ok(ls__graph_build(step, user, options, &e->graph));
    assert_ok(backend->compile(e->graph, &e->executable));
    allocate(e);
    e->arena_bytes = backend->arena_bytes(e->executable) + 64;
    e->arena = ls__map(e->arena_bytes);
    memset(e->arena, 0xff, e->arena_bytes); /* nothing may be read before it is written */
    e->fields = ls__alloc((size_t)options->nfields + 1, sizeof *e->fields);
    e->context = (ls__run_context) { .params = e->params,
                                     .grads = e->grads,
                                     .offsets = e->offsets,
                                     .fields = e->fields,
                                     .arena = e->arena,
                                     .grad_seed = 1 };
}

void execution_close(execution *e)
{
    e->backend->destroy(e->executable);
    ls__graph_destroy(e->graph);
    ls__unmap(e->params, (size_t)e->count * sizeof(float));
    ls__unmap(e->grads, (size_t)e->count * sizeof(float));
    ls__unmap(e->arena, e->arena_bytes);
    ls__free(e->fields);
    ls__free(e->offsets);
}

ls_status execution_run(execution *e)
{
    return e->backend->run(e->executable, &e->context);
}

static int find_param(const execution *e, const char *name, int64_t *count)
{
    const ls__graph_param *params;
    int n = ls__graph_params(e->graph, &params);
    for (int i = 0; i < n; i++) {
        if (strcmp(params[i].name, name) != 0) continue;
        ls_array like = { .rank = params[i].tensor->rank };
        memcpy(like.shape, params[i].tensor->shape, sizeof like.shape);
        *count = ls_array_count(&like);
        return i;
    }
    return -1;
}

float *execution_param(execution *e, const char *name, int64_t *count)
{
    int i = find_param(e, name, count);
    return i < 0 ? NULL : e->params + e->offsets[i];
}

float *execution_grad(execution *e, const char *name, int64_t *count)
{
    int i = find_param(e, name, count);
    return i < 0 ? NULL : e->grads + e->offsets[i];
}

static const ls__graph_result *find_result(const execution *e, const char *name)
{
    const ls__graph_result *results;
    int n = ls__graph_results(e->graph, &results);
    for (int i = 0; i < n; i++)
        if (!strcmp(results[i].name, name)) return &results[i];
    fail_msg("no result \"%s\"", name);
    return NULL;
}

ls_array execution_result(execution *e, const char *name)
{
    ls_array out = { 0 };
    assert_ok(e->backend->read(e->executable, &e->context, find_result(e, name)->values[0], &out));
    return out;
}

ls_array execution_weights(execution *e, const char *name)
{
    ls_array out = { 0 };
    assert_non_null(find_result(e, name)->weights);
    assert_ok(e->backend->read(e->executable, &e->context, find_result(e, name)->weights, &out));
    return out;
}
