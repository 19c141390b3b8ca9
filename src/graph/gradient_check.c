/* ls_gradient_check: the gradients that a backend computes against differences of its own losses.
 *
 * f32 losses have some 1e-7 of noise, which a difference divides by the step, so steps must be
 * large; but then networks of relus have corners on the way, and the slope in the middle is not the
 * difference. So what is compared with the difference between two points is the mean of the
 * gradients along the way (Simpson's rule; every run gives the gradient anyway), on as many points
 * as it takes. Where corners remain, the variation between neighbouring points is allowed for. Some
 * elements of each parameter on a few samples are enough to find a wrong rule; this runs once,
 * before a training. */
#include "graph/construct.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "base/random.h"
#include "graph/backend.h"

enum { MAX_SAMPLES = 4, ALL = 32, LARGEST = 4, RANDOM = 12, ALIGNMENT = 64, CELLS = 16 };
static const double relative_step = 0.02; /* to each side; of the root mean square of the values */

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

/* --- one element, one tensor, all of them --- */

typedef struct subject {
    char name[128];
    const ls_tensor *tensor;
    const ls_tensor *gradient; /* of an input; NULL = a parameter's, in space */
    float *values;             /* (count) moved here */
    const float *space;        /* (count) gradients of the last run */
    float *grads;              /* (count) those of the first run */
    double largest;            /* of |grads| */
    double scale;              /* of the values */
} subject;

static void remember(checker *c, const subject *s, int64_t i, double off, double analytic,
                     double numeric)
{
    if (off <= c->worst) return;
    c->worst = off;
    c->worst_analytic = analytic;
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

/* The objective and the element's gradient with the element moved. */
static ls_status probe(checker *c, const subject *s, int64_t i, double move, double *value,
                       double *gradient)
{
    float kept = s->values[i];
    const float *grads = s->space;
    s->values[i] = (float)((double)kept + move);
    ls_status status = objective(c, value);
    if (status == LS_OK && s->gradient) status = read_floats(c, s->gradient, &grads);
    if (status == LS_OK) *gradient = (double)grads[i];
    s->values[i] = kept;
    return status;
}

/* Simpson's mean of the gradients at every stride-th of CELLS + 1 points. */
static double mean_gradient(const double *gradients, int stride)
{
    double sum = 0;
    for (int k = 0; k < CELLS; k += 2 * stride)
        sum += gradients[k] + 4 * gradients[k + stride] + gradients[k + 2 * stride];
    return sum * stride / (3.0 * CELLS);
}

/* What corners between the points can change in the mean. */
static double variation(const double *gradients)
{
    double sum = 0;
    for (int k = 0; k < CELLS; k++) sum += fabs(gradients[k + 1] - gradients[k]);
    return sum / (2.0 * CELLS);
}

static ls_status check_element(checker *c, const subject *s, int64_t i)
{
    double gradients[CELLS + 1], values[CELLS + 1], off = INFINITY, mean = 0, numeric = 0;
    double step = relative_step * s->scale, kept = (double)s->values[i];
    double high = (double)(float)(kept + step), low = (double)(float)(kept - step);
    gradients[CELLS / 2] = (double)s->grads[i];
    for (int stride = CELLS / 2; stride >= 1 && !(off <= 1); stride /= 2) {
        for (int k = 0; k <= CELLS; k += stride) {
            bool known = stride == CELLS / 2 ? k == CELLS / 2 : k % (2 * stride) == 0;
            double move = step * (2 * k - CELLS) / CELLS;
            if (!known) LS_TRY(probe(c, s, i, move, &values[k], &gradients[k]));
        }
        numeric = (values[CELLS] - values[0]) / (high - low);
        mean = mean_gradient(gradients, stride);
        double allowed = c->tolerance * fmax(fmax(fabs(mean), fabs(numeric)), s->largest) +
                         FLT_EPSILON * c->magnitude / step;
        if (stride == 1) allowed += variation(gradients);
        off = fabs(numeric - mean) / allowed;
    }
    remember(c, s, i, isnan(off) ? INFINITY : off, mean, numeric);
    return LS_OK;
}

/* The index of the largest gradient below that of `before`; ties by index. -1 = the first. */
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

static ls_status check_all(checker *c, const subject *s)
{
    for (int64_t i = 0; i < ls__tensor_count(s->tensor); i++) LS_TRY(check_element(c, s, i));
    return LS_OK;
}

/* The largest gradients and some at random. */
static ls_status check_some(checker *c, const subject *s)
{
    int64_t count = ls__tensor_count(s->tensor), at = -1;
    ls_rng rng;
    ls__rng_init(&rng, 1, "gradient check", (uint64_t)count, 0);
    for (int n = 0; n < LARGEST; n++) {
        at = next_largest(s, at);
        LS_TRY(check_element(c, s, at));
    }
    for (int n = 0; n < RANDOM; n++) LS_TRY(check_element(c, s, ls_rng_below(&rng, count)));
    return LS_OK;
}

/* grads: (count) of the first run. */
static ls_status check_subject(checker *c, subject *s, const float *grads)
{
    int64_t count = ls__tensor_count(s->tensor);
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
    ls_status status = count <= ALL ? check_all(c, s) : check_some(c, s);
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
        subject s = { .tensor = params[i].tensor,
                      .values = c->params + c->offsets[i],
                      .space = c->grads + c->offsets[i] };
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
            subject s = { .tensor = x,
                          .gradient = results[i].values[0],
                          .values = c->fields[x->slot] };
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
    if (c.worst <= 1) LS_TRY_GOTO(check_inputs(&c), status, done);
    if (c.worst > 1)
        status = ls_fail(LS_ERR_ARG,
                         "ls_gradient_check: %s is furthest off: its gradient is %g, finite "
                         "differences say %g (%.1f times what a tolerance of %g allows)",
                         c.worst_name, c.worst_analytic, c.worst_numeric, c.worst, tolerance);
done:
    release(&c);
    return status;
}
