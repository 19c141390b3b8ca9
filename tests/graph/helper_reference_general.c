/* The reference executor's elementwise operations with broadcasting, reductions, moves and losses
 * element by element: by the coordinates of each element. */
#include "reference.h"

#include <math.h>

#include "graph/ops.h"

/* Coordinates of element e of x. */
static void coordinates(const ls_tensor *x, int64_t e, int64_t at[LS_MAX_RANK])
{
    for (int i = x->rank - 1; i >= 0; i--) {
        at[i] = e % x->shape[i];
        e /= x->shape[i];
    }
}

static int64_t element_at(const ls_tensor *x, const int64_t at[LS_MAX_RANK])
{
    int64_t e = 0;
    for (int i = 0; i < x->rank; i++) e = e * x->shape[i] + at[i];
    return e;
}

/* The element of x that broadcasting puts at these coordinates of a shape with so many dimensions.
 */
static int64_t broadcast_at(const ls_tensor *x, int rank, const int64_t at[LS_MAX_RANK])
{
    int64_t own[LS_MAX_RANK];
    for (int i = 0; i < x->rank; i++) own[i] = x->shape[i] == 1 ? 0 : at[i + rank - x->rank];
    return element_at(x, own);
}

static void binary(const reference_call *c)
{
    const ls_tensor *y = c->node->out[0];
    const ls_op *op = c->node->op;
    int64_t at[LS_MAX_RANK];
    for (int64_t e = 0; e < reference_count(y); e++) {
        coordinates(y, e, at);
        double a = c->in[0][broadcast_at(c->node->in[0], y->rank, at)];
        double b = c->in[1][broadcast_at(c->node->in[1], y->rank, at)];
        c->out[0][e] = op == &ls__op_add   ? a + b
                       : op == &ls__op_sub ? a - b
                       : op == &ls__op_mul ? a * b
                                           : a / b;
    }
}

static void sum_to(const reference_call *c)
{
    const ls_tensor *x = c->node->in[0], *y = c->node->out[0];
    int64_t at[LS_MAX_RANK];
    for (int64_t e = 0; e < reference_count(y); e++) c->out[0][e] = 0;
    for (int64_t e = 0; e < reference_count(x); e++) {
        coordinates(x, e, at);
        c->out[0][broadcast_at(y, x->rank, at)] += c->in[0][e];
    }
}

/* --- reductions --- */

static void without(int64_t at[LS_MAX_RANK], int rank, int64_t dim)
{
    for (int i = (int)dim; i + 1 < rank; i++) at[i] = at[i + 1];
}

static void reduce(const reference_call *c)
{
    const ls__reduce_attributes *a = c->node->attributes;
    const ls_tensor *x = c->node->in[0], *y = c->node->out[0];
    int64_t at[LS_MAX_RANK];
    for (int64_t e = 0; e < reference_count(x); e++) {
        coordinates(x, e, at);
        bool first = at[a->dim] == 0;
        without(at, x->rank, a->dim);
        double *to = &c->out[0][element_at(y, at)], value = c->in[0][e];
        if (first)
            *to = value;
        else if (a->kind != LS__REDUCE_MAX)
            *to += value;
        else if (value > *to || (isnan(value) && !isnan(*to)))
            *to = value;
    }
    for (int64_t e = 0; e < reference_count(y); e++)
        if (a->kind == LS__REDUCE_MEAN) c->out[0][e] /= (double)a->size;
}

static bool is_largest(const reference_call *c, int64_t e, int64_t to)
{
    double x = c->in[1][e], y = c->in[2][to];
    return x == y || (isnan(x) && isnan(y));
}

/* True when an element before e of the same line is a largest already. */
static bool found_before(const reference_call *c, int64_t e, int64_t to)
{
    const ls__reduce_attributes *a = c->node->attributes;
    const ls_tensor *x = c->node->out[0];
    int64_t at[LS_MAX_RANK];
    coordinates(x, e, at);
    for (int64_t k = at[a->dim] - 1; k >= 0; k--) {
        at[a->dim] = k;
        if (is_largest(c, element_at(x, at), to)) return true;
    }
    return false;
}

static void reduce_grad(const reference_call *c)
{
    const ls__reduce_attributes *a = c->node->attributes;
    const ls_tensor *x = c->node->out[0];
    int64_t at[LS_MAX_RANK];
    for (int64_t e = 0; e < reference_count(x); e++) {
        coordinates(x, e, at);
        without(at, x->rank, a->dim);
        int64_t from = element_at(c->node->in[0], at);
        double g = c->in[0][from];
        if (a->kind == LS__REDUCE_MEAN) g /= (double)a->size;
        if (a->kind == LS__REDUCE_MAX && (!is_largest(c, e, from) || found_before(c, e, from)))
            g = 0;
        c->out[0][e] = g;
    }
}

/* --- moving --- */

static void transpose(const reference_call *c)
{
    const ls__transpose_attributes *a = c->node->attributes;
    const ls_tensor *x = c->node->in[0], *y = c->node->out[0];
    int64_t at[LS_MAX_RANK];
    for (int64_t e = 0; e < reference_count(x); e++) {
        coordinates(x, e, at);
        int64_t swapped = at[a->a];
        at[a->a] = at[a->b];
        at[a->b] = swapped;
        c->out[0][element_at(y, at)] = c->in[0][e];
    }
}

static void slice(const reference_call *c)
{
    const ls__slice_attributes *a = c->node->attributes;
    const ls_tensor *x = c->node->in[0], *y = c->node->out[0];
    int64_t at[LS_MAX_RANK];
    for (int64_t e = 0; e < reference_count(y); e++) {
        coordinates(y, e, at);
        at[a->dim] += a->begin;
        c->out[0][e] = c->in[0][element_at(x, at)];
    }
}

static void slice_grad(const reference_call *c)
{
    const ls__slice_attributes *a = c->node->attributes;
    const ls_tensor *g = c->node->in[0], *dx = c->node->out[0];
    int64_t at[LS_MAX_RANK];
    for (int64_t e = 0; e < reference_count(dx); e++) {
        coordinates(dx, e, at);
        at[a->dim] -= a->begin;
        bool inside = at[a->dim] >= 0 && at[a->dim] < a->size;
        c->out[0][e] = inside ? c->in[0][element_at(g, at)] : 0;
    }
}

static void concat(const reference_call *c)
{
    const ls__concat_attributes *a = c->node->attributes;
    const ls_tensor *y = c->node->out[0];
    int64_t at[LS_MAX_RANK], begin = 0;
    for (int i = 0; i < c->node->nin; i++) {
        const ls_tensor *x = c->node->in[i];
        for (int64_t e = 0; e < reference_count(x); e++) {
            coordinates(x, e, at);
            at[a->dim] += begin;
            c->out[0][element_at(y, at)] = c->in[i][e];
        }
        begin += x->shape[a->dim];
    }
}

/* --- losses --- */

static double loss_of(const ls__elementwise_loss_attributes *a, double x, double target)
{
    double d = x - target;
    if (a->kind == LS__LOSS_MSE) return d * d;
    if (a->kind == LS__LOSS_BCE) return (x < 0 ? 0 : x) - x * target + log(1 + exp(-fabs(x)));
    return fabs(d) < a->beta ? d * d / (2 * a->beta) : fabs(d) - a->beta / 2;
}

static double slope_of(const ls__elementwise_loss_attributes *a, double x, double target)
{
    double d = x - target;
    if (a->kind == LS__LOSS_MSE) return 2 * d;
    if (a->kind == LS__LOSS_BCE) return 1 / (1 + exp(-x)) - target;
    return fabs(d) < a->beta ? d / a->beta : d < 0 ? -1 : 1;
}

static void elementwise_loss(const reference_call *c, bool gradient)
{
    const ls__elementwise_loss_attributes *a = c->node->attributes;
    for (int64_t e = 0; e < reference_count(c->node->out[0]); e++)
        c->out[0][e] = gradient ? c->in[0][e] * slope_of(a, c->in[1][e], c->in[2][e])
                                : loss_of(a, c->in[0][e], c->in[1][e]);
}

bool reference_general_op(const reference_call *c)
{
    const ls_op *op = c->node->op;
    if (op == &ls__op_add || op == &ls__op_sub || op == &ls__op_mul || op == &ls__op_div)
        binary(c);
    else if (op == &ls__op_sum_to)
        sum_to(c);
    else if (op == &ls__op_reduce)
        reduce(c);
    else if (op == &ls__op_reduce_grad)
        reduce_grad(c);
    else if (op == &ls__op_transpose)
        transpose(c);
    else if (op == &ls__op_slice)
        slice(c);
    else if (op == &ls__op_slice_grad)
        slice_grad(c);
    else if (op == &ls__op_concat)
        concat(c);
    else if (op == &ls__op_elementwise_loss || op == &ls__op_elementwise_loss_grad)
        elementwise_loss(c, op == &ls__op_elementwise_loss_grad);
    else
        return false;
    return true;
}
