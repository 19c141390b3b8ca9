/* The reference executor's operations of transformers that are not attention: embeddings, norms
 * over rows, activations with a curve. */
#include <math.h>

#include "base/check.h"
#include "graph/ops.h"
#include "reference.h"

static int64_t last_dim(const ls_tensor *x)
{
    return x->shape[x->rank - 1];
}

static void zero(const reference_call *c, int i)
{
    int64_t count = reference_count(c->node->out[i]);
    for (int64_t k = 0; k < count; k++) c->out[i][k] = 0;
}

/* --- embeddings --- */

static ls_status embedding(const reference_call *c)
{
    int64_t tokens = reference_count(c->node->in[0]);
    int64_t rows = c->node->in[1]->shape[0], width = c->node->in[1]->shape[1];
    for (int64_t i = 0; i < tokens; i++) {
        int64_t token = (int64_t)c->in[0][i];
        if (token < 0 || token >= rows)
            return ls_fail(LS_ERR_DATA, "token %lld at %lld is not in [0, %lld)", (long long)token,
                           (long long)i, (long long)rows);
        for (int64_t k = 0; k < width; k++) c->out[0][i * width + k] = c->in[1][token * width + k];
    }
    return LS_OK;
}

static void embedding_grad(const reference_call *c)
{
    int64_t tokens = reference_count(c->node->in[1]), width = c->node->out[0]->shape[1];
    zero(c, 0);
    for (int64_t i = 0; i < tokens; i++)
        for (int64_t k = 0; k < width; k++)
            c->out[0][(int64_t)c->in[1][i] * width + k] += c->in[0][i * width + k];
}

static void position_embedding(const reference_call *c)
{
    const ls_tensor *x = c->node->in[0];
    int64_t batch = x->shape[0], length = x->shape[1], width = x->shape[2];
    for (int64_t b = 0; b < batch; b++) {
        int64_t first = c->node->nin == 3 ? (int64_t)c->in[2][b] : 0;
        for (int64_t i = 0; i < length * width; i++)
            c->out[0][b * length * width + i] =
                c->in[0][b * length * width + i] + c->in[1][first * width + i];
    }
}

static void position_embedding_grad(const reference_call *c)
{
    int64_t count = reference_count(c->node->in[0]);
    int64_t each = c->node->in[0]->shape[1] * c->node->in[0]->shape[2];
    zero(c, 0);
    for (int64_t i = 0; i < count; i++) c->out[0][i % each] += c->in[0][i];
}

/* --- norms over rows --- */

static void norm(const reference_call *c, bool centred)
{
    const ls__norm_attributes *a = c->node->attributes;
    int64_t width = last_dim(c->node->in[0]), rows = reference_count(c->node->in[0]) / width;
    for (int64_t r = 0; r < rows; r++) {
        const double *x = c->in[0] + r * width;
        double mean = 0, squares = 0;
        for (int64_t k = 0; centred && k < width; k++) mean += x[k] / (double)width;
        for (int64_t k = 0; k < width; k++) squares += (x[k] - mean) * (x[k] - mean);
        double inverse = 1 / sqrt(squares / (double)width + a->epsilon);
        for (int64_t k = 0; k < width; k++)
            c->out[0][r * width + k] =
                (x[k] - mean) * inverse * c->in[1][k] + (c->node->nin == 3 ? c->in[2][k] : 0);
        if (centred) c->out[1][r] = mean;
        c->out[centred ? 2 : 1][r] = inverse;
    }
}

static void norm_grad(const reference_call *c, bool centred)
{
    int64_t width = last_dim(c->node->in[1]), rows = reference_count(c->node->in[1]) / width;
    for (int i = 1; i < c->node->nout; i++) zero(c, i);
    for (int64_t r = 0; r < rows; r++) {
        const double *g = c->in[0] + r * width, *x = c->in[1] + r * width, *w = c->in[2];
        double mean = centred ? c->in[3][r] : 0, inverse = c->in[centred ? 4 : 3][r];
        double u = 0, uh = 0;
        for (int64_t k = 0; k < width; k++) {
            double h = (x[k] - mean) * inverse;
            u += centred ? g[k] * w[k] / (double)width : 0;
            uh += g[k] * w[k] * h / (double)width;
            c->out[1][k] += g[k] * h;
            if (c->node->nout == 3) c->out[2][k] += g[k];
        }
        for (int64_t k = 0; k < width; k++) {
            double h = (x[k] - mean) * inverse;
            c->out[0][r * width + k] = inverse * (g[k] * w[k] - u - h * uh);
        }
    }
}

/* --- activations --- */

static double sigmoid_of(double x)
{
    return 1 / (1 + exp(-x));
}

static double curve(ls__activation_kind kind, double x)
{
    switch (kind) {
    case LS__ACTIVATION_GELU:
        return x * erfc(-x * M_SQRT1_2) / 2;
    case LS__ACTIVATION_GELU_TANH:
        return x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))) / 2;
    case LS__ACTIVATION_SILU:
        return x * sigmoid_of(x);
    case LS__ACTIVATION_TANH:
        return tanh(x);
    case LS__ACTIVATION_SIGMOID:
        return sigmoid_of(x);
    }
    return NAN;
}

static double slope(ls__activation_kind kind, double x)
{
    double s = sigmoid_of(x), t;
    switch (kind) {
    case LS__ACTIVATION_GELU:
        return erfc(-x * M_SQRT1_2) / 2 + x * exp(-x * x / 2) / sqrt(2 * M_PI);
    case LS__ACTIVATION_GELU_TANH:
        t = tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
        return (1 + t) / 2 + x * (1 - t * t) / 2 * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
    case LS__ACTIVATION_SILU:
        return s + x * s * (1 - s);
    case LS__ACTIVATION_TANH:
        return 1 / (cosh(x) * cosh(x));
    case LS__ACTIVATION_SIGMOID:
        return s * (1 - s);
    }
    return NAN;
}

static void activation(const reference_call *c, bool gradient)
{
    const ls__activation_attributes *a = c->node->attributes;
    ls__activation_kind kind = (ls__activation_kind)a->kind;
    int64_t count = reference_count(c->node->out[0]);
    for (int64_t i = 0; i < count; i++)
        c->out[0][i] = gradient ? c->in[0][i] * slope(kind, c->in[1][i]) : curve(kind, c->in[0][i]);
}

bool reference_transformer_op(const reference_call *c, ls_status *status)
{
    const ls_op *op = c->node->op;
    *status = LS_OK;
    if (op == &ls__op_embedding)
        *status = embedding(c);
    else if (op == &ls__op_embedding_grad)
        embedding_grad(c);
    else if (op == &ls__op_position_embedding)
        position_embedding(c);
    else if (op == &ls__op_position_embedding_grad)
        position_embedding_grad(c);
    else if (op == &ls__op_layer_norm || op == &ls__op_rms_norm)
        norm(c, op == &ls__op_layer_norm);
    else if (op == &ls__op_layer_norm_grad || op == &ls__op_rms_norm_grad)
        norm_grad(c, op == &ls__op_layer_norm_grad);
    else if (op == &ls__op_activation || op == &ls__op_activation_grad)
        activation(c, op == &ls__op_activation_grad);
    else
        return false;
    return true;
}
