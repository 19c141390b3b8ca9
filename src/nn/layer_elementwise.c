/* Activations, scaling, dropout and reshaping: thin faces of one operation each. */
#include "nn/layer.h"

#include <stdio.h>
#include <string.h>

#include <xxhash.h>

ls_tensor *ls_relu(ls_tensor *x)
{
    return ls_apply(&ls__op_relu, NULL, 0, &x, 1);
}

ls_tensor *ls_scale(ls_tensor *x, float factor, float offset)
{
    ls__scale_attributes attributes = { .factor = factor, .offset = offset };
    return ls_apply(&ls__op_scale, &attributes, sizeof attributes, &x, 1);
}

ls_tensor *ls_dropout(ls_tensor *x, const char *name, double p)
{
    if (!ls__layer_check("dropout", name, x, 1, LS_MAX_RANK)) return NULL;
    if (!(p >= 0 && p <= 1))
        return ls__graph_fail(x->graph, LS_ERR_ARG,
                              "dropout \"%s\": probability %g is not in [0, 1]", name, p);
    if (!x->batched)
        return ls__graph_fail(x->graph, LS_ERR_SHAPE,
                              "dropout \"%s\": the input's first dimension must be the batch",
                              name);
    if (p == 0 || ls_graph_stage(x->graph) != LS_STAGE_TRAIN) return x;
    ls__dropout_attributes attributes;
    memset(&attributes, 0, sizeof attributes);
    attributes.name_hash = XXH3_64bits(name, strlen(name));
    attributes.threshold = (uint64_t)(p * 4294967296.0);
    attributes.factor = p < 1 ? (float)(1 / (1 - p)) : 0;
    return ls_apply(&ls__op_dropout, &attributes, sizeof attributes, &x, 1);
}

/* --- reshape --- */

/* Puts the number that -1 stands for; false when the shape cannot be. */
static bool resolve_shape(int64_t count, int rank, const int64_t *shape, int64_t *out)
{
    int open = -1;
    int64_t known = 1;
    for (int i = 0; i < rank; i++) {
        out[i] = shape[i];
        if (shape[i] == -1 && open < 0)
            open = i;
        else if (shape[i] < 1 || __builtin_mul_overflow(known, shape[i], &known))
            return false;
    }
    if (open >= 0) {
        out[open] = count / known;
        known *= out[open];
    }
    return known == count;
}

static ls_tensor *reshape_unchecked(ls_tensor *x, const ls__reshape_attributes *attributes)
{
    ls_tensor *y = ls_apply(&ls__op_reshape, attributes, sizeof *attributes, &x, 1);
    if (!y) return NULL;
    int64_t batch = ls__graph_options_of(x->graph)->batch;
    y->sample_major = x->sample_major && y->rank > 0 && y->shape[0] % batch == 0;
    y->batched = y->sample_major && y->shape[0] == batch;
    return y;
}

ls_tensor *ls_reshape(ls_tensor *x, int rank, const int64_t *shape)
{
    if (!x) return NULL;
    char text[LS__TENSOR_TEXT];
    ls__reshape_attributes attributes = { .rank = rank };
    int64_t count = 1;
    for (int i = 0; i < x->rank; i++) count *= x->shape[i];
    if (rank < 0 || rank > LS_MAX_RANK || (rank > 0 && !shape) ||
        !resolve_shape(count, rank, shape, attributes.shape)) {
        char wanted[160] = "";
        size_t used = 0;
        for (int i = 0; i < rank && i < LS_MAX_RANK && shape; i++)
            used += (size_t)snprintf(wanted + used, sizeof wanted - used, "%s%lld", i ? "," : "",
                                     (long long)shape[i]);
        return ls__graph_fail(x->graph, LS_ERR_SHAPE, "reshape: %s cannot become (%s)",
                              ls__tensor_text(x, text), wanted);
    }
    ls_tensor *y = reshape_unchecked(x, &attributes);
    if (y && x->weights) y->weights = reshape_unchecked(x->weights, &attributes);
    return y;
}

ls_tensor *ls_flatten(ls_tensor *x)
{
    if (!x || x->rank == 2) return x;
    if (x->rank < 1)
        return ls__graph_fail(x->graph, LS_ERR_SHAPE, "flatten: a scalar has no first dimension");
    return ls_reshape(x, 2, (int64_t[]) { x->shape[0], -1 });
}
