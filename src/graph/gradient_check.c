/* ls_gradient_check: the gradients that a backend computes against central differences of its own
 * losses, in f32.
 *
 * f32 losses have some 1e-7 of noise, which a difference divides by the step; a large step meets
 * the curvature, or the corner of a relu. So each element gets several steps, from large to small,
 * with Richardson's extrapolation between neighbours, and passes with the first that agrees: a wrong
 * gradient agrees with none. Some tens of elements of each parameter on a few samples are enough to
 * find a wrong rule; this runs once, before a training. */
#include "graph/construct.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "base/random.h"
#include "graph/backend.h"

enum { MAX_SAMPLES = 4, LARGEST = 4, RANDOM = 12, ALIGNMENT = 64 };
static const double steps[] = { 0.1, 0.03, 0.01, 0.003, 0.001 };
enum { STEPS = sizeof steps / sizeof *steps };

typedef struct checker {
    const ls__backend *backend;
    ls_graph *graph;
    ls__executable *executable;
    const ls__graph_result *loss;
    ls__run_context context;
    float *params, *grads;
    int64_t *offsets;
    int64_t nparams; /* elements */
    void **fields;
    void *arena;
    size_t arena_bytes;
    double *weights;  /* of the losses, at the first run */
    double magnitude; /* sum of |loss|: what the noise is proportional to */
    double tolerance;
    /* the element that is furthest off, relative to what is allowed */
    double worst, worst_analytic, worst_numeric;
    char worst_name[256];
} checker;

/* --- preparing --- */

static ls_status read_samples(checker *c, const ls_dataset *data)
{
    const ls__graph_options *o = ls__graph_options_of(c->graph);
    int64_t length = ls_dataset_length(data);
    void **at = ls__alloc((size_t)o->nfields + 1, sizeof *at);
    if (!at) return LS_ERR_MEMORY;
    ls_status status = LS_OK;
    for (int64_t b = 0; b < o->batch && status == LS_OK; b++) {
        for (int i = 0; i < o->nfields; i++) {
            ls_array one = { .rank = o->fields[i].rank };
            memcpy(one.shape, o->fields[i].shape, sizeof one.shape);
            size_t each = (size_t)ls_array_count(&one) * ls_dtype_size(o->fields[i].type);
            if (!c->fields[i]) c->fields[i] = ls__alloc((size_t)o->batch, each);
            if (!c->fields[i])
                status = LS_ERR_MEMORY;
            else
                at[i] = (char *)c->fields[i] + (size_t)b * each;
        }
        if (status == LS_OK) status = ls_dataset_read(data, length * b / o->batch, NULL, at);
    }
    ls__free(at);
    return status;
}

/* As training begins, moved a little: where everything is zero or one, mistakes cancel. */
static void fill_params(checker *c)
{
    const ls__graph_param *params;
    int n = ls__graph_params(c->graph, &params);
    for (int i = 0; i < n; i++) {
        float *values = c->params + c->offsets[i];
        ls_rng rng;
        ls__graph_init_param(&params[i], 0, values);
        ls__rng_init(&rng, 0, "gradient check", (uint64_t)i, 0);
        for (int64_t k = 0; k < ls__tensor_count(params[i].tensor); k++)
            values[k] += (float)(0.04 * (ls_rng_uniform(&rng) - 0.5));
    }
}

static ls_status allocate(checker *c)
{
    const ls__graph_param *params;
    int n = ls__graph_params(c->graph, &params);
    const ls__graph_options *o = ls__graph_options_of(c->graph);
    c->offsets = ls__alloc((size_t)n + 1, sizeof *c->offsets);
    c->fields = ls__alloc((size_t)o->nfields + 1, sizeof *c->fields);
    if (!c->offsets || !c->fields) return LS_ERR_MEMORY;
    for (int i = 0; i < n; i++) {
        int64_t count = ls__tensor_count(params[i].tensor), unit = ALIGNMENT / sizeof(float);
        c->offsets[i] = c->nparams;
        c->nparams += (count + unit - 1) / unit * unit;
    }
    size_t nbytes = ((size_t)c->nparams + 1) * sizeof(float);
    c->arena_bytes = c->backend->arena_bytes(c->executable) + ALIGNMENT;
    c->params = ls__map(nbytes);
    c->grads = ls__map(nbytes);
    c->arena = ls__map(c->arena_bytes);
    c->weights = ls__alloc((size_t)ls__tensor_count(c->loss->values[0]), sizeof(double));
    if (!c->params || !c->grads || !c->arena || !c->weights) return LS_ERR_MEMORY;
    c->context = (ls__run_context) { .params = c->params,
                                     .grads = c->grads,
                                     .offsets = c->offsets,
                                     .fields = c->fields,
                                     .arena = c->arena,
                                     .grad_seed = 1 };
    return LS_OK;
}

static void release(checker *c)
{
    size_t nbytes = ((size_t)c->nparams + 1) * sizeof(float);
    int nfields = c->graph ? ls__graph_options_of(c->graph)->nfields : 0;
    for (int i = 0; i < nfields && c->fields; i++) ls__free(c->fields[i]);
    if (c->params) ls__unmap(c->params, nbytes);
    if (c->grads) ls__unmap(c->grads, nbytes);
    if (c->arena) ls__unmap(c->arena, c->arena_bytes);
    ls__free(c->weights);
    ls__free(c->fields);
    ls__free(c->offsets);
    if (c->executable) c->backend->destroy(c->executable);
    ls__graph_destroy(c->graph);
}

static ls_status build(checker *c, ls_step_fn *step, void *user, const ls_dataset *data)
{
    int64_t length = ls_dataset_length(data);
    ls__graph_options options = { .stage = LS_STAGE_TRAIN,
                                  .batch = length < MAX_SAMPLES ? length : MAX_SAMPLES,
                                  .input_gradients = true };
    options.fields = ls_dataset_fields(data, &options.nfields);
    if (length < 1) return ls_fail(LS_ERR_DATA, "ls_gradient_check: the data has no samples");
    LS_TRY(ls__backend_open("cpu", 0, &c->backend));
    LS_TRY(ls__graph_build(step, user, &options, &c->graph));
    const ls__graph_result *results;
    int n = ls__graph_results(c->graph, &results);
    for (int i = 0; i < n; i++)
        if (results[i].kind == LS__RESULT_LOSS) c->loss = &results[i];
    LS_TRY(c->backend->compile(c->graph, &c->executable));
    LS_TRY(allocate(c));
    fill_params(c);
    return read_samples(c, data);
}

/* --- the objective --- */

static ls_status read_floats(checker *c, const ls_tensor *x, const float **out)
{
    ls_array array;
    LS_TRY(c->backend->read(c->executable, &c->context, x, &array));
    *out = array.data;
    return LS_OK;
}

/* Weights stay those of the first run: what they depend on may be what is being moved. */
static ls_status first_run(checker *c)
{
    const float *losses, *weights = NULL;
    LS_TRY(c->backend->run(c->executable, &c->context));
    if (c->loss->weights) LS_TRY(read_floats(c, c->loss->weights, &weights));
    for (int64_t i = 0; i < ls__tensor_count(c->loss->values[0]); i++)
        c->weights[i] = weights ? (double)weights[i] : 1;
    LS_TRY(read_floats(c, c->loss->values[0], &losses));
    for (int64_t i = 0; i < ls__tensor_count(c->loss->values[0]); i++)
        c->magnitude += fabs(c->weights[i] * (double)losses[i]);
    if (isfinite(c->magnitude)) return LS_OK;
    return ls_fail(LS_ERR_ARG, "ls_gradient_check: the losses are not finite");
}

static ls_status objective(checker *c, double *out)
{
    const float *losses;
    LS_TRY(c->backend->run(c->executable, &c->context));
    LS_TRY(read_floats(c, c->loss->values[0], &losses));
    *out = 0;
    for (int64_t i = 0; i < ls__tensor_count(c->loss->values[0]); i++)
        *out += c->weights[i] * (double)losses[i];
    return LS_OK;
}

static ls_status central_difference(checker *c, float *value, double step, double *out)
{
    float kept = *value;
    volatile float above = kept + (float)step, below = kept - (float)step;
    double high = 0, low = 0;
    *value = above;
    ls_status status = objective(c, &high);
    *value = below;
    if (status == LS_OK) status = objective(c, &low);
    *value = kept;
    *out = (high - low) / ((double)above - (double)below);
    return status;
}

/* --- one element, one tensor, all of them --- */

typedef struct subject {
    char name[128];
    const ls_tensor *tensor;
    float *values;
    float *grads;   /* a copy */
    double largest; /* |gradient| */
    double scale;   /* of the values: steps are relative to it */
} subject;

static void remember(checker *c, const subject *s, int64_t i, double off, double numeric)
{
    if (off <= c->worst) return;
    c->worst = off;
    c->worst_analytic = (double)s->grads[i];
    c->worst_numeric = numeric;
    size_t used = (size_t)snprintf(c->worst_name, sizeof c->worst_name, "%s[", s->name);
    int64_t below = ls__tensor_count(s->tensor);
    for (int d = 0; d < s->tensor->rank; d++) {
        below /= s->tensor->shape[d];
        used += (size_t)snprintf(c->worst_name + used, sizeof c->worst_name - used, "%s%lld",
                                 d ? "," : "", (long long)(i / below % s->tensor->shape[d]));
    }
    snprintf(c->worst_name + used, sizeof c->worst_name - used, "]");
}

static ls_status check_element(checker *c, const subject *s, int64_t i)
{
    double analytic = (double)s->grads[i], before = 0, best = INFINITY, best_numeric = 0;
    for (int k = 0; k < STEPS && !(best <= 1); k++) {
        double step = steps[k] * s->scale, now;
        LS_TRY(central_difference(c, &s->values[i], step, &now));
        double ratio = k ? steps[k - 1] / steps[k] : 0, square = ratio * ratio;
        double candidates[] = { now, k ? (square * now - before) / (square - 1) : now };
        double noise = FLT_EPSILON * c->magnitude / step;
        for (int n = 0; n < 2; n++) {
            double scale = fmax(fmax(fabs(analytic), fabs(candidates[n])), s->largest);
            double off = fabs(candidates[n] - analytic) / (c->tolerance * scale + noise);
            if (off < best) {
                best = off;
                best_numeric = candidates[n];
            }
        }
        before = now;
    }
    remember(c, s, i, isfinite(analytic) ? best : INFINITY, best_numeric);
    return LS_OK;
}

/* The index of the largest gradient below that of `before`; ties by index. -1 = no more. */
static int64_t next_largest(const subject *s, int64_t before)
{
    int64_t count = ls__tensor_count(s->tensor), best = -1;
    for (int64_t i = 0; i < count; i++) {
        float value = fabsf(s->grads[i]), limit = before < 0 ? 0 : fabsf(s->grads[before]);
        bool after = before < 0 || value < limit || (value == limit && i > before);
        if (after && (best < 0 || value > fabsf(s->grads[best]))) best = i;
    }
    return best;
}

static ls_status check_subject(checker *c, subject *s, const float *grads)
{
    int64_t count = ls__tensor_count(s->tensor), at = -1;
    double squares = 0;
    s->grads = ls__alloc((size_t)count, sizeof *s->grads);
    if (!s->grads) return LS_ERR_MEMORY;
    memcpy(s->grads, grads, (size_t)count * sizeof *grads);
    s->largest = 0;
    for (int64_t i = 0; i < count; i++) {
        s->largest = fmax(s->largest, fabs((double)grads[i]));
        squares += (double)s->values[i] * (double)s->values[i];
    }
    s->scale = fmax(sqrt(squares / (double)count), 0.05);
    ls_rng rng;
    ls__rng_init(&rng, 1, "gradient check", (uint64_t)count, 0);
    ls_status status = LS_OK;
    for (int n = 0; n < LARGEST && status == LS_OK; n++) {
        at = next_largest(s, at);
        if (at < 0) break; /* fewer elements than that */
        status = check_element(c, s, at);
    }
    for (int n = 0; n < RANDOM && status == LS_OK; n++)
        status = check_element(c, s, ls_rng_below(&rng, count));
    ls__free(s->grads);
    return status;
}

static ls_status check_params(checker *c)
{
    const ls__graph_param *params;
    int n = ls__graph_params(c->graph, &params);
    float *grads = ls__alloc((size_t)c->nparams + 1, sizeof *grads); /* runs overwrite them */
    if (!grads) return LS_ERR_MEMORY;
    memcpy(grads, c->grads, (size_t)c->nparams * sizeof *grads);
    ls_status status = LS_OK;
    for (int i = 0; i < n && status == LS_OK; i++) {
        if (params[i].role != LS__ROLE_PARAM) continue;
        subject s = { .tensor = params[i].tensor, .values = c->params + c->offsets[i] };
        snprintf(s.name, sizeof s.name, "parameter %.100s", params[i].name);
        status = check_subject(c, &s, grads + c->offsets[i]);
    }
    ls__free(grads);
    return status;
}

static ls_status check_inputs(checker *c)
{
    static const char prefix[] = "gradient of ";
    const ls__graph_result *results;
    ls_tensor *const *tensors;
    const ls__graph_options *o = ls__graph_options_of(c->graph);
    int n = ls__graph_results(c->graph, &results), ntensors = ls__graph_tensors(c->graph, &tensors);
    for (int i = 0; i < n; i++) {
        if (results[i].kind != LS__RESULT_OUTPUT) continue;
        for (int k = 0; k < ntensors; k++) {
            const ls_tensor *x = tensors[k];
            if (x->role != LS__ROLE_INPUT ||
                strcmp(results[i].name + strlen(prefix), o->fields[x->slot].name) != 0)
                continue;
            subject s = { .tensor = x, .values = c->fields[x->slot] };
            snprintf(s.name, sizeof s.name, "input %.100s", o->fields[x->slot].name);
            const float *grads;
            LS_TRY(c->backend->run(c->executable, &c->context));
            LS_TRY(read_floats(c, results[i].values[0], &grads));
            LS_TRY(check_subject(c, &s, grads));
        }
    }
    return LS_OK;
}

ls_status ls_gradient_check(ls_step_fn *step, void *user, ls_dataset *data, double tolerance)
{
    if (!data || !(tolerance > 0))
        return ls_fail(LS_ERR_ARG, "ls_gradient_check: needs data and a tolerance above 0");
    checker c = { .tolerance = tolerance };
    ls_status status;
    LS_TRY_GOTO(build(&c, step, user, data), status, done);
    LS_TRY_GOTO(first_run(&c), status, done);
    LS_TRY_GOTO(check_params(&c), status, done);
    LS_TRY_GOTO(check_inputs(&c), status, done);
    if (c.worst > 1)
        status = ls_fail(LS_ERR_ARG,
                         "ls_gradient_check: %s is furthest off: its gradient is %g, finite "
                         "differences say %g (%.1f times what a tolerance of %g allows)",
                         c.worst_name, c.worst_analytic, c.worst_numeric, c.worst, tolerance);
done:
    release(&c);
    return status;
}
