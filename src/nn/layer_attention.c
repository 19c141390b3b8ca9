/* Attention and rotary positions over a tensor qkv, and softmax.
 *
 * The same call trains, evaluates and decodes: in a graph that predicts token by token, attention
 * keeps keys and values of earlier tokens in a state of its name, and positions count from there. */
#include "nn/layer.h"

#include <math.h>

/* How qkv is divided; false after latching what does not fit. */
static bool divide(const char *what, const char *name, const ls_tensor *qkv,
                   const ls_attention_options *o, ls__attention_attributes *out)
{
    char text[LS__TENSOR_TEXT];
    ls_graph *g = qkv->graph;
    if (!o || o->heads < 1 || o->kv_heads < 0) {
        ls__graph_fail(g, LS_ERR_ARG, "%s \"%s\": options must give the number of heads", what,
                       name);
        return false;
    }
    int64_t kv_heads = o->kv_heads ? o->kv_heads : o->heads;
    if (o->heads % kv_heads != 0) {
        ls__graph_fail(g, LS_ERR_ARG,
                       "%s \"%s\": kv_heads %lld must divide the %lld heads, which share them in "
                       "groups",
                       what, name, (long long)kv_heads, (long long)o->heads);
        return false;
    }
    int64_t parts = 0, twice = 0;
    bool countable = !__builtin_mul_overflow(kv_heads, 2, &twice) &&
                     !__builtin_add_overflow(o->heads, twice, &parts);
    if (!countable || qkv->rank != 3 || qkv->shape[2] % parts != 0) {
        ls__graph_fail(g, LS_ERR_SHAPE,
                       "%s \"%s\": input %s must be (B, T, (heads + 2 kv_heads) D), D numbers for "
                       "each of %lld + 2 * %lld heads",
                       what, name, ls__tensor_text(qkv, text), (long long)o->heads,
                       (long long)kv_heads);
        return false;
    }
    out->heads = o->heads;
    out->kv_heads = kv_heads;
    out->width = qkv->shape[2] / parts;
    out->causal = !o->full;
    out->scale = o->scale != 0 ? o->scale : 1 / sqrt((double)out->width);
    return true;
}

/* One more token of each text: keys and values join those of the earlier ones. */
static ls_tensor *attend_cached(ls_tensor *qkv, const char *name, const ls__attention_attributes *a)
{
    ls_graph *g = qkv->graph;
    if (!a->causal)
        return ls__graph_fail(g, LS_ERR_UNSUPPORTED,
                              "attention \"%s\": each token sees all others (full), so there is no "
                              "decoding one after another",
                              name);
    int64_t shape[] = { ls__graph_options_of(g)->decode, 2 * a->kv_heads * a->width };
    ls_tensor *in[] = {
        qkv, ls__graph_state_tensor(g, ls_name(g, "%s.cache", name), LS_DTYPE_F32, 2, shape),
        ls__graph_position(g)
    };
    return ls_apply(&ls__op_attention_cached, a, sizeof *a, in, 3);
}

ls_tensor *ls_attention(ls_tensor *qkv, const char *name, const ls_attention_options *options)
{
    ls__attention_attributes a = { 0 };
    ls_tensor *out[2];
    if (!ls__layer_check("attention", name, qkv, 1, LS_MAX_RANK)) return NULL;
    if (!divide("attention", name, qkv, options, &a)) return NULL;
    ls_graph *g = qkv->graph;
    if (!isfinite(a.scale))
        return ls__graph_fail(g, LS_ERR_ARG, "attention \"%s\": scale %g", name, a.scale);
    ls__graph_layer(g, name);
    if (ls__graph_options_of(g)->decode)
        out[0] = attend_cached(qkv, name, &a);
    else
        ls__apply_multi(&ls__op_attention, &a, sizeof a, &qkv, 1, out,
                        ls_graph_stage(g) == LS_STAGE_TRAIN ? 2 : 1);
    ls__graph_layer(g, NULL);
    return out[0];
}

ls_tensor *ls_rotary(ls_tensor *qkv, const ls_attention_options *options, double theta)
{
    ls__attention_attributes parts = { 0 };
    if (!ls__layer_check("rotary", "qkv", qkv, 1, LS_MAX_RANK)) return NULL;
    if (!divide("rotary", "qkv", qkv, options, &parts)) return NULL;
    ls_graph *g = qkv->graph;
    if (!(theta == 0 || (theta > 0 && isfinite(theta))))
        return ls__graph_fail(g, LS_ERR_ARG, "rotary: theta %g", theta);
    ls__rotary_attributes a = { .heads = parts.heads,
                                .kv_heads = parts.kv_heads,
                                .width = parts.width,
                                .theta = theta != 0 ? theta : 10000 };
    ls_tensor *in[] = { qkv, ls__graph_position(g) };
    return ls_apply(&ls__op_rotary, &a, sizeof a, in, in[1] ? 2 : 1);
}

ls_tensor *ls_softmax(ls_tensor *x)
{
    if (x && x->rank == 1 && x->sample_major)
        return ls__graph_fail(x->graph, LS_ERR_SHAPE,
                              "softmax: the last dimension is the batch; samples do not mix");
    return ls_apply(&ls__op_softmax, NULL, 0, &x, 1);
}
