/* Norms over the last dimension. */
#include "nn/layer.h"

static const double epsilon = 1e-5;

/* (..., C); a sample has at least one row of its own */
static bool rows_fit(const char *what, const char *name, const ls_tensor *x)
{
    return ls__layer_check(what, name, x, x && x->sample_major ? 2 : 1, LS_MAX_RANK);
}

ls_tensor *ls_layer_norm(ls_tensor *x, const char *name)
{
    if (!rows_fit("layer_norm", name, x)) return NULL;
    ls_graph *g = x->graph;
    int64_t width = ls_tensor_dim(x, -1);
    ls_init one = { .kind = LS_INIT_CONSTANT, .scale = 1 }, zero = { .kind = LS_INIT_ZEROS };
    ls_tensor *in[] = { x, ls__layer_param(g, name, "weight", one, 1, &width),
                        ls__layer_param(g, name, "bias", zero, 1, &width) };
    ls__norm_attributes attributes = { .epsilon = epsilon };
    ls_tensor *out[3];
    ls__graph_layer(g, name);
    ls__apply_multi(&ls__op_layer_norm, &attributes, sizeof attributes, in, 3, out, 3);
    ls__graph_layer(g, NULL);
    return out[0];
}

ls_tensor *ls_rms_norm(ls_tensor *x, const char *name)
{
    if (!rows_fit("rms_norm", name, x)) return NULL;
    ls_graph *g = x->graph;
    int64_t width = ls_tensor_dim(x, -1);
    ls_init one = { .kind = LS_INIT_CONSTANT, .scale = 1 };
    ls_tensor *in[] = { x, ls__layer_param(g, name, "weight", one, 1, &width) };
    ls__norm_attributes attributes = { .epsilon = epsilon };
    ls_tensor *out[2];
    ls__graph_layer(g, name);
    ls__apply_multi(&ls__op_rms_norm, &attributes, sizeof attributes, in, 2, out, 2);
    ls__graph_layer(g, NULL);
    return out[0];
}
