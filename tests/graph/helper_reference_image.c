/* The reference executor's operations of images: convolution, pools, batch norm. */
#include <math.h>

#include "graph/ops.h"
#include "reference.h"

/* --- convolution: one loop nest, three ways to use a term --- */

typedef void term_fn(const reference_call *c, int64_t y, int64_t x, int64_t w);

static void forward_term(const reference_call *c, int64_t y, int64_t x, int64_t w)
{

    c->out[0][y] += c->in[0][x] * c->in[1][w];
}

static void grad_x_term(const reference_call *c, int64_t y, int64_t x, int64_t w)
{

    c->out[0][x] += c->in[0][y] * c->in[1][w];
}

static void grad_weight_term(const reference_call *c, int64_t y, int64_t x, int64_t w)
{

    c->out[0][w] += c->in[0][y] * c->in[1][x];
}

/* Calls term for every product of an element of x and one of the weight that goes into y. */
static void convolve(const reference_call *c, const ls_tensor *y, const ls_tensor *x, term_fn *term)
{
    const ls__conv2d_attributes *a = c->node->attributes;
    int64_t batch = y->shape[0], out = y->shape[1], rows = y->shape[2], cols = y->shape[3];
    int64_t channels = x->shape[1], k = a->kernel;
    for (int64_t n = 0; n < batch * out * rows * cols; n++) {
        int64_t j = n % cols, i = n / cols % rows, o = n / cols / rows % out,
                b = n / cols / rows / out;
        for (int64_t m = 0; m < channels * k * k; m++) {
            int64_t v = m % k, u = m / k % k, ch = m / k / k;
            int64_t h = i * a->stride + u - a->padding, w = j * a->stride + v - a->padding;
            if (h < 0 || h >= a->height || w < 0 || w >= a->width) continue;
            term(c, n, ((b * channels + ch) * a->height + h) * a->width + w,
                 ((o * channels + ch) * k + u) * k + v);
        }
    }
}

static void clear(const reference_call *c, int i)
{
    int64_t count = reference_count(c->node->out[i]);
    for (int64_t k = 0; k < count; k++) c->out[i][k] = 0;
}

static void conv2d(const reference_call *c)
{
    const ls_tensor *y = c->node->out[0];
    int64_t count = reference_count(y), image = y->shape[2] * y->shape[3];
    for (int64_t n = 0; n < count; n++)
        c->out[0][n] = c->node->nin == 3 ? c->in[2][n / image % y->shape[1]] : 0;
    convolve(c, y, c->node->in[0], forward_term);
}

static void conv2d_grad_weight(const reference_call *c)
{
    const ls_tensor *g = c->node->in[0];
    int64_t count = reference_count(g), image = g->shape[2] * g->shape[3];
    clear(c, 0);
    convolve(c, g, c->node->in[1], grad_weight_term);
    if (c->node->nout < 2) return;
    clear(c, 1);
    for (int64_t n = 0; n < count; n++) c->out[1][n / image % g->shape[1]] += c->in[0][n];
}

/* --- pools --- */

static void pool(const reference_call *c, bool max)
{
    const ls__pool2d_attributes *a = c->node->attributes;
    const ls_tensor *y = c->node->out[0];
    int64_t rows = y->shape[2], cols = y->shape[3], s = a->size;
    for (int64_t n = 0; n < reference_count(y); n++) {
        const double *x = c->in[0] + n / cols / rows * a->height * a->width +
                          n / cols % rows * s * a->width + n % cols * s;
        double best = x[0], sum = 0;
        int64_t index = 0;
        for (int64_t m = 0; m < s * s; m++) {
            double value = x[m / s * a->width + m % s];
            sum += value;
            if (value > best || (isnan(value) && !isnan(best))) {
                best = value;
                index = m;
            }
        }
        c->out[0][n] = max ? best : sum / (double)(s * s);
        if (c->node->nout == 2) c->out[1][n] = (double)index;
    }
}

static void pool_grad(const reference_call *c, bool max)
{
    const ls__pool2d_attributes *a = c->node->attributes;
    const ls_tensor *g = c->node->in[0];
    int64_t rows = g->shape[2], cols = g->shape[3], s = a->size;
    clear(c, 0);
    for (int64_t n = 0; n < reference_count(g); n++) {
        double *x = c->out[0] + n / cols / rows * a->height * a->width +
                    n / cols % rows * s * a->width + n % cols * s;
        for (int64_t m = 0; m < s * s; m++) {
            double share = max ? (double)(c->in[1][n] == (double)m) : 1 / (double)(s * s);
            x[m / s * a->width + m % s] += share * c->in[0][n];
        }
    }
}

static void global_pool(const reference_call *c)
{
    const ls_tensor *x = c->node->in[0];
    int64_t image = x->shape[2] * x->shape[3];
    clear(c, 0);
    for (int64_t n = 0; n < reference_count(x); n++)
        c->out[0][n / image] += c->in[0][n] / (double)image;
}

static void global_pool_grad(const reference_call *c)
{
    const ls__pool2d_attributes *a = c->node->attributes;
    int64_t image = a->height * a->width;
    for (int64_t n = 0; n < reference_count(c->node->out[0]); n++)
        c->out[0][n] = c->in[0][n / image] / (double)image;
}

/* --- batch norm: one channel of one group at a time --- */

typedef struct channel {
    int64_t first, samples; /* of the group */
    int64_t channel, channels, image;
    double count;
} channel;

static int64_t at(const channel *s, int64_t i)
{
    return ((s->first + i / s->image) * s->channels + s->channel) * s->image + i % s->image;
}

static void normalize(const reference_call *c, const channel *s, int64_t group)
{
    const ls__batch_norm_attributes *a = c->node->attributes;
    double mean = 0, variance = 0, n = s->count;
    for (int64_t i = 0; i < (int64_t)n; i++) mean += c->in[0][at(s, i)] / n;
    for (int64_t i = 0; i < (int64_t)n; i++)
        variance += (c->in[0][at(s, i)] - mean) * (c->in[0][at(s, i)] - mean) / n;
    double inverse = 1 / sqrt(variance + a->epsilon);
    for (int64_t i = 0; i < (int64_t)n; i++)
        c->out[0][at(s, i)] =
            (c->in[0][at(s, i)] - mean) * inverse * c->in[1][s->channel] + c->in[2][s->channel];
    c->out[1][group * s->channels + s->channel] = mean;
    c->out[2][group * s->channels + s->channel] = inverse;
    c->out[3][s->channel] += (double)s->samples * mean;
    c->out[4][s->channel] += (double)s->samples * variance * n / (n > 1 ? n - 1 : 1);
}

static void normalize_grad(const reference_call *c, const channel *s, int64_t group)
{
    double mean = c->in[3][group * s->channels + s->channel], n = s->count;
    double inverse = c->in[4][group * s->channels + s->channel], sum = 0, dot = 0;
    for (int64_t i = 0; i < (int64_t)n; i++) {
        sum += c->in[0][at(s, i)];
        dot += c->in[0][at(s, i)] * (c->in[1][at(s, i)] - mean) * inverse;
    }
    for (int64_t i = 0; i < (int64_t)n; i++) {
        double h = (c->in[1][at(s, i)] - mean) * inverse;
        c->out[0][at(s, i)] =
            c->in[2][s->channel] * inverse * (c->in[0][at(s, i)] - sum / n - h * dot / n);
    }
    c->out[1][s->channel] += dot;
    c->out[2][s->channel] += sum;
}

static void by_groups(const reference_call *c, const ls_tensor *x,
                      void (*each)(const reference_call *, const channel *, int64_t))
{
    const ls__batch_norm_attributes *a = c->node->attributes;
    channel s = { .channels = x->shape[1] };
    s.image = reference_count(x) / x->shape[0] / s.channels;
    for (int64_t first = 0, group = 0; first < x->shape[0]; first += a->group, group++) {
        s.first = first;
        s.samples = x->shape[0] - first < a->group ? x->shape[0] - first : a->group;
        s.count = (double)(s.samples * s.image);
        for (s.channel = 0; s.channel < s.channels; s.channel++) each(c, &s, group);
    }
}

static void batch_norm_inference(const reference_call *c)
{
    const ls__batch_norm_attributes *a = c->node->attributes;
    const ls_tensor *x = c->node->in[0];
    int64_t count = reference_count(x), channels = x->shape[1];
    int64_t image = count / x->shape[0] / channels;
    for (int64_t n = 0; n < count; n++) {
        int64_t ch = n / image % channels;
        c->out[0][n] =
            (c->in[0][n] - c->in[3][ch]) / sqrt(c->in[4][ch] + a->epsilon) * c->in[1][ch] +
            c->in[2][ch];
    }
}

bool reference_image_op(const reference_call *c)
{
    const ls_op *op = c->node->op;
    if (op == &ls__op_conv2d)
        conv2d(c);
    else if (op == &ls__op_conv2d_grad_x)
        clear(c, 0), convolve(c, c->node->in[0], c->node->out[0], grad_x_term);
    else if (op == &ls__op_conv2d_grad_weight)
        conv2d_grad_weight(c);
    else if (op == &ls__op_max_pool2d)
        pool(c, true);
    else if (op == &ls__op_max_pool2d_grad)
        pool_grad(c, true);
    else if (op == &ls__op_avg_pool2d)
        pool(c, false);
    else if (op == &ls__op_avg_pool2d_grad)
        pool_grad(c, false);
    else if (op == &ls__op_global_avg_pool2d)
        global_pool(c);
    else if (op == &ls__op_global_avg_pool2d_grad)
        global_pool_grad(c);
    else if (op == &ls__op_batch_norm)
        clear(c, 3), clear(c, 4), by_groups(c, c->node->in[0], normalize);
    else if (op == &ls__op_batch_norm_grad)
        clear(c, 1), clear(c, 2), by_groups(c, c->node->in[1], normalize_grad);
    else if (op == &ls__op_batch_norm_inference)
        batch_norm_inference(c);
    else
        return false;
    return true;
}
