/* What oneDNN has for a convolution, and which layouts it wants.
 *
 * Blocked layouts (nChw16c) are 1.1 to 2 times as fast as nhwc in all three passes and many times
 * as fast as nchw; an image of one or three channels is read as it is. Where there is no blocked
 * implementation (other instruction sets, odd padding), plain layouts serve. */
#include "backend/cpu/conv_shape.h"

#include <string.h>

typedef struct descs {
    dnnl_memory_desc_t x, weight, bias, y;
    dnnl_dims_t strides, padding;
} descs;

static dnnl_data_type_t type_of(const conv_shape *s, bool factor)
{
    return s->half && factor ? dnnl_bf16 : dnnl_f32;
}

ls_status ls__cpu_conv_memory(const conv_shape *s, conv_pass pass, dnnl_memory_desc_t *x,
                              dnnl_memory_desc_t *y)
{
    LS_TRY(ls__cpu_md4(s->x_layout, s->x, x));
    LS_TRY(ls__cpu_md4(s->y_layout, s->y, y));
    x->data_type = type_of(s, pass != CONV_GRAD_X);
    y->data_type = type_of(s, pass != CONV_FORWARD);
    return LS_OK;
}

static bool fill(const conv_shape *s, conv_pass pass, descs *d)
{
    dnnl_dims_t weight = { s->weight[0], s->weight[1], s->weight[2], s->weight[3] };
    dnnl_dims_t bias = { s->weight[0] };
    d->strides[0] = d->strides[1] = s->stride;
    d->padding[0] = d->padding[1] = s->padding;
    return ls__cpu_conv_memory(s, pass, &d->x, &d->y) == LS_OK &&
           dnnl_memory_desc_init_by_tag(&d->weight, 4, weight, type_of(s, pass != CONV_GRAD_WEIGHT),
                                        dnnl_format_tag_any) == dnnl_success &&
           dnnl_memory_desc_init_by_tag(&d->bias, 1, bias, dnnl_f32, dnnl_a) == dnnl_success;
}

static bool describe(const void *desc, bool relu, dnnl_primitive_desc_t hint, bool anyway,
                     dnnl_primitive_desc_t *out)
{
    dnnl_primitive_attr_t attr;
    if (ls__cpu_attributes(false, relu, &attr) != LS_OK) return false;
    bool found = ls__cpu_describe(desc, attr, hint, out);
    if (!found && anyway) found = ls__cpu_describe_any(desc, attr, hint, out) == LS_OK;
    dnnl_primitive_attr_destroy(attr);
    return found;
}

/* The forward convolution; as a hint for a gradient all of it is of the factors' type. */
static bool describe_forward(const conv_shape *s, conv_pass pass, bool anyway,
                             dnnl_primitive_desc_t *out)
{
    descs d;
    dnnl_convolution_desc_t desc;
    if (!fill(s, CONV_FORWARD, &d)) return false;
    if (s->packed && pass == CONV_FORWARD) d.weight = *s->packed;
    if (pass != CONV_FORWARD) d.y.data_type = type_of(s, true);
    return dnnl_convolution_forward_desc_init(&desc, dnnl_forward_training, dnnl_convolution_direct,
                                              &d.x, &d.weight, s->bias ? &d.bias : NULL, &d.y,
                                              d.strides, d.padding, d.padding) == dnnl_success &&
           describe(&desc, s->relu, NULL, anyway, out);
}

bool ls__cpu_conv_describe(const conv_shape *s, conv_pass pass, bool anyway,
                           dnnl_primitive_desc_t *out)
{
    descs d;
    dnnl_convolution_desc_t desc;
    dnnl_primitive_desc_t forward;
    *out = NULL;
    if (!fill(s, pass, &d) || !describe_forward(s, pass, anyway, &forward)) return false;
    if (pass == CONV_FORWARD) {
        *out = forward;
        return true;
    }
    if (s->packed) d.weight = *s->packed;
    dnnl_status_t status =
        pass == CONV_GRAD_X
            ? dnnl_convolution_backward_data_desc_init(&desc, dnnl_convolution_direct, &d.x,
                                                       &d.weight, &d.y, d.strides, d.padding,
                                                       d.padding)
            : dnnl_convolution_backward_weights_desc_init(&desc, dnnl_convolution_direct, &d.x,
                                                          &d.weight, s->bias ? &d.bias : NULL, &d.y,
                                                          d.strides, d.padding, d.padding);
    bool found = status == dnnl_success && describe(&desc, false, forward, anyway, out);
    dnnl_primitive_desc_destroy(forward);
    return found;
}

bool ls__cpu_conv_is_fast(const conv_shape *s, conv_pass pass)
{
    dnnl_primitive_desc_t pd;
    if (!ls__cpu_conv_describe(s, pass, false, &pd)) return false;
    dnnl_primitive_desc_destroy(pd);
    return true;
}

static bool try_layouts(conv_shape *s, conv_pass pass, cpu_layout x, cpu_layout y)
{
    s->x_layout = x;
    s->y_layout = y;
    return ls__cpu_conv_is_fast(s, pass);
}

bool ls__cpu_conv_choose_layouts(conv_shape *s, conv_pass pass, bool plain_x)
{
    int block = ls__cpu_pool()->block;
    if (block > 1) {
        if (plain_x && s->x[1] < block && try_layouts(s, pass, CPU_PLAIN, CPU_BLOCKED)) return true;
        if (try_layouts(s, pass, CPU_BLOCKED, CPU_BLOCKED)) return true;
    }
    s->x_layout = s->y_layout = CPU_PLAIN;
    return false;
}
