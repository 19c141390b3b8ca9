/* What leaves a graph: losses, reports, metrics, outputs.
 *
 * Everything is checked in every stage, so that a mistake in what is only predicted shows before
 * hours of training; then only what the stage reads is kept, and the rest dies as dead code. */
#include "graph/construct.h"

#include <string.h>

#include "base/check.h"
#include "graph/ops.h"

enum { MAX_METRIC_VALUES = sizeof((ls__graph_result *)0)->values / sizeof(ls_tensor *) };

static void add_result(ls_graph *g, const ls__graph_result *result)
{
    for (int i = 0; i < g->nresults; i++) {
        if (strcmp(g->results[i].name, result->name) != 0) continue;
        ls__graph_fail(g, LS_ERR_ARG, "\"%s\" is reported twice: give each result its own name",
                       result->name);
        return;
    }
    ls__graph_result copy = *result;
    copy.name = ls__graph_strdup(g, result->name);
    if (!copy.name || !ls__graph_grow(g, &g->results, g->nresults, &g->result_room, sizeof copy))
        return;
    g->results[g->nresults++] = copy;
}

/* False when a sink has nothing to do; a mistake is latched. */
static bool sink_usable(ls_graph *g, const char *sink, const char *name, const ls_tensor *x)
{
    if (!g || g->status != LS_OK) return false;
    if (!name || !*name) {
        ls__graph_fail(g, LS_ERR_ARG, "%s: a name is missing", sink);
        return false;
    }
    if (!x) {
        if (!ls__graph_forgives_null(g))
            ls__graph_fail(g, LS_ERR_ARG, "%s \"%s\": the tensor is NULL", sink, name);
        return false;
    }
    if (x->graph == g) return true;
    ls__graph_fail(g, LS_ERR_ARG, "%s \"%s\": the tensor belongs to another graph", sink, name);
    return false;
}

static bool per_sample(ls_graph *g, const char *sink, const char *name, const ls_tensor *x)
{
    if (x->sample_major && x->type == LS_DTYPE_F32) return true;
    char text[LS__TENSOR_TEXT];
    ls__graph_fail(g, LS_ERR_SHAPE,
                   "%s \"%s\": needs f32 values per sample, (B, ...), but got %s; do not average, "
                   "the mean over the whole stage is taken for you",
                   sink, name, ls__tensor_text(x, text));
    return false;
}

static bool losses_usable(ls_graph *g, const ls_tensor *losses)
{
    char text[LS__TENSOR_TEXT];
    if (losses->sample_major && losses->type == LS_DTYPE_F32) return true;
    if (losses->rank == 0)
        ls__graph_fail(g, LS_ERR_SHAPE,
                       "ls_minimize: the loss is a scalar; give it one loss per target, not "
                       "reduced, such as (B): it is summed and divided over the whole global "
                       "batch for you");
    else
        ls__graph_fail(g, LS_ERR_SHAPE,
                       "ls_minimize: losses must be f32, one per target, (B, ...), but are %s",
                       ls__tensor_text(losses, text));
    return false;
}

static bool weights_usable(ls_graph *g, const ls_tensor *losses, const ls_tensor *weights)
{
    char first[LS__TENSOR_TEXT], second[LS__TENSOR_TEXT];
    if (weights->type != LS_DTYPE_F32 || !ls__tensor_same_shape(losses, weights)) {
        ls__graph_fail(g, LS_ERR_SHAPE,
                       "ls_minimize: weights %s must be f32 and of the losses' shape %s",
                       ls__tensor_text(weights, first), ls__tensor_text(losses, second));
        return false;
    }
    if (!weights->learned) return true;
    ls__graph_fail(
        g, LS_ERR_ARG,
        "ls_minimize: the weights depend on a parameter; they may depend on inputs only");
    return false;
}

void ls_minimize(ls_graph *g, ls_tensor *losses, ls_tensor *weights)
{
    if (g && g->options.stage == LS_STAGE_PREDICT) return;
    if (!sink_usable(g, "ls_minimize", "loss", losses)) return;
    if (g->losses) {
        ls__graph_fail(g, LS_ERR_UNSUPPORTED,
                       "ls_minimize: a second objective in one step function is not supported yet; "
                       "add the losses, scaled as you want them, and minimize the sum");
        return;
    }
    if (!losses_usable(g, losses)) return;
    if (weights &&
        (!sink_usable(g, "ls_minimize", "weights", weights) || !weights_usable(g, losses, weights)))
        return;
    if (weights && losses->weights)
        weights = ls_apply(&ls__op_mul, NULL, 0, (ls_tensor *[]) { weights, losses->weights }, 2);
    if (g->status != LS_OK) return;
    g->losses = losses;
    g->loss_weights = weights ? weights : losses->weights;
    add_result(g, &(ls__graph_result) { .kind = LS__RESULT_LOSS,
                                        .name = "loss",
                                        .values = { losses },
                                        .nvalues = 1,
                                        .weights = g->loss_weights });
}

void ls_report(ls_graph *g, const char *name, ls_tensor *values)
{
    if (g && g->options.stage == LS_STAGE_PREDICT) return;
    if (!sink_usable(g, "ls_report", name, values) || !per_sample(g, "ls_report", name, values))
        return;
    add_result(g, &(ls__graph_result) { .kind = LS__RESULT_REPORT,
                                        .name = name,
                                        .values = { values },
                                        .nvalues = 1,
                                        .weights = values->weights });
}

static bool metric_usable(ls_graph *g, const ls_metric *metric, ls_tensor *const *values,
                          int nvalues)
{
    if (!metric || !metric->name || !metric->update || !metric->merge || !metric->result) {
        ls__graph_fail(g, LS_ERR_ARG,
                       "ls_report_metric: a metric needs a name, update, merge and result");
        return false;
    }
    if (nvalues >= 1 && nvalues <= MAX_METRIC_VALUES && values) return true;
    ls__graph_fail(g, LS_ERR_ARG, "ls_report_metric \"%s\": %d values, 1 to %d are possible",
                   metric->name, nvalues, MAX_METRIC_VALUES);
    return false;
}

void ls_report_metric(ls_graph *g, const ls_metric *metric, ls_tensor *const *values, int nvalues)
{
    if (!g || g->options.stage == LS_STAGE_PREDICT) return;
    if (!metric_usable(g, metric, values, nvalues)) return;
    ls__graph_result result = {
        .kind = LS__RESULT_METRIC, .name = metric->name, .metric = metric, .nvalues = nvalues
    };
    for (int i = 0; i < nvalues; i++) {
        if (!sink_usable(g, "ls_report_metric", metric->name, values[i])) return;
        result.values[i] = values[i];
    }
    add_result(g, &result);
}

void ls_output(ls_graph *g, const char *name, ls_tensor *x)
{
    if (g && name && !x && g->status == LS_OK && g->missing_input) {
        ls__graph_fail(g, LS_ERR_DATA,
                       "ls_output \"%s\": it depends on a field that the data lacks", name);
        return;
    }
    if (!sink_usable(g, "ls_output", name, x)) return;
    if (!x->batched) {
        char text[LS__TENSOR_TEXT];
        ls__graph_fail(g, LS_ERR_SHAPE,
                       "ls_output \"%s\": an output has one row per sample, (B, ...), but this is "
                       "%s; ls_reshape can give it that shape",
                       name, ls__tensor_text(x, text));
        return;
    }
    if (g->options.stage != LS_STAGE_PREDICT) return;
    add_result(g, &(ls__graph_result) {
                      .kind = LS__RESULT_OUTPUT, .name = name, .values = { x }, .nvalues = 1 });
}
