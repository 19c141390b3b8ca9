/* Batch norm: statistics of groups of samples in training, running ones otherwise. */
#include "nn/layer.h"

enum { DEFAULT_GROUP = 16 };
static const double momentum = 0.1;
static const double epsilon = 1e-5;

static ls_tensor *train(ls_graph *g, ls_tensor *const *in, ls_tensor *const *running, int64_t group)
{
    ls__batch_norm_attributes attributes = { .group = group, .epsilon = epsilon };
    ls_tensor *out[5];
    ls__apply_multi(&ls__op_batch_norm, &attributes, sizeof attributes, in, 3, out, 5);
    ls__graph_statistic_sum(g, running[0], out[3]);
    ls__graph_statistic_sum(g, running[1], out[4]);
    ls__graph_needs_group(g, group);
    return out[0];
}

ls_tensor *ls_batch_norm_with(ls_tensor *x, const char *name, const ls_batch_norm_options *options)
{
    if (!ls__layer_check("batch_norm", name, x, 2, LS_MAX_RANK)) return NULL;
    ls_graph *g = x->graph;
    int group = options && options->group ? options->group : DEFAULT_GROUP;
    if (group < 1) return ls__graph_fail(g, LS_ERR_ARG, "batch_norm \"%s\": group %d", name, group);
    if (!x->batched)
        return ls__graph_fail(g, LS_ERR_SHAPE,
                              "batch_norm \"%s\": the input's first dimension must be the batch",
                              name);
    int64_t channels = x->shape[1];
    ls_init one = { .kind = LS_INIT_CONSTANT, .scale = 1 }, zero = { .kind = LS_INIT_ZEROS };
    ls_tensor *in[5] = { x, ls__layer_param(g, name, "weight", one, 1, &channels),
                         ls__layer_param(g, name, "bias", zero, 1, &channels) };
    in[3] = ls__graph_statistic(g, ls_name(g, "%s.running_mean", name), 0, momentum, channels);
    in[4] = ls__graph_statistic(g, ls_name(g, "%s.running_var", name), 1, momentum, channels);
    ls__graph_layer(g, name);
    ls__batch_norm_attributes inference = { .epsilon = epsilon };
    ls_tensor *y =
        ls_graph_stage(g) == LS_STAGE_TRAIN
            ? train(g, in, in + 3, group)
            : ls_apply(&ls__op_batch_norm_inference, &inference, sizeof inference, in, 5);
    ls__graph_layer(g, NULL);
    return y;
}

ls_tensor *ls_batch_norm(ls_tensor *x, const char *name)
{
    return ls_batch_norm_with(x, name, NULL);
}
