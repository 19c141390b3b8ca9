/* linear with large weights: every pass reads them once, for all rows, in a fixed number of blocks
 * of the output that threads share. Gradients go straight to their place. */
#include "backend/cpu/gemm.h"

#include <string.h>

enum { MOST_BLOCKS = 12, LEAST_BLOCK = 128 };

/* The output is cut along one dimension; per element of it, an operand's pointer moves on. */
typedef struct large {
    cpu_gemm full, last;
    int64_t dim, block;
    size_t move[4]; /* bytes; of a, b, c and bias */
    bool biased;    /* the primitive adds a bias */
    bool half;      /* a and b are bf16 */
    bool sums;      /* buffer 4 is the gradient of the bias */
    int64_t rows;
} large;

static void free_large(void *state)
{
    large *l = state;
    ls__cpu_gemm_free(&l->full);
    ls__cpu_gemm_free(&l->last);
    ls__free(l);
}

static void sum_bias(const cpu_call *call, const large *l, int64_t from, int64_t n)
{
    float *sums = (float *)ls__cpu_at(call, 4) + from;
    memset(sums, 0, (size_t)n * sizeof *sums);
    if (l->half)
        ls__cpu_add_half_columns((const uint16_t *)ls__cpu_at(call, 0) + from, sums, l->rows, n,
                                 l->dim);
    else
        ls__cpu_add_columns((const float *)ls__cpu_at(call, 0) + from, sums, l->rows, n, l->dim);
}

static void run_large(const cpu_call *call)
{
    const large *l = call->step->state;
    int64_t from = call->task * l->block;
    int64_t n = l->dim - from < l->block ? l->dim - from : l->block;
    void *pointers[5];
    int count = 0;
    for (; count < 3; count++)
        pointers[count] = (char *)ls__cpu_at(call, count) + (size_t)from * l->move[count];
    if (l->biased) pointers[count++] = (char *)ls__cpu_at(call, 4) + (size_t)from * l->move[3];
    pointers[count] = ls__cpu_at(call, 3);
    ls__cpu_gemm_run(n == l->block ? &l->full : &l->last, call, pointers);
    if (l->sums) sum_bias(call, l, from, n);
}

/* dim: the field of shape that is the output's cut dimension. */
static ls_status make_large(large *l, gemm_shape *shape, int64_t *dim, int64_t size)
{
    int64_t blocks = size / LEAST_BLOCK < MOST_BLOCKS ? size / LEAST_BLOCK : MOST_BLOCKS;
    if (blocks < 1) blocks = 1;
    l->dim = size;
    l->block = ((size + blocks - 1) / blocks + 15) / 16 * 16;
    if (l->block > size) l->block = size;
    *dim = l->block;
    LS_TRY(ls__cpu_gemm_create(shape, &l->full));
    *dim = size % l->block;
    return *dim ? ls__cpu_gemm_create(shape, &l->last) : LS_OK;
}

static ls_status add_large(cpu_builder *b, large *l, ls_status made, int *buffers, int n)
{
    size_t full = l->full.scratchpad, last = l->last.scratchpad;
    if (made == LS_OK) made = ls__cpu_temporary(b, full > last ? full : last, &buffers[3]);
    if (made != LS_OK) {
        free_large(l);
        return made;
    }
    cpu_step_spec spec = { .run = run_large,
                           .state = l,
                           .destroy = free_large,
                           .whole = true,
                           .ntasks = (l->dim + l->block - 1) / l->block };
    return ls__cpu_step(b, &spec, buffers, n);
}

/* moves: elements of a, b, c and bias per element of the cut dimension. Takes the factors in the
 * node's layout and writes out, if it is a value that can be bf16, in its own. */
static large *new_large(const ls__node *node, const ls_tensor *out, const int64_t moves[4],
                        gemm_shape *shape)
{
    large *l = ls__alloc(1, sizeof *l);
    if (!l) return NULL;
    shape->half = ls__cpu_factor_layout(node, 0) == CPU_HALF;
    shape->half_c = ls__cpu_stored_layout(out) == CPU_HALF;
    *l = (large) { .rows = node->in[0]->shape[0], .half = shape->half };
    const bool half[] = { shape->half, shape->half, shape->half_c, false };
    for (int i = 0; i < 4; i++)
        l->move[i] = (size_t)moves[i] * (half[i] ? sizeof(uint16_t) : sizeof(float));
    return l;
}

static ls_status read_factors(cpu_builder *b, const ls__node *node, int buffers[2])
{
    for (int i = 0; i < 2; i++)
        LS_TRY(ls__cpu_read(b, node->in[i], ls__cpu_factor_layout(node, i), &buffers[i]));
    return LS_OK;
}

/* y, cut into blocks of features */
ls_status ls__cpu_linear_large(cpu_builder *b, const cpu_task *task)
{
    const ls__node *node = task->node;
    const ls_tensor *x = node->in[0], *weight = node->in[1];
    int64_t features = weight->shape[0], inputs = weight->shape[1];
    int buffers[5], n = node->nin == 3 ? 5 : 4;
    LS_TRY(read_factors(b, node, buffers));
    if (n == 5) LS_TRY(ls__cpu_read(b, node->in[2], CPU_PLAIN, &buffers[4]));
    LS_TRY(ls__cpu_write(b, task->out, ls__cpu_stored_layout(task->out), ls__cpu_tiled(b, x),
                         &buffers[2]));
    gemm_shape s = { .m = x->shape[0],
                     .k = inputs,
                     .transpose_b = true,
                     .c_stride = features,
                     .bias = n == 5,
                     .relu = task->relu };
    large *l = new_large(node, task->out, (int64_t[]) { 0, inputs, 1, 1 }, &s);
    if (!l) return LS_ERR_MEMORY;
    l->biased = n == 5;
    return add_large(b, l, make_large(l, &s, &s.n, features), buffers, n);
}

/* dx, cut into blocks of inputs */
ls_status ls__cpu_linear_large_grad_x(cpu_builder *b, const cpu_task *task)
{
    const ls_tensor *g = task->node->in[0], *weight = task->node->in[1];
    int64_t features = weight->shape[0], inputs = weight->shape[1];
    int buffers[4];
    LS_TRY(read_factors(b, task->node, buffers));
    LS_TRY(ls__cpu_write(b, task->out, ls__cpu_stored_layout(task->out), ls__cpu_tiled(b, g),
                         &buffers[2]));
    gemm_shape s = { .m = g->shape[0], .k = features, .b_stride = inputs, .c_stride = inputs };
    large *l = new_large(task->node, task->out, (int64_t[]) { 0, 1, 1, 0 }, &s);
    if (!l) return LS_ERR_MEMORY;
    return add_large(b, l, make_large(l, &s, &s.n, inputs), buffers, 4);
}

/* dw = g^T x, cut into blocks of features */
ls_status ls__cpu_linear_large_grad_weight(cpu_builder *b, const cpu_task *task)
{
    const ls__node *node = task->node;
    const ls_tensor *g = node->in[0], *x = node->in[1];
    int64_t features = g->shape[1], inputs = x->shape[1];
    int buffers[5];
    LS_TRY(read_factors(b, node, buffers));
    for (int i = 0; i < node->nout; i++)
        LS_TRY(ls__cpu_write(b, node->out[i], CPU_PLAIN, false, &buffers[2 + 2 * i]));
    gemm_shape s = { .n = inputs, .k = g->shape[0], .transpose_a = true, .a_stride = features };
    large *l = new_large(node, node->out[0], (int64_t[]) { 1, 0, inputs, 0 }, &s);
    if (!l) return LS_ERR_MEMORY;
    l->sums = node->nout == 2;
    return add_large(b, l, make_large(l, &s, &s.m, features), buffers, l->sums ? 5 : 4);
}
