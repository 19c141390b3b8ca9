/* Gradients against central differences. */
#include "differences.h"
#include "testing.h"

#include <math.h>

#include "graph/ops.h"

enum { CLASSES = 5 };

reference *differences_prepare(const ls_graph *g)
{
    reference *r = reference_create(g);
    ls_tensor *const *tensors;
    int n = ls__graph_tensors(g, &tensors);
    for (int i = 0; i < n; i++) {
        const ls_tensor *x = tensors[i];
        if (x->role == LS__ROLE_VALUE || x->role == LS__ROLE_CONSTANT) continue;
        double *values = reference_of(r, x);
        int64_t count = reference_count(x);
        reference_fill(values, count, (uint64_t)(i + 1), 1);
        for (int64_t k = 0; k < count && x->type != LS_DTYPE_F32; k++)
            values[k] = k % 4 == 3 && x->type == LS_DTYPE_I64 ? LS__LABEL_IGNORED
                                                              : (double)((7 * k + 3) % CLASSES);
    }
    r->seed = 11;
    r->step = 3;
    r->first = 32;
    r->grad_seed = 0.75;
    return r;
}

double differences_objective(reference *r)
{
    const ls__graph_result *loss = reference_result(r->graph, "loss");
    assert_ok(reference_run(r));
    double sum = 0;
    for (int64_t i = 0; i < reference_count(loss->values[0]); i++)
        sum += reference_of(r, loss->values[0])[i] *
               (loss->weights ? reference_of(r, loss->weights)[i] : 1);
    return sum * r->grad_seed;
}

static void check_tensor(reference *r, const ls_tensor *x, const ls_tensor *grad, const char *name)
{
    int64_t count = reference_count(x);
    double *analytic = malloc((size_t)count * sizeof *analytic), *values = reference_of(r, x);
    differences_objective(r);
    memcpy(analytic, reference_of(r, grad), (size_t)count * sizeof *analytic);
    for (int64_t i = 0; i < count; i++) {
        double kept = values[i], step = 1e-5;
        values[i] = kept + step;
        double above = differences_objective(r);
        values[i] = kept - step;
        double below = differences_objective(r);
        values[i] = kept;
        double numeric = (above - below) / (2 * step);
        if (!(fabs(numeric - analytic[i]) <= 2e-6 * (1 + fabs(numeric))))
            fail_msg("%s[%lld]: gradient %.9g, finite differences %.9g", name, (long long)i,
                     analytic[i], numeric);
    }
    free(analytic);
}

void differences_check(ls_step_fn *step, void *user, int64_t batch, const ls_field *fields,
                       int nfields, int checked)
{
    ls__graph_options options = { .stage = LS_STAGE_TRAIN,
                                  .batch = batch,
                                  .fields = fields,
                                  .nfields = nfields,
                                  .input_gradients = true };
    ls_graph *g;
    assert_ok(ls__graph_build(step, user, &options, &g));
    reference *r = differences_prepare(g);
    const ls__graph_param *params;
    const ls__graph_result *results;
    int nparams = ls__graph_params(g, &params), nresults = ls__graph_results(g, &results);
    for (int i = 0; i < nparams; i++) {
        if (params[i].role != LS__ROLE_PARAM || !params[i].grad) continue;
        check_tensor(r, params[i].tensor, params[i].grad, params[i].name);
        checked--;
    }
    for (int i = 0; i < nresults; i++) {
        if (strncmp(results[i].name, "gradient of ", 12) != 0) continue;
        const char *field = results[i].name + 12;
        check_tensor(r, reference_input(g, field), results[i].values[0], field);
        checked--;
    }
    assert_true(checked <= 0);
    reference_destroy(r);
    ls__graph_destroy(g);
}
