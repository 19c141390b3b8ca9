/* Pools: layers without parameters or names. */
#include "nn/layer.h"

static bool window_fits(const char *what, const ls_tensor *x, int size)
{
    char text[LS__TENSOR_TEXT];
    if (!x) return false;
    if (x->type != LS_DTYPE_F32 || x->rank != 4) {
        ls__graph_fail(x->graph, LS_ERR_SHAPE, "%s: input %s must be f32 (B, C, H, W)", what,
                       ls__tensor_text(x, text));
        return false;
    }
    if (size >= 1 && size <= x->shape[2] && size <= x->shape[3]) return true;
    ls__graph_fail(x->graph, LS_ERR_SHAPE, "%s: a window of %d x %d does not fit input %s", what,
                   size, size, ls__tensor_text(x, text));
    return false;
}

static ls__pool2d_attributes window(const ls_tensor *x, int size)
{
    return (ls__pool2d_attributes) { .size = size, .height = x->shape[2], .width = x->shape[3] };
}

/* Only the backward pass needs to know where each maximum was. */
ls_tensor *ls_max_pool2d(ls_tensor *x, int size)
{
    if (!window_fits("max_pool2d", x, size)) return NULL;
    ls__pool2d_attributes attributes = window(x, size);
    ls_tensor *out[2];
    ls__apply_multi(&ls__op_max_pool2d, &attributes, sizeof attributes, &x, 1, out,
                    ls_graph_stage(x->graph) == LS_STAGE_TRAIN ? 2 : 1);
    return out[0];
}

ls_tensor *ls_avg_pool2d(ls_tensor *x, int size)
{
    if (!window_fits("avg_pool2d", x, size)) return NULL;
    ls__pool2d_attributes attributes = window(x, size);
    return ls_apply(&ls__op_avg_pool2d, &attributes, sizeof attributes, &x, 1);
}

ls_tensor *ls_global_avg_pool2d(ls_tensor *x)
{
    if (!window_fits("global_avg_pool2d", x, 1)) return NULL;
    ls__pool2d_attributes attributes = window(x, 0);
    return ls_apply(&ls__op_global_avg_pool2d, &attributes, sizeof attributes, &x, 1);
}
