/* Comparing a backend with the reference executor: same graph, same inputs, same parameters. */
#include "compare.h"
#include "testing.h"

#include <math.h>

#include <xxhash.h>

#include "base/random.h"
#include "graph/ops.h"

enum { GUARD = 64 }; /* floats behind every guarded array */
static const float sentinel = -123456.75f;

typedef struct setup {
    const compare_options *o;
    ls_graph *graph;
    const ls__graph_param *params;
    int nparams;
    int64_t *offsets; /* (params) */
    int64_t count;    /* of the flat space */
    float *params_block, *grads_block;
    float *space, *grads; /* moved by misaligned */
    void **blocks, **fields;
    ls__executable *e;
    char *arena;
    size_t arena_bytes;
    ls__run_context context;
} setup;

const ls__backend *compare_backend(int threads)
{
    static const ls__backend *backend;
    const char *name = getenv("LS_TEST_BACKEND");
    if (!backend) assert_ok(ls__backend_open(name ? name : "cpu", threads, &backend));
    return backend;
}

bool compare_on_cpu(void)
{
    return strcmp(compare_backend(1)->name, "cpu") == 0;
}

bool compare_in_full(void)
{
#ifdef __SANITIZE_ADDRESS__
    return getenv("LS_LONG") != NULL;
#else
    return true;
#endif
}

size_t compare_memory(const ls__executable *e)
{
    const ls__backend *backend = compare_backend(1);
    return backend->device_bytes ? backend->device_bytes(e) : backend->arena_bytes(e);
}

size_t compare_batches(size_t n)
{
    if (strcmp(compare_backend(1)->name, "sim") != 0) return n;
#ifdef __SANITIZE_ADDRESS__
    return n > 2 ? n - 2 : 1;
#else
    return n - 1;
#endif
}

static int64_t field_count(const ls_field *field, int64_t batch)
{
    int64_t count = batch;
    for (int i = 0; i < field->rank; i++) count *= field->shape[i];
    return count;
}

/* The value of element i of a field. */
static double field_value(const setup *s, int field, int64_t i)
{
    ls_rng rng;
    const ls_field *f = &s->o->fields[field];
    ls__rng_init(&rng, 11, "field", (uint64_t)field, (uint64_t)i);
    if (f->type == LS_DTYPE_F32) return (double)(float)(2 * ls_rng_uniform(&rng) - 1);
    if (strcmp(f->name, "label") != 0)
        return (double)ls_rng_below(&rng, s->o->tokens ? s->o->tokens : 256);
    if (s->o->ignored && i % s->o->ignored == s->o->ignored - 1 && f->type != LS_DTYPE_U8)
        return LS__LABEL_IGNORED;
    return s->o->first_label + (double)ls_rng_below(&rng, s->o->classes ? s->o->classes : 10);
}

static void fill_field(const setup *s, int field)
{
    int64_t n = field_count(&s->o->fields[field], s->o->batch);
    void *to = s->fields[field];
    for (int64_t i = 0; i < n; i++) {
        double v = field_value(s, field, i);
        switch (s->o->fields[field].type) {
        case LS_DTYPE_F32:
            ((float *)to)[i] = (float)v;
            break;
        case LS_DTYPE_U8:
            ((uint8_t *)to)[i] = (uint8_t)v;
            break;
        case LS_DTYPE_I32:
            ((int32_t *)to)[i] = (int32_t)v;
            break;
        case LS_DTYPE_I64:
            ((int64_t *)to)[i] = (int64_t)v;
            break;
        default:
            fail_msg("field type %d", s->o->fields[field].type);
        }
    }
}

static double param_value(const ls__graph_param *p, int index, int64_t i)
{
    ls_rng rng;
    ls__rng_init(&rng, 12, "param", (uint64_t)index, (uint64_t)i);
    double u = 2 * ls_rng_uniform(&rng) - 1;
    bool variance = strstr(p->name, "running_var") != NULL;
    int64_t fan = 1;
    for (int k = 1; k < p->tensor->rank; k++) fan *= p->tensor->shape[k];
    return (double)(float)(variance ? 1.5 + u : u / sqrt((double)fan));
}

static void lay_out_space(setup *s)
{
    s->nparams = ls__graph_params(s->graph, &s->params);
    s->offsets = calloc((size_t)s->nparams + 1, sizeof *s->offsets);
    for (int i = 0; i < s->nparams; i++) {
        s->offsets[i] = s->count;
        s->count += (reference_count(s->params[i].tensor) + GUARD + 15) / 16 * 16;
    }
    size_t floats = (size_t)s->count + GUARD;
    s->params_block = aligned_alloc(64, (floats * sizeof(float) + 127) / 64 * 64);
    s->grads_block = aligned_alloc(64, (floats * sizeof(float) + 127) / 64 * 64);
    s->space = s->params_block + s->o->misaligned;
    s->grads = s->grads_block + s->o->misaligned;
    for (int64_t i = 0; i < s->count; i++) s->space[i] = s->grads[i] = sentinel;
    for (int i = 0; i < s->nparams; i++)
        for (int64_t k = 0; k < reference_count(s->params[i].tensor); k++)
            s->space[s->offsets[i] + k] = (float)param_value(&s->params[i], i, k);
}

static void lay_out_fields(setup *s)
{
    const compare_options *o = s->o;
    s->blocks = calloc((size_t)o->nfields, sizeof *s->blocks);
    s->fields = calloc((size_t)o->nfields, sizeof *s->fields);
    for (int i = 0; i < o->nfields; i++) {
        size_t nbytes = (size_t)field_count(&o->fields[i], o->batch) * 8 + 64;
        size_t moved = (size_t)o->misaligned * ls_dtype_size(o->fields[i].type);
        s->blocks[i] = malloc(nbytes + moved);
        s->fields[i] = (char *)s->blocks[i] + moved;
        fill_field(s, i);
    }
}

static void set_up(setup *s, const compare_options *o)
{
    *s = (setup) { .o = o };
    ls__graph_options options = { .stage = o->stage,
                                  .batch = o->batch,
                                  .fields = o->fields,
                                  .nfields = o->nfields,
                                  .precision = o->precision,
                                  .deterministic = !o->loose,
                                  .input_gradients = o->input_gradients };
    assert_ok(ls__graph_build(o->step, o->user, &options, &s->graph));
    lay_out_space(s);
    lay_out_fields(s);
    assert_ok(compare_backend(1)->compile(s->graph, &s->e));
    s->arena_bytes = compare_backend(1)->arena_bytes(s->e);
    s->arena = aligned_alloc(64, (s->arena_bytes + GUARD * sizeof(float) + 63) / 64 * 64);
    memset(s->arena, 0xff, s->arena_bytes); /* NaN: nothing may be read before it is written */
    for (int i = 0; i < GUARD; i++) memcpy(s->arena + s->arena_bytes + 4 * i, &sentinel, 4);
    s->context = (ls__run_context) { .params = s->space,
                                     .grads = s->grads,
                                     .offsets = s->offsets,
                                     .fields = s->fields,
                                     .arena = s->arena,
                                     .seed = 5,
                                     .step = o->run_step,
                                     .first = o->first,
                                     .grad_seed = 1 };
}

static void tear_down(setup *s)
{
    compare_backend(1)->destroy(s->e);
    ls__graph_destroy(s->graph);
    free(s->arena);
    free(s->params_block);
    free(s->grads_block);
    for (int i = 0; i < s->o->nfields; i++) free(s->blocks[i]);
    free(s->blocks);
    free(s->fields);
    free(s->offsets);
}

static void check_sentinels(const setup *s)
{
    for (int i = 0; i < GUARD; i++)
        if (memcmp(s->arena + s->arena_bytes + 4 * i, &sentinel, 4) != 0)
            fail_msg("float %d behind the arena was written", i);
    for (int i = 0; i < s->nparams; i++) {
        int64_t n = reference_count(s->params[i].tensor);
        int64_t end = i + 1 < s->nparams ? s->offsets[i + 1] : s->count;
        for (int64_t k = s->offsets[i] + n; k < end; k++)
            if (s->grads[k] != sentinel)
                fail_msg("gradient of %s: float %lld behind it was written", s->params[i].name,
                         (long long)(k - s->offsets[i] - n));
    }
}

/* --- outcomes --- */

static void append(outcome *o, const ls_array *a)
{
    int64_t n = ls_array_count(a);
    assert_int_equal(a->type, LS_DTYPE_F32);
    o->results = realloc(o->results, (size_t)(o->nresults + n + 1) * sizeof(float));
    memcpy(o->results + o->nresults, a->data, (size_t)n * sizeof(float));
    o->nresults += n;
}

static void read_results(setup *s, outcome *o)
{
    const ls__graph_result *results;
    int n = ls__graph_results(s->graph, &results);
    for (int i = 0; i < n; i++) {
        for (int k = 0; k <= results[i].nvalues; k++) {
            const ls_tensor *x = k < results[i].nvalues ? results[i].values[k] : results[i].weights;
            ls_array a;
            if (!x || x->type != LS_DTYPE_F32) continue;
            assert_ok(compare_backend(1)->read(s->e, &s->context, x, &a));
            append(o, &a);
        }
    }
}

static outcome run_backend(setup *s)
{
    outcome o = { .memory = compare_memory(s->e) };
    assert_ok(compare_backend(1)->run(s->e, &s->context));
    check_sentinels(s);
    read_results(s, &o);
    if (s->o->stage != LS_STAGE_TRAIN) return o;
    for (int i = 0; i < s->nparams; i++) {
        int64_t n = reference_count(s->params[i].tensor);
        o.grads = realloc(o.grads, (size_t)(o.count + n + 1) * sizeof(float));
        memcpy(o.grads + o.count, s->grads + s->offsets[i], (size_t)n * sizeof(float));
        o.count += n;
    }
    return o;
}

outcome compare_run_backend(const compare_options *options)
{
    setup s;
    set_up(&s, options);
    outcome first = run_backend(&s);
    for (int64_t i = 0; i < s.count; i++) s.grads[i] = sentinel;
    outcome second = run_backend(&s); /* nothing stays from the first run */
    if (compare_checksum(&first) != compare_checksum(&second))
        fail_msg("a second run has other bits");
    compare_free(&second);
    tear_down(&s);
    return first;
}

void compare_free(outcome *o)
{
    free(o->grads);
    free(o->results);
}

uint64_t compare_checksum(const outcome *o)
{
    uint64_t sum = XXH3_64bits(o->grads, (size_t)o->count * sizeof(float));
    return XXH3_64bits_withSeed(o->results, (size_t)o->nresults * sizeof(float), sum);
}

void compare_run_fails(const compare_options *options, int32_t bad_label, int64_t at,
                       ls_status status, const char *text)
{
    setup s;
    set_up(&s, options);
    for (int i = 0; i < options->nfields; i++)
        if (options->fields[i].type == LS_DTYPE_I32) ((int32_t *)s.fields[i])[at] = bad_label;
    assert_fails(compare_backend(1)->run(s.e, &s.context), status, text);
    tear_down(&s);
}

/* --- the reference --- */

static reference *run_reference(const setup *s)
{
    reference *r = reference_create(s->graph);
    ls_tensor *const *tensors;
    int n = ls__graph_tensors(s->graph, &tensors);
    r->seed = 5;
    r->step = s->o->run_step;
    r->first = s->o->first;
    r->on_gpus = !compare_on_cpu();
    for (int i = 0; i < n; i++) {
        double *to = reference_of(r, tensors[i]);
        if (tensors[i]->role == LS__ROLE_INPUT)
            for (int64_t k = 0; k < reference_count(tensors[i]); k++)
                to[k] = field_value(s, tensors[i]->slot, k);
        if (tensors[i]->role == LS__ROLE_PARAM || tensors[i]->role == LS__ROLE_STATISTIC)
            for (int64_t k = 0; k < reference_count(tensors[i]); k++)
                to[k] = param_value(&s->params[tensors[i]->slot], tensors[i]->slot, k);
    }
    assert_ok(reference_run(r));
    return r;
}

static void check_close(const char *what, const float *got, const double *want, int64_t n,
                        double tolerance)
{
    double most = 1e-2; /* values are of order 1: smaller ones are differences */
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(want[i]));
    for (int64_t i = 0; i < n; i++) {
        bool both_nan = isnan(want[i]) && isnan(got[i]);
        if (!both_nan && !(fabs((double)got[i] - want[i]) <= tolerance * most))
            fail_msg("%s: element %lld of %lld is %.9g, the reference has %.9g (largest %.3g)",
                     what, (long long)i, (long long)n, (double)got[i], want[i], most);
    }
}

static void check_gradients(const setup *s, reference *r, double tolerance)
{
    for (int i = 0; i < s->nparams; i++) {
        int64_t n = reference_count(s->params[i].tensor);
        const ls_tensor *grad = s->params[i].grad;
        double *zeros = calloc((size_t)n, sizeof *zeros);
        check_close(s->params[i].name, s->grads + s->offsets[i],
                    grad ? reference_of(r, grad) : zeros, n, tolerance);
        free(zeros);
    }
}

static void check_results(setup *s, reference *r, double tolerance)
{
    const ls__graph_result *results;
    int n = ls__graph_results(s->graph, &results);
    for (int i = 0; i < n; i++) {
        for (int k = 0; k <= results[i].nvalues; k++) {
            const ls_tensor *x = k < results[i].nvalues ? results[i].values[k] : results[i].weights;
            ls_array a;
            if (!x || x->type != LS_DTYPE_F32) continue;
            assert_ok(compare_backend(1)->read(s->e, &s->context, x, &a));
            check_close(results[i].name ? results[i].name : "loss", a.data, reference_of(r, x),
                        ls_array_count(&a), tolerance);
        }
    }
}

void compare_with_reference(const compare_options *o)
{
    setup s;
    set_up(&s, o);
    assert_ok(compare_backend(1)->run(s.e, &s.context));
    check_sentinels(&s);
    reference *r = run_reference(&s);
    double tolerance = o->tolerance != 0 ? o->tolerance : 2e-5;
    check_results(&s, r, tolerance);
    if (o->stage == LS_STAGE_TRAIN) check_gradients(&s, r, tolerance);
    reference_destroy(r);
    tear_down(&s);
}
