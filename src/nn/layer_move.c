/* Reductions, transpose, narrow and concat: operations along dimensions, of which the batch is
 * none. */
#include "nn/layer.h"

/* Dimension dim of x, counted from the front; -1 after latching what is wrong with it. why: what
 * the user may do instead when it is the batch. */
static int own_dimension(const char *what, const ls_tensor *x, int dim, const char *why)
{
    char text[LS__TENSOR_TEXT];
    int found = dim < 0 ? x->rank + dim : dim;
    if (found < 0 || found >= x->rank) {
        ls__graph_fail(x->graph, LS_ERR_SHAPE, "%s: %s has no dimension %d", what,
                       ls__tensor_text(x, text), dim);
        return -1;
    }
    if (found > 0 || !x->sample_major) return found;
    ls__graph_fail(x->graph, LS_ERR_SHAPE,
                   "%s: dimension %d of %s is the batch, which is cut into micro-batches and "
                   "among devices; %s",
                   what, dim, ls__tensor_text(x, text), why);
    return -1;
}

/* --- reductions --- */

static ls_tensor *reduce(const char *what, ls_tensor *x, int dim, ls__reduce_kind kind)
{
    if (!x) return NULL;
    dim = own_dimension(what, x, dim,
                        "ls_minimize, ls_report and ls_report_metric go over all samples for you");
    if (dim < 0) return NULL;
    ls__reduce_attributes attributes = { .kind = kind, .dim = dim, .size = x->shape[dim] };
    return ls_apply(&ls__op_reduce, &attributes, sizeof attributes, &x, 1);
}

ls_tensor *ls_sum(ls_tensor *x, int dim)
{
    return reduce("sum", x, dim, LS__REDUCE_SUM);
}

ls_tensor *ls_mean(ls_tensor *x, int dim)
{
    return reduce("mean", x, dim, LS__REDUCE_MEAN);
}

ls_tensor *ls_max(ls_tensor *x, int dim)
{
    return reduce("max", x, dim, LS__REDUCE_MAX);
}

/* --- moving --- */

static const char *const samples_stay = "samples stay where they are";

ls_tensor *ls_transpose(ls_tensor *x, int a, int b)
{
    if (!x) return NULL;
    a = own_dimension("transpose", x, a, samples_stay);
    if (a >= 0) b = own_dimension("transpose", x, b, samples_stay);
    if (a < 0 || b < 0) return NULL;
    if (a == b) return x;
    ls__transpose_attributes attributes = { .a = a < b ? a : b, .b = a < b ? b : a };
    ls_tensor *y = ls_apply(&ls__op_transpose, &attributes, sizeof attributes, &x, 1);
    if (y && x->weights) y->weights = ls_transpose(x->weights, a, b);
    return y;
}

ls_tensor *ls_narrow(ls_tensor *x, int dim, int64_t begin, int64_t size)
{
    if (!x) return NULL;
    dim = own_dimension("narrow", x, dim, samples_stay);
    if (dim < 0) return NULL;
    ls__slice_attributes attributes = {
        .dim = dim, .begin = begin, .size = size, .whole = x->shape[dim]
    };
    if (begin == 0 && size == x->shape[dim]) return x;
    ls_tensor *y = ls_apply(&ls__op_slice, &attributes, sizeof attributes, &x, 1);
    if (y && x->weights) y->weights = ls_narrow(x->weights, dim, begin, size);
    return y;
}

/* Weights of ignored targets, side by side too. */
static void concat_weights(ls_tensor *y, ls_tensor *const *xs, int n, int dim)
{
    ls_tensor *weights[LS__MAX_INPUTS];
    int weighted = 0;
    for (int i = 0; i < n; i++)
        if (xs[i]->weights) weights[weighted++] = xs[i]->weights;
    if (weighted == n)
        y->weights = ls_concat(weights, n, dim);
    else if (weighted > 0)
        ls__graph_fail(y->graph, LS_ERR_UNSUPPORTED,
                       "concat: some of its inputs can have ignored targets and others cannot; "
                       "ls_report them apart, or add losses instead");
}

ls_tensor *ls_concat(ls_tensor *const *xs, int n, int dim)
{
    ls_tensor *some = NULL;
    for (int i = 0; xs && i < n && !some; i++) some = xs[i];
    if (!some) return NULL;
    if (n > LS__MAX_INPUTS)
        return ls__graph_fail(some->graph, LS_ERR_ARG,
                              "concat: %d tensors, at most %d are possible; concat in two steps", n,
                              LS__MAX_INPUTS);
    for (int i = 0; i < n; i++) {
        if (!xs[i]) break; /* told by ls_apply */
        int own = own_dimension("concat", xs[i], dim, samples_stay);
        if (own < 0) return NULL;
        if (xs[i] == some) dim = own;
    }
    if (n == 1) return xs[0];
    ls__concat_attributes attributes = { .dim = dim < 0 ? some->rank + dim : dim };
    ls_tensor *y = ls_apply(&ls__op_concat, &attributes, sizeof attributes, xs, n);
    if (y) concat_weights(y, xs, n, (int)attributes.dim);
    return y;
}
