/* Operations of the user's in a graph of ours; the pool's chunk loop; every allocation that
 * compiling makes failing once. */
#include "compare.h"
#include "testing.h"

#include <lockstep/nn.h>

#include "base/memory.h"

/* --- y = -3 x, which ls_scale computes too --- */

static ls_status same_shape(const ls_op_call *call, ls_array *out)
{
    out[0] = call->in[0];
    return LS_OK;
}

static int64_t row_of(const ls_array *x)
{
    return ls_array_count(x) / (x->rank ? x->shape[0] : 1);
}

static void minus_three_compute(const ls_op_call *call)
{
    const float *x = call->in[0].data;
    float *y = call->out->data;
    int64_t each = row_of(&call->in[0]);
    for (int64_t i = call->begin * each; i < call->end * each; i++) y[i] = -3 * x[i];
}

static void minus_three_gradient(ls_graph *g, ls_tensor *const *in, ls_tensor *out, ls_tensor *grad,
                                 const void *attributes, ls_tensor **grads_in);

static const ls_op minus_three = { .name = "minus_three",
                                   .shape = same_shape,
                                   .compute = minus_three_compute,
                                   .gradient = minus_three_gradient };

static void minus_three_gradient(ls_graph *g, ls_tensor *const *in, ls_tensor *out, ls_tensor *grad,
                                 const void *attributes, ls_tensor **grads_in)
{
    (void)g, (void)in, (void)out, (void)attributes;
    grads_in[0] = ls_apply(&minus_three, NULL, 0, &grad, 1);
}

/* --- rows in reverse order: reads rows of other tiles --- */

static void reverse_compute(const ls_op_call *call)
{
    int64_t rows = call->out->shape[0], each = row_of(call->out);
    for (int64_t r = call->begin; r < call->end; r++)
        memcpy((float *)call->out->data + r * each,
               (const float *)call->in[0].data + (rows - 1 - r) * each, (size_t)each * 4);
}

static void reverse_gradient(ls_graph *g, ls_tensor *const *in, ls_tensor *out, ls_tensor *grad,
                             const void *attributes, ls_tensor **grads_in);

static const ls_op reverse = {
    .name = "reverse", .shape = same_shape, .compute = reverse_compute, .gradient = reverse_gradient
};

static void reverse_gradient(ls_graph *g, ls_tensor *const *in, ls_tensor *out, ls_tensor *grad,
                             const void *attributes, ls_tensor **grads_in)
{
    (void)g, (void)in, (void)out, (void)attributes;
    grads_in[0] = ls_apply(&reverse, NULL, 0, &grad, 1);
}

typedef struct variant {
    bool own; /* the user's operations, else ours of the same meaning */
} variant;

static ls_tensor *three(ls_tensor *x, bool own)
{
    return own ? ls_apply(&minus_three, NULL, 0, &x, 1) : ls_scale(x, -3, 0);
}

static ls_tensor *twice_reversed(ls_tensor *x, bool own)
{
    if (!own) return x;
    x = ls_apply(&reverse, NULL, 0, &x, 1);
    return ls_apply(&reverse, NULL, 0, &x, 1);
}

static void model(ls_graph *g, void *user)
{
    const variant *v = user;
    ls_conv2d_options conv = { .channels = 20, .kernel = 3, .padding = 1 };
    ls_tensor *x = ls_relu(ls_conv2d(ls_input(g, "image"), "conv1", &conv));
    x = three(twice_reversed(x, v->own), v->own);
    x = ls_max_pool2d(ls_conv2d(x, "conv2", &conv), 2);
    ls_tensor *z = three(ls_linear(twice_reversed(x, v->own), "fc", 5), v->own);
    ls_output(g, "scores", z);
    ls_minimize(g, ls_cross_entropy(z, ls_input(g, "label")), NULL);
}

static const ls_field fields[] = { { "image", LS_DTYPE_F32, 3, { 3, 8, 8 } },
                                   { "label", LS_DTYPE_I32, 0, { 0 } } };

static void test_user_ops(void **state)
{
    (void)state;
    static const int64_t batches[] = { 1, 67, 130 };
    for (size_t b = 0; b < compare_batches(3); b++) {
        variant own = { true }, ours = { false };
        compare_options o = {
            .step = model, .batch = batches[b], .fields = fields, .nfields = 2, .classes = 5
        };
        o.user = &own;
        outcome left = compare_run_backend(&o);
        o.user = &ours;
        outcome right = compare_run_backend(&o);
        assert_int_equal(left.count, right.count);
        assert_int_equal(left.nresults, right.nresults);
        assert_memory_equal(left.results, right.results, (size_t)left.nresults * sizeof(float));
        assert_memory_equal(left.grads, right.grads, (size_t)left.count * sizeof(float));
        compare_free(&left);
        compare_free(&right);
    }
}

/* --- failures --- */

static void test_allocations(void **state)
{
    (void)state;
    variant own = { true };
    ls__graph_options options = { .batch = 67, .fields = fields, .nfields = 2 };
    ls_graph *g;
    ls__executable *e = NULL;
    assert_ok(ls__graph_build(model, &own, &options, &g));
    int failures = 0;
    for (long n = 1; !e; n++) {
        ls__alloc_fail_at(n);
        ls_status status = compare_backend(2)->compile(g, &e);
        ls__alloc_fail_at(0);
        if (status == LS_OK) break;
        assert_int_equal(status, LS_ERR_MEMORY);
        assert_null(e);
        failures++;
    }
    assert_true(failures > 20);
    compare_backend(2)->destroy(e);
    compare_backend(2)->destroy(NULL);
    ls__graph_destroy(g);
}

static void count_chunk(void *context, int64_t chunk)
{
    __atomic_add_fetch((int *)context + chunk, 1, __ATOMIC_RELAXED);
}

static void test_parallel(void **state)
{
    (void)state;
    for (int64_t n = 0; n < 40; n++) {
        int counts[40] = { 0 };
        compare_backend(2)->parallel(n, count_chunk, counts);
        for (int i = 0; i < 40; i++) assert_int_equal(counts[i], i < n);
    }
}

static int open_backend(void **state)
{
    (void)state;
    compare_backend(2);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_user_ops),
        cmocka_unit_test(test_allocations),
        cmocka_unit_test(test_parallel),
    };
    return cmocka_run_group_tests(tests, open_backend, NULL);
}
