/* conv2d and its gradients by oneDNN.
 *
 * Parameters lie plain in the flat space; a convolution wants them blocked, differently for each
 * pass. They are packed once per run, before the tiles, which costs their bytes and no more. The
 * gradient of the weights is summed per lane in the packed layout and unpacked at the end.
 *
 * In bf16-mixed what lies between convolutions stays f32, blocked as ever. A step rounds the tile that it
 * reads while that is in the cache, for a small part of the convolution's time, where pools, norms
 * and rectifiers would all need a way of their own for blocks of bf16. Where oneDNN has no fast
 * convolution of bf16 (another CPU, an odd shape) the same rounded numbers are multiplied as f32. */
#include "backend/cpu/conv_shape.h"

#include <string.h>

typedef struct conv {
    cpu_primitive tile[2]; /* for a tile, for the short one */
    bool biased;
    bool rounds, half;   /* the factors, to bf16; they are stored so */
    int64_t tiles[2][2]; /* floats of the first and the second input's tile, of the short one */
    int rounded;         /* where their rounded copies are, among the step's buffers */
    int64_t weights;     /* floats of the packed weights */
    int64_t channels;
} conv;

static void free_conv(void *state)
{
    conv *c = state;
    for (int i = 0; i < 2; i++) ls__cpu_primitive_free(&c->tile[i]);
    ls__free(c);
}

static conv_shape shape_of(const cpu_task *task, const ls_tensor *x, const ls_tensor *weight,
                           const ls_tensor *y)
{
    const ls__conv2d_attributes *a = task->node->attributes;
    conv_shape s = { .stride = a->stride, .padding = a->padding, .relu = task->relu };
    memcpy(s.x, x->shape, sizeof s.x);
    memcpy(s.weight, weight->shape, sizeof s.weight);
    memcpy(s.y, y->shape, sizeof s.y);
    return s;
}

/* --- rounded factors --- */

/* Chooses layouts and numbers. fixed: both layouts are plain, whatever is fast. With fewer channels than a
 * block has, f32 is as fast forward and twice as fast for the weights. */
static void choose(const ls__node *node, conv_shape *s, conv_pass pass, bool plain_x, bool fixed)
{
    bool few = s->x[1] < ls__cpu_pool()->block;
    s->half = ls__node_rounds(node, 0) && ls__cpu_pool()->bf16 && !few;
    if (s->half && !fixed) s->half = ls__cpu_conv_choose_layouts(s, pass, plain_x);
    if (s->half && fixed) s->half = ls__cpu_conv_is_fast(s, pass);
    if (!s->half && !fixed) ls__cpu_conv_choose_layouts(s, pass, plain_x);
}

/* Notes how the n inputs of a tile, x and y in some order, are rounded; the step's buffer for that. */
static ls_status prepare_rounding(cpu_builder *b, const ls__node *node, const conv_shape *s,
                                  const int64_t rows[2], bool x_first, int n, conv *c, int *buffer)
{
    c->rounds = ls__node_rounds(node, 0);
    c->half = s->half;
    size_t most = 0;
    for (int k = 0; k < n; k++) {
        bool x = x_first == (k == 0);
        conv_shape one = *s;
        for (int i = 0; i < 2; i++) {
            dnnl_memory_desc_t md;
            one.x[0] = one.y[0] = rows[i] ? rows[i] : 1;
            LS_TRY(ls__cpu_md4(x ? s->x_layout : s->y_layout, x ? one.x : one.y, &md));
            c->tiles[k][i] = (int64_t)(dnnl_memory_desc_get_size(&md) / sizeof(float));
        }
        most += ((size_t)c->tiles[k][0] * sizeof(float) + 63) / 64 * 64;
    }
    return ls__cpu_temporary(b, c->rounds ? most : 0, buffer);
}

/* The step's input k as its primitive reads it. */
static void *factor(const cpu_call *call, const conv *c, int k, int buffer)
{
    float *in = ls__cpu_at(call, buffer);
    if (!c->rounds) return in;
    char *out = ls__cpu_at(call, c->rounded);
    if (k == 1) out += ((size_t)c->tiles[0][0] * sizeof(float) + 63) / 64 * 64;
    if (c->half)
        ls__cpu_to_half(in, (uint16_t *)out, c->tiles[k][call->tail]);
    else
        ls__cpu_round_floats(in, (float *)out, c->tiles[k][call->tail]);
    return out;
}

/* --- packed weights --- */

struct cpu_packed {
    const ls_tensor *tensor;
    dnnl_memory_desc_t md;
    int buffer;
};

static ls_status plain_weights(const int64_t *shape, bool half, dnnl_memory_desc_t *out)
{
    LS_TRY(ls__cpu_md4(CPU_PLAIN, shape, out));
    if (half) out->data_type = dnnl_bf16;
    return LS_OK;
}

static void free_repack(void *state)
{
    ls__cpu_primitive_free(state);
    ls__free(state);
}

static void run_repack(const cpu_call *call)
{
    void *pointers[] = { ls__cpu_at(call, 0), ls__cpu_at(call, 1), ls__cpu_at(call, 2) };
    ls__cpu_primitive_run(call->step->state, call, pointers);
}

/* buffers[2] becomes the scratchpad. */
static ls_status make_repack(cpu_builder *b, const dnnl_memory_desc_t *from,
                             const dnnl_memory_desc_t *to, cpu_step_spec *spec, int buffers[3])
{
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t pd = NULL;
    cpu_primitive *p = ls__alloc(1, sizeof *p);
    if (!p) return LS_ERR_MEMORY;
    ls_status status = ls__cpu_attributes(false, false, &attr);
    if (status == LS_OK) {
        dnnl_engine_t engine = ls__cpu_pool()->engine;
        dnnl_status_t made =
            dnnl_reorder_primitive_desc_create(&pd, from, engine, to, engine, attr);
        if (made != dnnl_success) status = ls__cpu_dnnl_fail(made, "reorder of weights");
        dnnl_primitive_attr_destroy(attr);
    }
    const int ids[] = { DNNL_ARG_FROM, DNNL_ARG_TO };
    if (status == LS_OK)
        status =
            ls__cpu_primitive_create(pd, ids, (const dnnl_memory_desc_t *[]) { from, to }, 2, p);
    if (pd) dnnl_primitive_desc_destroy(pd);
    if (status == LS_OK) status = ls__cpu_temporary(b, p->scratchpad, &buffers[2]);
    if (status != LS_OK) {
        free_repack(p);
        return status;
    }
    *spec =
        (cpu_step_spec) { .run = run_repack, .state = p, .destroy = free_repack, .whole = true };
    return LS_OK;
}

static ls_status remember_packed(cpu_builder *b, const ls_tensor *weight,
                                 const dnnl_memory_desc_t *md, int buffer)
{
    if (b->npacked == b->packed_room) {
        int room = b->packed_room ? 2 * b->packed_room : 16;
        void *grown = ls__realloc(b->packed, (size_t)room, sizeof *b->packed);
        if (!grown) return LS_ERR_MEMORY;
        b->packed = grown;
        b->packed_room = room;
    }
    b->packed[b->npacked++] = (struct cpu_packed) { weight, *md, buffer };
    return LS_OK;
}

/* Where weight is in layout md: rounded, if the node rounds it. */
static ls_status pack(cpu_builder *b, const ls__node *node, const dnnl_memory_desc_t *md,
                      int *buffer)
{
    const ls_tensor *weight = node->in[1];
    bool half = md->data_type == dnnl_bf16;
    cpu_layout numbers = half ? CPU_HALF : ls__cpu_float_layout(node, 1);
    dnnl_memory_desc_t plain;
    int buffers[3];
    cpu_step_spec spec;
    LS_TRY(plain_weights(weight->shape, half, &plain));
    LS_TRY(ls__cpu_read(b, weight, numbers, &buffers[0]));
    *buffer = buffers[0];
    if (dnnl_memory_desc_equal(md, &plain)) return LS_OK;
    for (int i = 0; i < b->npacked; i++) {
        *buffer = b->packed[i].buffer;
        if (b->packed[i].tensor == weight && dnnl_memory_desc_equal(&b->packed[i].md, md))
            return LS_OK;
    }
    LS_TRY(ls__cpu_shared(b, dnnl_memory_desc_get_size(md), 0, &buffers[1]));
    LS_TRY(make_repack(b, &plain, md, &spec, buffers));
    *buffer = buffers[1];
    LS_TRY(
        (weight->role == LS__ROLE_VALUE ? ls__cpu_step : ls__cpu_step_first)(b, &spec, buffers, 3));
    return remember_packed(b, weight, md, *buffer);
}

/* --- forward, gradient for x --- */

static void run_conv(const cpu_call *call)
{
    const conv *c = call->step->state;
    void *pointers[5] = { factor(call, c, 0, 0), ls__cpu_at(call, 1), ls__cpu_at(call, 2) };
    int n = 3;
    if (c->biased) pointers[n++] = ls__cpu_at(call, 5);
    pointers[n] = ls__cpu_at(call, 3);
    ls__cpu_primitive_run(&c->tile[call->tail], call, pointers);
}

static ls_status undescribed(const conv_shape *s)
{
    return ls_fail(LS_ERR_UNSUPPORTED,
                   "oneDNN has no convolution of (%lld,%lld,%lld,%lld) by (%lld,%lld,%lld,%lld)",
                   (long long)s->x[0], (long long)s->x[1], (long long)s->x[2], (long long)s->x[3],
                   (long long)s->weight[0], (long long)s->weight[1], (long long)s->weight[2],
                   (long long)s->weight[3]);
}

/* Makes the primitive for rows samples; *weights is the layout that they must be in. */
static ls_status make_conv(conv_shape s, conv_pass pass, int64_t rows, cpu_primitive *out,
                           dnnl_memory_desc_t *weights)
{
    static const int ids[3][4] = {
        { DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS },
        { DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC },
        { DNNL_ARG_DIFF_DST, DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_BIAS },
    };
    dnnl_primitive_desc_t pd;
    dnnl_memory_desc_t x, y, bias;
    dnnl_dims_t channels = { s.weight[0] };
    s.x[0] = s.y[0] = rows;
    if (!ls__cpu_conv_describe(&s, pass, true, &pd)) return undescribed(&s);
    *weights = *dnnl_primitive_desc_query_md(
        pd, pass == CONV_GRAD_WEIGHT ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
    ls_status status = ls__cpu_conv_memory(&s, pass, &x, &y);
    dnnl_memory_desc_init_by_tag(&bias, 1, channels, dnnl_f32, dnnl_a);
    const dnnl_memory_desc_t *mds[3][4] = { { &x, weights, &y, &bias },
                                            { &y, weights, &x, NULL },
                                            { &y, &x, weights, &bias } };
    bool biased = s.bias && pass != CONV_GRAD_X;
    if (status == LS_OK)
        status = ls__cpu_primitive_create(pd, ids[pass], mds[pass], biased ? 4 : 3, out);
    dnnl_primitive_desc_destroy(pd);
    return status;
}

/* For both row counts; the short tile takes the weights as the others do. */
static ls_status make_convs(const conv_shape *s, conv_pass pass, const int64_t rows[2], conv *c,
                            dnnl_memory_desc_t *weights)
{
    conv_shape tail = *s;
    dnnl_memory_desc_t same;
    LS_TRY(make_conv(*s, pass, rows[0], &c->tile[0], weights));
    if (rows[1] == 0) return LS_OK;
    tail.packed = weights;
    return make_conv(tail, pass, rows[1], &c->tile[1], &same);
}

static size_t scratchpad_of(const conv *c)
{
    return c->tile[0].scratchpad > c->tile[1].scratchpad ? c->tile[0].scratchpad
                                                         : c->tile[1].scratchpad;
}

static ls_status fill_conv(cpu_builder *b, const ls__node *node, const conv_shape *s,
                           conv_pass pass, bool tiled, const ls_tensor *out, conv *c,
                           int buffers[6])
{
    const ls_tensor *in = node->in[0];
    bool forward = pass == CONV_FORWARD;
    int64_t rows[2];
    dnnl_memory_desc_t packed;
    ls__cpu_rows(b, in, tiled, rows);
    LS_TRY(make_convs(s, pass, rows, c, &packed));
    LS_TRY(ls__cpu_read(b, in, forward ? s->x_layout : s->y_layout, &buffers[0]));
    LS_TRY(pack(b, node, &packed, &buffers[1]));
    LS_TRY(ls__cpu_write(b, out, forward ? s->y_layout : s->x_layout, tiled, &buffers[2]));
    LS_TRY(ls__cpu_temporary(b, scratchpad_of(c), &buffers[3]));
    c->rounded = 4;
    LS_TRY(prepare_rounding(b, node, s, rows, forward, 1, c, &buffers[4]));
    return s->bias ? ls__cpu_read(b, node->in[2], CPU_PLAIN, &buffers[5]) : LS_OK;
}

static ls_status add_conv(cpu_builder *b, const ls__node *node, const conv_shape *s, conv_pass pass,
                          bool tiled, const ls_tensor *out)
{
    int buffers[6];
    conv *c = ls__alloc(1, sizeof *c);
    if (!c) return LS_ERR_MEMORY;
    c->biased = s->bias;
    ls_status status = fill_conv(b, node, s, pass, tiled, out, c, buffers);
    if (status != LS_OK) {
        free_conv(c);
        return status;
    }
    cpu_step_spec spec = { .run = run_conv, .state = c, .destroy = free_conv, .whole = !tiled };
    return ls__cpu_step(b, &spec, buffers, s->bias ? 6 : 5);
}

static bool only_plain(const cpu_builder *b, const ls_tensor *x)
{
    return ls__cpu_layout_of(b, x) == CPU_PLAIN;
}

ls_status ls__cpu_conv2d(cpu_builder *b, const cpu_task *task)
{
    const ls__node *node = task->node;
    const ls_tensor *x = node->in[0], *weight = node->in[1];
    bool tiled = ls__cpu_tiled(b, x) && !ls__cpu_tiled(b, weight);
    conv_shape s = shape_of(task, x, weight, task->out);
    s.bias = node->nin == 3;
    choose(node, &s, CONV_FORWARD, only_plain(b, x), false);
    return add_conv(b, node, &s, CONV_FORWARD, tiled, task->out);
}

ls_status ls__cpu_conv2d_grad_x(cpu_builder *b, const cpu_task *task)
{
    const ls_tensor *grad = task->node->in[0], *weight = task->node->in[1];
    bool tiled = ls__cpu_tiled(b, grad) && !ls__cpu_tiled(b, weight);
    conv_shape s = shape_of(task, task->out, weight, grad);
    bool gradient = ls__cpu_gradient_slot(b, task->out) >= 0; /* x is a parameter: plain */
    choose(task->node, &s, CONV_GRAD_X, false, gradient);
    return add_conv(b, task->node, &s, CONV_GRAD_X, tiled, task->out);
}

/* --- gradient for the weights --- */

/* The first tile of a lane writes where the others add. */
static void run_grad_weight(const cpu_call *call)
{
    const conv *c = call->step->state;
    bool begins = call->lane_begins || !call->step->tiled;
    float *weights = ls__cpu_at(call, 2), *bias = c->biased ? ls__cpu_at(call, 6) : NULL;
    float *fresh = begins ? weights : ls__cpu_at(call, 4);
    float *fresh_bias = begins ? bias : fresh + c->weights;
    void *pointers[5] = { factor(call, c, 0, 0), factor(call, c, 1, 1), fresh };
    int n = 3;
    if (c->biased) pointers[n++] = fresh_bias;
    pointers[n] = ls__cpu_at(call, 3);
    ls__cpu_primitive_run(&c->tile[call->tail], call, pointers);
    if (begins) return;
    ls__cpu_add_floats(weights, fresh, c->weights);
    if (c->biased) ls__cpu_add_floats(bias, fresh_bias, c->channels);
}

/* Where a step sums: lanes, then a buffer for the whole that a finisher fills. */
static ls_status sum_buffers(cpu_builder *b, bool tiled, int64_t count, int final,
                             const ls_tensor *written, int *lanes)
{
    *lanes = final;
    if (!tiled) return LS_OK;
    size_t each = ((size_t)count * sizeof(float) + 63) / 64 * 64;
    LS_TRY(ls__cpu_shared(b, each * (size_t)b->program->lanes, each, lanes));
    return ls__cpu_finish_sum(b, *lanes, final, count, written);
}

/* buffers[2]: where the weights' gradient is summed; finishers bring it to out. */
static ls_status target_weights(cpu_builder *b, const ls_tensor *out, bool tiled,
                                const dnnl_memory_desc_t *packed, int *buffer)
{
    dnnl_memory_desc_t plain;
    int final[3];
    cpu_step_spec spec;
    int64_t count = (int64_t)(dnnl_memory_desc_get_size(packed) / sizeof(float));
    LS_TRY(plain_weights(out->shape, false, &plain));
    LS_TRY(ls__cpu_write(b, out, CPU_PLAIN, false, &final[1]));
    if (dnnl_memory_desc_equal(packed, &plain))
        return sum_buffers(b, tiled, count, final[1], out, buffer);
    LS_TRY(ls__cpu_shared(b, (size_t)count * sizeof(float), 0, &final[0]));
    LS_TRY(sum_buffers(b, tiled, count, final[0], NULL, buffer));
    LS_TRY(make_repack(b, packed, &plain, &spec, final));
    return ls__cpu_finish(b, &spec, final, 3, &out, 1);
}

static ls_status target_bias(cpu_builder *b, const ls_tensor *out, bool tiled, int *buffer)
{
    int final;
    LS_TRY(ls__cpu_write(b, out, CPU_PLAIN, false, &final));
    return sum_buffers(b, tiled, ls__cpu_count(out), final, out, buffer);
}

static ls_status fill_grad_weight(cpu_builder *b, const cpu_task *task, const conv_shape *s,
                                  bool tiled, conv *c, int buffers[7])
{
    const ls__node *node = task->node;
    dnnl_memory_desc_t packed;
    int64_t rows[2];
    ls__cpu_rows(b, node->in[0], tiled, rows);
    LS_TRY(make_convs(s, CONV_GRAD_WEIGHT, rows, c, &packed));
    c->weights = (int64_t)(dnnl_memory_desc_get_size(&packed) / sizeof(float));
    LS_TRY(ls__cpu_read(b, node->in[0], s->y_layout, &buffers[0]));
    LS_TRY(ls__cpu_read(b, node->in[1], s->x_layout, &buffers[1]));
    LS_TRY(ls__cpu_temporary(b, scratchpad_of(c), &buffers[3]));
    LS_TRY(ls__cpu_temporary(b, (size_t)(c->weights + c->channels) * sizeof(float), &buffers[4]));
    c->rounded = 5;
    LS_TRY(prepare_rounding(b, node, s, rows, false, 2, c, &buffers[5]));
    LS_TRY(target_weights(b, node->out[0], tiled, &packed, &buffers[2]));
    if (c->biased) LS_TRY(target_bias(b, node->out[1], tiled, &buffers[6]));
    return LS_OK;
}

ls_status ls__cpu_conv2d_grad_weight(cpu_builder *b, const cpu_task *task)
{
    const ls__node *node = task->node;
    const ls_tensor *grad = node->in[0], *x = node->in[1];
    bool tiled = ls__cpu_tiled(b, grad) && ls__cpu_tiled(b, x);
    conv_shape s = shape_of(task, x, node->out[0], grad);
    s.bias = node->nout == 2;
    choose(node, &s, CONV_GRAD_WEIGHT, only_plain(b, x), false);
    conv *c = ls__alloc(1, sizeof *c);
    if (!c) return LS_ERR_MEMORY;
    c->biased = s.bias;
    c->channels = s.weight[0];
    int buffers[7];
    ls_status status = fill_grad_weight(b, task, &s, tiled, c, buffers);
    if (status != LS_OK) {
        free_conv(c);
        return status;
    }
    cpu_step_spec spec = {
        .run = run_grad_weight, .state = c, .destroy = free_conv, .whole = !tiled
    };
    return ls__cpu_step(b, &spec, buffers, s.bias ? 7 : 6);
}
