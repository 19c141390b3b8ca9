/* A convolution as oneDNN is asked for it: descriptors, and which layouts suit it. */
#ifndef LS_BACKEND_CPU_CONV_SHAPE_H
#define LS_BACKEND_CPU_CONV_SHAPE_H

#include "backend/cpu/primitive.h"

typedef struct conv_shape {
    int64_t x[4];      /* (rows, C, H, W) */
    int64_t weight[4]; /* (O, C, k, k) */
    int64_t y[4];      /* (rows, O, H', W') */
    int64_t stride, padding;
    cpu_layout x_layout, y_layout;
    bool bias, relu;
    bool half;                        /* the factors are bf16; what is computed is f32 */
    const dnnl_memory_desc_t *packed; /* the layout that the weights must have; NULL = any */
} conv_shape;

typedef enum conv_pass { CONV_FORWARD, CONV_GRAD_X, CONV_GRAD_WEIGHT } conv_pass;

/* A description for this pass. False when oneDNN has
 * only its reference for these layouts and anyway is false. */
bool ls__cpu_conv_describe(const conv_shape *s, conv_pass pass, bool anyway,
                           dnnl_primitive_desc_t *out);
/* Sets the layouts of x and y for this pass. plain_x: x is there in the plain layout only. False: oneDNN has
 * none that is fast, and they are plain. */
bool ls__cpu_conv_choose_layouts(conv_shape *s, conv_pass pass, bool plain_x);
/* Whether oneDNN has a fast one for the layouts that s says. */
bool ls__cpu_conv_is_fast(const conv_shape *s, conv_pass pass);
/* How x and y are given to it. */
ls_status ls__cpu_conv_memory(const conv_shape *s, conv_pass pass, dnnl_memory_desc_t *x,
                              dnnl_memory_desc_t *y);

#endif
