/* Embeddings of tokens and of positions. */
#include "nn/layer.h"

#include <math.h>

static bool table_fits(ls_graph *g, const char *what, const char *name, int64_t rows, int64_t width,
                       double deviation)
{
    if (!name || !*name) {
        ls__graph_fail(g, LS_ERR_ARG, "%s: a layer needs a name", what);
        return false;
    }
    if (rows < 1 || width < 1) {
        ls__graph_fail(g, LS_ERR_ARG, "%s \"%s\": a table of %lld rows of %lld", what, name,
                       (long long)rows, (long long)width);
        return false;
    }
    if (deviation >= 0 && isfinite(deviation)) return true;
    ls__graph_fail(g, LS_ERR_ARG, "%s \"%s\": deviation %g", what, name, deviation);
    return false;
}

static ls_tensor *table(ls_graph *g, const char *name, int64_t rows, int64_t width,
                        double deviation)
{
    ls_init init = { .kind = LS_INIT_NORMAL, .scale = deviation > 0 ? deviation : 1 };
    return ls__layer_param(g, name, "weight", init, 2, (int64_t[]) { rows, width });
}

ls_tensor *ls_embedding(ls_tensor *tokens, const char *name, int64_t count, int64_t width,
                        double deviation)
{
    if (!tokens) return NULL;
    ls_graph *g = tokens->graph;
    if (!table_fits(g, "embedding", name, count, width, deviation)) return NULL;
    ls_tensor *weight = table(g, name, count, width, deviation);
    ls__graph_layer(g, name);
    ls_tensor *y = ls_apply(&ls__op_embedding, NULL, 0, (ls_tensor *[]) { tokens, weight }, 2);
    ls__graph_layer(g, NULL);
    return y;
}

ls_tensor *ls_position_embedding(ls_tensor *x, const char *name, int64_t context, double deviation)
{
    if (!ls__layer_check("position_embedding", name, x, 3, 3)) return NULL;
    ls_graph *g = x->graph;
    if (!table_fits(g, "position_embedding", name, context, x->shape[2], deviation)) return NULL;
    ls_tensor *in[] = { x, table(g, name, context, x->shape[2], deviation), ls__graph_position(g) };
    ls__graph_layer(g, name);
    ls_tensor *y = ls_apply(&ls__op_position_embedding, NULL, 0, in, in[2] ? 3 : 2);
    ls__graph_layer(g, NULL);
    return y;
}
