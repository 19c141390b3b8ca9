/* The gradients of one micro-batch: the graph writes them where the exchange will read them. */
#include "base/check.h"
#include "trainer/model_internal.h"

/* Sums of the losses and reports go to the step's agreement. A metric with a state of its own is
 * for evaluations: there is no agreement that could carry it. */
static ls_status log_results(ls_model *model, ls_run *run, ls__built *built,
                             const ls__run_context *context, double *weight)
{
    const ls__graph_result *results;
    int n = ls__graph_results(built->graph, &results);
    for (int i = 0; i < n; i++) {
        if (results[i].kind != LS__RESULT_LOSS && results[i].kind != LS__RESULT_REPORT) continue;
        ls__mean_state state = { 0 };
        LS_TRY(ls__model_read(model, built, context, &results[i], &state));
        if (state.weight > 0) ls__run_log_sum(run, results[i].name, state.sum, state.weight);
        if (results[i].kind == LS__RESULT_LOSS) *weight = state.weight;
    }
    return LS_OK;
}

/* The next micro-batch, for a device that copies it meanwhile; another size is another executable. */
typedef struct look_ahead {
    ls_run *run;
    int64_t count; /* samples of the present one */
} look_ahead;

static bool next_fields(void *user, void *const **fields)
{
    const look_ahead *look = user;
    ls_batch next;
    if (!ls__run_peek(look->run, &next) || next.count != look->count) return false;
    *fields = next.fields;
    return true;
}

static ls_status compute(ls_model *model, ls_space *space, const ls_batch *batch, double *weight)
{
    ls_run *run = ls__space_run(space);
    ls__built *built;
    ls__run_context context;
    LS_TRY(ls__model_build(model, LS_STAGE_TRAIN, batch->count, ls__run_train(run), true, &built));
    ls__model_at_step(model, ls_run_step(run));
    look_ahead look = { run, batch->count };
    ls__model_call call = {
        .params = ls__space_params(space),
        .halves = ls__space_halves(space),
        .resident = ls__space_resident(space),
        .grads = ls__space_leaf(space),
        .batch = batch,
        .seed = ls__run_options(run)->seed,
        .step = ls_run_step(run),
        .data = ls__run_train(run),
        .stage = "train",
        .number = ls__run_batches(run),
        .ahead = next_fields,
        .ahead_user = &look,
    };
    if (!call.grads)
        return ls_fail(LS_ERR_ARG, "ls_model_gradients: no micro-batch is under way "
                                   "(ls_run_micro_batch comes first)");
    LS_TRY(ls__model_run(model, built, &call, &context));
    return log_results(model, run, built, &context, weight);
}

void ls_model_gradients(ls_model *model, ls_space *space, const ls_batch *batch)
{
    if (!model || !space || !batch) return;
    double weight = 0;
    ls_status status = compute(model, space, batch, &weight);
    if (status != LS_OK)
        ls__run_fail(ls__space_run(space), status);
    else
        ls__space_leaf_done(space, weight);
}
