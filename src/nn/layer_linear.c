/* The layers with weights, linear and convolution, and the checks all layers share. */
#include "nn/layer.h"

#include <math.h>

bool ls__layer_check(const char *what, const char *name, const ls_tensor *x, int min_rank,
                     int max_rank)
{
    if (!x) return false;
    char text[LS__TENSOR_TEXT];
    ls_graph *g = x->graph;
    if (!name || !*name) {
        ls__graph_fail(g, LS_ERR_ARG, "%s: a layer needs a name", what);
        return false;
    }
    if (x->type != LS_DTYPE_F32) {
        ls__graph_fail(g, LS_ERR_ARG, "%s \"%s\": input %s must be f32; ls_scale converts it", what,
                       name, ls__tensor_text(x, text));
        return false;
    }
    if (x->rank >= min_rank && x->rank <= max_rank) return true;
    static const char *const wanted[] = { "", "(B)", "(B, n)", "(B, C, n)", "(B, C, H, W)" };
    ls__graph_fail(g, LS_ERR_SHAPE, "%s \"%s\": input %s must be %s%s", what, name,
                   ls__tensor_text(x, text), wanted[min_rank],
                   max_rank > min_rank ? " or have more dimensions" : "");
    return false;
}

ls_tensor *ls__layer_param(ls_graph *g, const char *name, const char *part, ls_init init, int rank,
                           const int64_t *shape)
{
    return ls_param(g, ls_name(g, "%s.%s", name, part), &init, rank, shape);
}

/* PyTorch's kaiming_uniform(a = sqrt 5) for weights and its rule for biases come to the same. */
static ls_init fan_in(int64_t inputs)
{
    return (ls_init) { .kind = LS_INIT_UNIFORM, .scale = 1 / sqrt((double)inputs) };
}

/* --- linear --- */

static ls_init weight_init(const ls_linear_options *o, int64_t inputs)
{
    if (o->deviation == 0) return fan_in(inputs);
    return (ls_init) { .kind = LS_INIT_NORMAL, .scale = o->deviation };
}

static bool linear_fits(ls_graph *g, const char *name, const ls_linear_options *o)
{
    if (!o || o->features < 1) {
        ls__graph_fail(g, LS_ERR_ARG, "linear \"%s\": %lld features", name,
                       (long long)(o ? o->features : 0));
        return false;
    }
    if (o->deviation >= 0 && isfinite(o->deviation)) return true;
    ls__graph_fail(g, LS_ERR_ARG, "linear \"%s\": deviation %g", name, o->deviation);
    return false;
}

/* x (rows, inputs) */
static ls_tensor *apply_linear(ls_tensor *x, const char *name, const ls_linear_options *o)
{
    ls_graph *g = x->graph;
    int64_t inputs = ls_tensor_dim(x, 1), features = o->features;
    ls_init bias = fan_in(inputs);
    if (o->deviation > 0) bias = (ls_init) { .kind = LS_INIT_ZEROS };
    ls_tensor *in[3] = { x };
    in[1] = ls__layer_param(g, o->tied_to ? o->tied_to : name, "weight", weight_init(o, inputs), 2,
                            (int64_t[]) { features, inputs });
    if (!o->no_bias) in[2] = ls__layer_param(g, name, "bias", bias, 1, &features);
    ls__graph_layer(g, name);
    ls_tensor *y = ls_apply(&ls__op_linear, NULL, 0, in, o->no_bias ? 2 : 3);
    ls__graph_layer(g, NULL);
    return y;
}

ls_tensor *ls_linear_with(ls_tensor *x, const char *name, const ls_linear_options *options)
{
    if (!ls__layer_check("linear", name, x, 2, LS_MAX_RANK)) return NULL;
    if (!linear_fits(x->graph, name, options)) return NULL;
    if (!options->rows || x->rank == 2) {
        x = ls_flatten(x);
        return x ? apply_linear(x, name, options) : NULL;
    }
    int64_t shape[LS_MAX_RANK], last = x->rank - 1;
    for (int i = 0; i < last; i++) shape[i] = x->shape[i];
    shape[last] = options->features;
    ls_tensor *rows = ls_reshape(x, 2, (int64_t[]) { -1, x->shape[last] });
    ls_tensor *y = rows ? apply_linear(rows, name, options) : NULL;
    return ls_reshape(y, x->rank, shape);
}

ls_tensor *ls_linear(ls_tensor *x, const char *name, int64_t features)
{
    return ls_linear_with(x, name, &(ls_linear_options) { .features = features });
}

/* --- convolution --- */

static bool conv2d_fits(const char *name, const ls_tensor *x, const ls_conv2d_options *o)
{
    char text[LS__TENSOR_TEXT];
    ls_graph *g = x->graph;
    if (!o || o->channels < 1 || o->kernel < 1) {
        ls__graph_fail(g, LS_ERR_ARG, "conv2d \"%s\": options must give channels and kernel", name);
        return false;
    }
    if (o->stride < 0 || o->padding < 0) {
        ls__graph_fail(g, LS_ERR_ARG, "conv2d \"%s\": stride %d, padding %d", name, o->stride,
                       o->padding);
        return false;
    }
    int64_t around = 2 * (int64_t)o->padding;
    if (x->shape[2] + around >= o->kernel && x->shape[3] + around >= o->kernel) return true;
    ls__graph_fail(g, LS_ERR_SHAPE,
                   "conv2d \"%s\": kernel %d does not fit input %s with padding %d", name,
                   o->kernel, ls__tensor_text(x, text), o->padding);
    return false;
}

ls_tensor *ls_conv2d(ls_tensor *x, const char *name, const ls_conv2d_options *options)
{
    if (!ls__layer_check("conv2d", name, x, 4, 4) || !conv2d_fits(name, x, options)) return NULL;
    ls_graph *g = x->graph;
    int64_t channels = x->shape[1], kernel = options->kernel;
    ls_init init = fan_in(channels * kernel * kernel);
    ls_tensor *in[3] = { x };
    in[1] = ls__layer_param(g, name, "weight", init, 4,
                            (int64_t[]) { options->channels, channels, kernel, kernel });
    if (!options->no_bias) in[2] = ls__layer_param(g, name, "bias", init, 1, &options->channels);
    ls__conv2d_attributes attributes = { .kernel = kernel,
                                         .stride = options->stride ? options->stride : 1,
                                         .padding = options->padding,
                                         .height = x->shape[2],
                                         .width = x->shape[3] };
    ls__graph_layer(g, name);
    ls_tensor *y =
        ls_apply(&ls__op_conv2d, &attributes, sizeof attributes, in, options->no_bias ? 2 : 3);
    ls__graph_layer(g, NULL);
    return y;
}
