/* The reference executor: memory, and the operations that are not about images. */
#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "graph/ops.h"

int64_t reference_count(const ls_tensor *x)
{
    int64_t count = 1;
    for (int i = 0; i < x->rank; i++) count *= x->shape[i];
    return count;
}

reference *reference_create(const ls_graph *graph)
{
    ls_tensor *const *tensors;
    int n = ls__graph_tensors(graph, &tensors);
    reference *r = calloc(1, sizeof *r);
    r->graph = graph;
    r->grad_seed = 1;
    r->values = calloc((size_t)n + 1, sizeof *r->values);
    r->blocks = calloc((size_t)n + 1, sizeof *r->blocks);
    for (int i = 0; i < n; i++) {
        int64_t count = reference_count(tensors[i]);
        r->blocks[i] = r->values[i] = calloc((size_t)count, sizeof(double));
        for (int64_t k = 0; tensors[i]->values && k < count; k++)
            r->values[i][k] = tensors[i]->values[k];
    }
    return r;
}

void reference_destroy(reference *r)
{
    int n = ls__graph_tensors(r->graph, NULL);
    for (int i = 0; i < n; i++) free(r->blocks[i]);
    free(r->blocks);
    free(r->values);
    free(r);
}

double *reference_of(reference *r, const ls_tensor *x)
{
    return r->values[x->id];
}

void reference_use_arena(reference *r, const int *root, const ls__lifetime *pieces, double *arena)
{
    int n = ls__graph_tensors(r->graph, NULL);
    for (int i = 0; i < n; i++) {
        const ls__lifetime *piece = &pieces[root[i]];
        if (piece->nbytes)
            r->values[i] = arena + piece->offset / 4;
        else
            r->values[i] = r->values[root[i]]; /* a view of an input or parameter */
    }
}

void reference_fill(double *values, int64_t count, uint64_t seed, double scale)
{
    ls_rng rng;
    ls__rng_init(&rng, seed, "test", 0, 0);
    for (int64_t i = 0; i < count; i++)
        values[i] = (double)(float)(scale * (2 * ls_rng_uniform(&rng) - 1));
}

const ls__graph_param *reference_param(const ls_graph *g, const char *name)
{
    const ls__graph_param *params;
    int n = ls__graph_params(g, &params);
    for (int i = 0; i < n; i++)
        if (!strcmp(params[i].name, name)) return &params[i];
    return NULL;
}

const ls__graph_result *reference_result(const ls_graph *g, const char *name)
{
    const ls__graph_result *results;
    int n = ls__graph_results(g, &results);
    for (int i = 0; i < n; i++)
        if (!strcmp(results[i].name, name)) return &results[i];
    return NULL;
}

ls_tensor *reference_input(const ls_graph *g, const char *field)
{
    ls_tensor *const *tensors;
    int n = ls__graph_tensors(g, &tensors);
    const ls__graph_options *options = ls__graph_options_of(g);
    for (int i = 0; i < n; i++)
        if (tensors[i]->role == LS__ROLE_INPUT &&
            !strcmp(options->fields[tensors[i]->slot].name, field))
            return tensors[i];
    return NULL;
}

/* --- matrices --- */

static int64_t dim(const ls_tensor *x, int i)
{
    return x->shape[i];
}

static void linear(const reference_call *c)
{
    int64_t rows = dim(c->node->in[0], 0), k = dim(c->node->in[0], 1), n = dim(c->node->in[1], 0);
    for (int64_t b = 0; b < rows; b++) {
        for (int64_t j = 0; j < n; j++) {
            double sum = c->node->nin == 3 ? c->in[2][j] : 0;
            for (int64_t i = 0; i < k; i++) sum += c->in[0][b * k + i] * c->in[1][j * k + i];
            c->out[0][b * n + j] = sum;
        }
    }
}

static void linear_grad_x(const reference_call *c)
{
    int64_t rows = dim(c->node->in[0], 0), n = dim(c->node->in[0], 1), k = dim(c->node->in[1], 1);
    for (int64_t b = 0; b < rows; b++) {
        for (int64_t i = 0; i < k; i++) {
            double sum = 0;
            for (int64_t j = 0; j < n; j++) sum += c->in[0][b * n + j] * c->in[1][j * k + i];
            c->out[0][b * k + i] = sum;
        }
    }
}

static void linear_grad_weight(const reference_call *c)
{
    int64_t rows = dim(c->node->in[0], 0), n = dim(c->node->in[0], 1), k = dim(c->node->in[1], 1);
    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = 0; i < k; i++) {
            double sum = 0;
            for (int64_t b = 0; b < rows; b++) sum += c->in[0][b * n + j] * c->in[1][b * k + i];
            c->out[0][j * k + i] = sum;
        }
        double sum = 0;
        for (int64_t b = 0; b < rows; b++) sum += c->in[0][b * n + j];
        if (c->node->nout == 2) c->out[1][j] = sum;
    }
}

/* --- element by element --- */

static double element(const reference_call *c, int64_t i)
{
    const ls_op *op = c->node->op;
    const ls__scale_attributes *s = c->node->attributes;
    if (op == &ls__op_relu) return c->in[0][i] < 0 ? 0 : c->in[0][i];
    if (op == &ls__op_relu_grad) return c->in[1][i] <= 0 ? 0 : c->in[0][i];
    if (op == &ls__op_scale) return s->factor * c->in[0][i] + s->offset;
    return c->in[0][i]; /* copy, reshape */
}

static void elementwise(const reference_call *c)
{
    int64_t count = reference_count(c->node->out[0]);
    for (int64_t i = 0; i < count; i++) c->out[0][i] = element(c, i);
}

static void dropout(const reference_call *c)
{
    const ls__dropout_attributes *a = c->node->attributes;
    int64_t batch = dim(c->node->in[0], 0), each = reference_count(c->node->in[0]) / batch;
    uint32_t key[2], block[4];
    ls__dropout_key(a, c->run->seed, key);
    for (int64_t b = 0; b < batch; b++) {
        for (int64_t e = 0; e < each; e++) {
            const uint32_t counter[4] = { (uint32_t)(e / 4), (uint32_t)(c->run->first + b),
                                          (uint32_t)c->run->step, (uint32_t)(c->run->step >> 32) };
            ls__philox(key, counter, block);
            bool kept = block[e % 4] >= a->threshold;
            c->out[0][b * each + e] = kept ? c->in[0][b * each + e] * a->factor : 0;
        }
    }
}

/* --- losses --- */

static ls_status check_label(int64_t label, int64_t classes, int64_t row)
{
    if (label == LS__LABEL_IGNORED || (label >= 0 && label < classes)) return LS_OK;
    return ls_fail(LS_ERR_DATA, "label %lld of row %lld is not in [0, %lld)", (long long)label,
                   (long long)row, (long long)classes);
}

static ls_status cross_entropy(const reference_call *c)
{
    int64_t rows = reference_count(c->node->in[1]);
    int64_t classes = reference_count(c->node->in[0]) / rows;
    for (int64_t r = 0; r < rows; r++) {
        const double *s = c->in[0] + r * classes;
        int64_t label = (int64_t)c->in[1][r];
        double top = s[0], sum = 0;
        if (check_label(label, classes, r) != LS_OK) return LS_ERR_DATA;
        for (int64_t k = 1; k < classes; k++) top = fmax(top, s[k]);
        for (int64_t k = 0; k < classes; k++) sum += exp(s[k] - top);
        bool ignored = label == LS__LABEL_IGNORED;
        c->out[2][r] = top + log(sum);
        c->out[0][r] = ignored ? 0 : c->out[2][r] - s[label];
        c->out[1][r] = !ignored;
    }
    return LS_OK;
}

static void cross_entropy_grad(const reference_call *c)
{
    int64_t rows = reference_count(c->node->in[2]);
    int64_t classes = reference_count(c->node->in[1]) / rows;
    for (int64_t r = 0; r < rows; r++) {
        int64_t label = (int64_t)c->in[2][r];
        for (int64_t k = 0; k < classes; k++) {
            double p = exp(c->in[1][r * classes + k] - c->in[3][r]) - (k == label);
            c->out[0][r * classes + k] = label == LS__LABEL_IGNORED ? 0 : p * c->in[0][r];
        }
    }
}

static ls_status accuracy(const reference_call *c)
{
    int64_t rows = reference_count(c->node->in[1]);
    int64_t classes = reference_count(c->node->in[0]) / rows;
    for (int64_t r = 0; r < rows; r++) {
        const double *s = c->in[0] + r * classes;
        int64_t label = (int64_t)c->in[1][r], best = 0;
        if (check_label(label, classes, r) != LS_OK) return LS_ERR_DATA;
        for (int64_t k = 1; k < classes; k++)
            if (s[k] > s[best] || (isnan(s[k]) && !isnan(s[best]))) best = k;
        c->out[0][r] = best == label;
        c->out[1][r] = label != LS__LABEL_IGNORED;
    }
    return LS_OK;
}

static void loss_grad(const reference_call *c)
{
    int64_t count = reference_count(c->node->out[0]);
    for (int64_t i = 0; i < count; i++)
        c->out[0][i] = c->run->grad_seed * (c->node->nin == 2 ? c->in[1][i] : 1);
}

/* --- an operation of the user's: by its own f32 kernel, rows in two parts --- */

static void user_op(const reference_call *c)
{
    ls_array in[LS__MAX_INPUTS], out;
    for (int i = 0; i <= c->node->nin; i++) {
        const ls_tensor *x = i < c->node->nin ? c->node->in[i] : c->node->out[0];
        ls_array *array = i < c->node->nin ? &in[i] : &out;
        int64_t count = reference_count(x);
        *array = (ls_array) { .type = LS_DTYPE_F32, .rank = x->rank };
        memcpy(array->shape, x->shape, sizeof array->shape);
        float *data = malloc((size_t)count * sizeof *data);
        for (int64_t k = 0; i < c->node->nin && k < count; k++) data[k] = (float)c->in[i][k];
        array->data = data;
    }
    int64_t rows = out.rank ? out.shape[0] : 1;
    ls_op_call call = { .in = in,
                        .nin = c->node->nin,
                        .out = &out,
                        .attributes = c->node->attributes,
                        .end = rows / 2 };
    c->node->op->compute(&call);
    call.begin = rows / 2;
    call.end = rows;
    c->node->op->compute(&call);
    for (int64_t k = 0; k < ls_array_count(&out); k++) c->out[0][k] = ((float *)out.data)[k];
    for (int i = 0; i < c->node->nin; i++) free(in[i].data);
    free(out.data);
}

/* --- the run --- */

static ls_status run_node(const reference_call *c)
{
    const ls_op *op = c->node->op;
    ls_status status = LS_OK;
    if (op->compute)
        user_op(c);
    else if (op == &ls__op_linear)
        linear(c);
    else if (op == &ls__op_linear_grad_x)
        linear_grad_x(c);
    else if (op == &ls__op_linear_grad_weight)
        linear_grad_weight(c);
    else if (op == &ls__op_dropout)
        dropout(c);
    else if (op == &ls__op_cross_entropy)
        return cross_entropy(c);
    else if (op == &ls__op_cross_entropy_grad)
        cross_entropy_grad(c);
    else if (op == &ls__op_accuracy)
        return accuracy(c);
    else if (op == &ls__op_loss_grad)
        loss_grad(c);
    else if (!reference_transformer_op(c, &status) && !reference_image_op(c) &&
             !reference_general_op(c) && !reference_attention_op(c))
        elementwise(c);
    return status;
}

/* To the nearest number that bf16 holds, of two equally near the even one. */
static double rounded(double x)
{
    float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (isnan(f)) return x;
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    memcpy(&f, &bits, sizeof f);
    return (double)f;
}

static double *rounded_copy(const double *x, int64_t n)
{
    double *copy = calloc((size_t)n + 1, sizeof *copy);
    for (int64_t i = 0; i < n; i++) copy[i] = rounded(x[i]);
    return copy;
}

static void round_outputs(const reference_call *call)
{
    for (int k = 0; k < call->node->nout; k++) {
        const ls_tensor *x = call->node->out[k];
        for (int64_t i = 0; x->half && i < reference_count(x); i++)
            call->out[k][i] = rounded(call->out[k][i]);
    }
}

static bool rounds(const reference_call *call, int input)
{
    const ls__node *node = call->node;
    bool bias = node->op == &ls__op_linear && input == 2;
    bool convolution = node->op == &ls__op_conv2d || node->op == &ls__op_conv2d_grad_x ||
                       node->op == &ls__op_conv2d_grad_weight;
    if (bias) return call->run->on_gpus && node->half && node->out[0]->half;
    return ls__node_rounds(node, input) && !(convolution && call->run->on_gpus);
}

/* bf16-mixed: factors are rounded, and so is what a half tensor stores. */
static ls_status run_rounding(reference_call *call)
{
    const ls__node *node = call->node;
    double *copies[LS__MAX_INPUTS] = { 0 };
    for (int k = 0; k < node->nin; k++) {
        if (!rounds(call, k)) continue;
        copies[k] = rounded_copy(call->in[k], reference_count(node->in[k]));
        call->in[k] = copies[k];
    }
    ls_status status = run_node(call);
    round_outputs(call);
    for (int k = 0; k < node->nin; k++) free(copies[k]);
    return status;
}

ls_status reference_run(reference *r)
{
    const ls__node *nodes;
    int n = ls__graph_nodes(r->graph, &nodes);
    for (int i = 0; i < n; i++) {
        reference_call call = { .node = &nodes[i], .run = r };
        for (int k = 0; k < nodes[i].nin; k++) call.in[k] = r->values[nodes[i].in[k]->id];
        for (int k = 0; k < nodes[i].nout; k++) call.out[k] = r->values[nodes[i].out[k]->id];
        ls_status status = run_rounding(&call);
        if (status != LS_OK) return status;
    }
    return LS_OK;
}
