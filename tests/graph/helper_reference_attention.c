/* The reference executor's attention, rotary positions and softmax: whole T x T rows, in double. */
#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/ops.h"

/* --- where things lie in qkv --- */

typedef struct heads {
    int64_t heads, kv_heads, width, tokens, row;
} heads;

static heads heads_of(const ls_tensor *qkv, const ls__attention_attributes *a)
{
    return (heads) { a->heads, a->kv_heads, a->width, qkv->shape[1], qkv->shape[2] };
}

static int64_t token(const heads *s, int64_t b, int64_t t)
{
    return (b * s->tokens + t) * s->row;
}

static int64_t query_at(const heads *s, int64_t b, int64_t t, int64_t h)
{
    return token(s, b, t) + h * s->width;
}

static int64_t key_at(const heads *s, int64_t b, int64_t t, int64_t h)
{
    return token(s, b, t) + (s->heads + h / (s->heads / s->kv_heads)) * s->width;
}

static int64_t value_at(const heads *s, int64_t b, int64_t t, int64_t h)
{
    return key_at(s, b, t, h) + s->kv_heads * s->width;
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* s becomes its softmax; the log of the sum. */
static double normalize(double *s, int64_t n)
{
    double most = s[0], sum = 0;
    for (int64_t i = 1; i < n; i++) most = fmax(most, s[i]);
    for (int64_t i = 0; i < n; i++) sum += exp(s[i] - most);
    for (int64_t i = 0; i < n; i++) s[i] = exp(s[i] - most) / sum;
    return most + log(sum);
}

/* --- attention --- */

static void attend(const reference_call *c, const heads *s, int64_t b, int64_t h, int64_t t)
{
    const ls__attention_attributes *a = c->node->attributes;
    const double *qkv = c->in[0];
    int64_t n = a->causal ? t + 1 : s->tokens;
    double *p = calloc((size_t)n, sizeof *p);
    double *y = c->out[0] + ((b * s->tokens + t) * s->heads + h) * s->width;
    for (int64_t u = 0; u < n; u++)
        p[u] = a->scale * dot(qkv + query_at(s, b, t, h), qkv + key_at(s, b, u, h), s->width);
    double logsum = normalize(p, n);
    if (c->node->nout == 2) c->out[1][(b * s->heads + h) * s->tokens + t] = logsum;
    memset(y, 0, (size_t)s->width * sizeof *y);
    for (int64_t u = 0; u < n; u++)
        for (int64_t d = 0; d < s->width; d++) y[d] += p[u] * qkv[value_at(s, b, u, h) + d];
    free(p);
}

static void differentiate(const reference_call *c, const heads *s, int64_t b, int64_t h, int64_t t)
{
    const ls__attention_attributes *a = c->node->attributes;
    const double *qkv = c->in[1];
    int64_t at = ((b * s->tokens + t) * s->heads + h) * s->width;
    const double *g = c->in[0] + at, *q = qkv + query_at(s, b, t, h);
    double *dqkv = c->out[0], r = dot(g, c->in[2] + at, s->width);
    double logsum = c->in[3][(b * s->heads + h) * s->tokens + t];
    for (int64_t u = 0; u < (a->causal ? t + 1 : s->tokens); u++) {
        int64_t k = key_at(s, b, u, h), v = value_at(s, b, u, h);
        double p = exp(a->scale * dot(q, qkv + k, s->width) - logsum);
        double ds = a->scale * p * (dot(g, qkv + v, s->width) - r);
        for (int64_t d = 0; d < s->width; d++) {
            dqkv[query_at(s, b, t, h) + d] += ds * qkv[k + d];
            dqkv[k + d] += ds * q[d];
            dqkv[v + d] += p * g[d];
        }
    }
}

static void attention(const reference_call *c, const ls_tensor *qkv,
                      void (*one)(const reference_call *, const heads *, int64_t, int64_t, int64_t))
{
    heads s = heads_of(qkv, c->node->attributes);
    for (int64_t b = 0; b < qkv->shape[0]; b++)
        for (int64_t h = 0; h < s.heads; h++)
            for (int64_t t = 0; t < s.tokens; t++) one(c, &s, b, h, t);
}

static void attention_grad(const reference_call *c)
{
    const ls_tensor *qkv = c->node->in[1];
    memset(c->out[0], 0, (size_t)reference_count(qkv) * sizeof(double));
    attention(c, qkv, differentiate);
}

/* --- attention over a cache, which is written --- */

static void attend_cached(const reference_call *c, int64_t b, int64_t t)
{
    const ls__attention_attributes *a = c->node->attributes;
    heads s = heads_of(c->node->in[0], a);
    int64_t rows = c->node->in[1]->shape[1], both = 2 * a->kv_heads * a->width;
    int64_t last = (int64_t)c->in[2][b] + t;
    double *cache = (double *)c->in[1] + b * rows * both, *p = calloc((size_t)rows, sizeof *p);
    memcpy(cache + last * both, c->in[0] + key_at(&s, b, t, 0), (size_t)both * sizeof *cache);
    for (int64_t h = 0; h < a->heads; h++) {
        const double *q = c->in[0] + query_at(&s, b, t, h);
        const double *k = cache + h / (a->heads / a->kv_heads) * a->width;
        double *y = c->out[0] + ((b * s.tokens + t) * a->heads + h) * a->width;
        for (int64_t u = 0; u <= last; u++) p[u] = a->scale * dot(q, k + u * both, a->width);
        normalize(p, last + 1);
        memset(y, 0, (size_t)a->width * sizeof *y);
        for (int64_t u = 0; u <= last; u++)
            for (int64_t d = 0; d < a->width; d++)
                y[d] += p[u] * k[u * both + a->kv_heads * a->width + d];
    }
    free(p);
}

static void attention_cached(const reference_call *c)
{
    const ls_tensor *qkv = c->node->in[0];
    for (int64_t b = 0; b < qkv->shape[0]; b++)
        for (int64_t t = 0; t < qkv->shape[1]; t++) attend_cached(c, b, t);
}

/* --- rotary --- */

static void rotary(const reference_call *c)
{
    const ls__rotary_attributes *a = c->node->attributes;
    const ls_tensor *x = c->node->in[0];
    int64_t tokens = x->shape[1], row = x->shape[2], half = a->width / 2;
    memcpy(c->out[0], c->in[0], (size_t)reference_count(x) * sizeof(double));
    for (int64_t i = 0; i < x->shape[0] * tokens * (a->heads + a->kv_heads) * half; i++) {
        int64_t pair = i % half, head = i / half % (a->heads + a->kv_heads);
        int64_t at = i / half / (a->heads + a->kv_heads);
        double position = (c->node->nin == 2 ? c->in[1][at / tokens] : 0) + (double)(at % tokens);
        double angle = position * pow(a->theta, -2.0 * (double)pair / (double)a->width);
        if (a->inverse) angle = -angle;
        const double *u = c->in[0] + at * row + head * a->width + pair;
        double *y = c->out[0] + at * row + head * a->width + pair;
        y[0] = u[0] * cos(angle) - u[half] * sin(angle);
        y[half] = u[0] * sin(angle) + u[half] * cos(angle);
    }
}

/* --- softmax --- */

static void softmax(const reference_call *c)
{
    const ls_tensor *x = c->node->in[0];
    int64_t count = reference_count(x), n = x->shape[x->rank - 1];
    memcpy(c->out[0], c->in[0], (size_t)count * sizeof(double));
    for (int64_t i = 0; i < count; i += n) normalize(c->out[0] + i, n);
}

static void softmax_grad(const reference_call *c)
{
    const ls_tensor *x = c->node->in[0];
    int64_t count = reference_count(x), n = x->shape[x->rank - 1];
    for (int64_t i = 0; i < count; i++) {
        int64_t row = i / n * n;
        c->out[0][i] = c->in[1][i] * (c->in[0][i] - dot(c->in[0] + row, c->in[1] + row, n));
    }
}

bool reference_attention_op(const reference_call *c)
{
    const ls_op *op = c->node->op;
    if (op == &ls__op_attention)
        attention(c, c->node->in[0], attend);
    else if (op == &ls__op_attention_grad)
        attention_grad(c);
    else if (op == &ls__op_attention_cached)
        attention_cached(c);
    else if (op == &ls__op_rotary)
        rotary(c);
    else if (op == &ls__op_softmax)
        softmax(c);
    else if (op == &ls__op_softmax_grad)
        softmax_grad(c);
    else
        return false;
    return true;
}
