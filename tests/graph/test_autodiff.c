/* Gradients of every operation's rule and of whole networks against central differences, both in
 * double precision by the reference executor: the rules are right or wrong by orders of magnitude.
 */
#include "testing.h"

#include <math.h>

#include <lockstep/nn.h>

#include "differences.h"
#include "graph/ops.h"

enum { CLASSES = 5 };

static const ls_field fields[] = {
    { "image", LS_DTYPE_F32, 3, { 2, 7, 6 } }, { "x", LS_DTYPE_F32, 1, { 8 } },
    { "label", LS_DTYPE_I32, 0, { 0 } },       { "map", LS_DTYPE_I64, 1, { 3 } },
    { "weight", LS_DTYPE_F32, 0, { 0 } },
};

static void check(ls_step_fn *step, int64_t batch, int checked)
{
    differences_check(step, NULL, batch, fields, sizeof fields / sizeof *fields, checked);
}

static void classify(ls_graph *g, ls_tensor *features)
{
    ls_minimize(g, ls_cross_entropy(ls_linear(features, "head", CLASSES), ls_input(g, "label")),
                NULL);
}

static void mlp(ls_graph *g, void *user)
{
    (void)user;
    classify(g, ls_relu(ls_linear(ls_input(g, "x"), "fc1", 6)));
}

static void test_mlp(void **state)
{
    (void)state;
    check(mlp, 1, 5);
    check(mlp, 7, 5);
}

static void convolutions(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *x = ls_input(g, "image");
    x = ls_conv2d(x, "a", &(ls_conv2d_options) { .channels = 3, .kernel = 3, .padding = 1 });
    x = ls_conv2d(ls_relu(x), "b",
                  &(ls_conv2d_options) {
                      .channels = 2, .kernel = 2, .stride = 2, .padding = 1, .no_bias = true });
    classify(g, x);
}

static void test_convolutions(void **state)
{
    (void)state;
    check(convolutions, 3, 6);
}

static void pools(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *x = ls_input(g, "image"); /* 7 x 6: a rest at the edge for 2 and for 4 */
    ls_tensor *max = ls_flatten(ls_max_pool2d(x, 2));
    ls_tensor *avg = ls_flatten(ls_avg_pool2d(x, 4));
    ls_tensor *all = ls_add(ls_linear(max, "max", 3), ls_linear(avg, "avg", 3));
    classify(g, ls_add(all, ls_linear(ls_global_avg_pool2d(x), "global", 3)));
}

static void test_pools(void **state)
{
    (void)state;
    check(pools, 2, 9);
}

static void norms(ls_graph *g, void *user)
{
    (void)user;
    ls_batch_norm_options of_three = { .group = 3 };
    ls_tensor *x = ls_batch_norm_with(ls_input(g, "image"), "norm1", &of_three);
    ls_tensor *y = ls_batch_norm_with(ls_linear(x, "fc1", 4), "norm2", &of_three);
    classify(g, ls_mul(y, y));
}

static void test_batch_norm_by_groups(void **state)
{
    (void)state;
    check(norms, 7, 9); /* groups of 3, 3 and 1 */
}

static void residual(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *x = ls_conv2d(ls_input(g, "image"), "stem",
                             &(ls_conv2d_options) { .channels = 3, .kernel = 1 });
    ls_tensor *y = x;
    for (int i = 0; i < 2; i++) {
        y = ls_conv2d(
            y, ls_name(g, "conv%d", i),
            &(ls_conv2d_options) { .channels = 3, .kernel = 3, .padding = 1, .no_bias = true });
        y = ls_batch_norm(ls_relu(y), ls_name(g, "norm%d", i));
    }
    classify(g, ls_global_avg_pool2d(ls_relu(ls_add(x, y))));
}

static void test_residual_block(void **state)
{
    (void)state;
    check(residual, 3, 11);
}

static void elementwise(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *x = ls_input(g, "x");
    ls_tensor *y = ls_mul(ls_scale(x, 0.5f, 0.25f), ls_dropout(x, "drop", 0.4));
    y = ls_add(y, ls_scale(ls_scale(x, 1, 2), -3, 1));
    y = ls_reshape(ls_reshape(y, 3, (int64_t[]) { -1, 2, 4 }), 2,
                   (int64_t[]) { ls_tensor_dim(x, 0), 8 });
    float table[8 * 5];
    for (int i = 0; i < 40; i++) table[i] = 0.1f * (float)i;
    y = ls_mul(y, ls_constant(g, table, 2, (int64_t[]) { 5, 8 }));
    classify(g, y);
}

static void test_elementwise_dropout_reshape_constant(void **state)
{
    (void)state;
    check(elementwise, 5, 3);
}

/* One matrix three times, and a parameter that is used as it is. */
static void tied(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *x = ls_input(g, "x");
    for (int i = 0; i < 3; i++) x = ls_relu(ls_linear(x, "shared", 8));
    ls_init init = { .kind = LS_INIT_NORMAL, .scale = 1 };
    ls_tensor *p = ls_param(g, "p", &init, 2, (int64_t[]) { 3, 8 });
    ls_tensor *q = ls_param(g, "q", &init, 2, (int64_t[]) { 3, 8 });
    classify(g, ls_add(x, ls_add(p, q)));
}

static void test_tied_parameters(void **state)
{
    (void)state;
    check(tied, 3, 7);
}

static void weighted(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *scores = ls_linear(ls_input(g, "x"), "fc", 3 * CLASSES);
    scores = ls_reshape(scores, 3, (int64_t[]) { ls_tensor_dim(scores, 0), 3, CLASSES });
    ls_tensor *losses = ls_cross_entropy(scores, ls_input(g, "map")); /* (B,3), some ignored */
    ls_tensor *each = ls_reshape(ls_scale(losses, 2, 0), 1, (int64_t[]) { -1 });
    float weights[12];
    for (int i = 0; i < 12; i++) weights[i] = 0.5f + 0.1f * (float)i;
    ls_minimize(g, each, ls_constant(g, weights, 1, (int64_t[]) { 12 }));
}

static void test_weights_and_ignored_targets(void **state)
{
    (void)state;
    check(weighted, 4, 3);
    ls__graph_options options = {
        .stage = LS_STAGE_TRAIN, .batch = 4, .fields = fields, .nfields = 5
    };
    ls_graph *g;
    assert_ok(ls__graph_build(weighted, NULL, &options, &g));
    reference *r = differences_prepare(g);
    differences_objective(r);
    const double *w = reference_of(r, reference_result(g, "loss")->weights);
    for (int i = 0; i < 12; i++) /* weights are the product; every fourth target is ignored */
        assert_true(fabs(w[i] - (i % 4 == 3 ? 0 : 0.5 + 0.1 * i)) < 1e-6);
    reference_destroy(r);
    ls__graph_destroy(g);
}

/* --- an operation of the user's --- */

static ls_status same(const ls_op_call *c, ls_array *out)
{
    *out = c->in[0];
    return LS_OK;
}

static void square_compute(const ls_op_call *c)
{
    const float *x = c->in[0].data;
    float *y = c->out->data;
    int64_t row = c->in[0].shape[1];
    for (int64_t i = c->begin * row; i < c->end * row; i++) y[i] = x[i] * x[i];
}

static void square_gradient(ls_graph *g, ls_tensor *const *in, ls_tensor *out, ls_tensor *grad,
                            const void *attributes, ls_tensor **grads_in)
{
    (void)g, (void)out, (void)attributes;
    grads_in[0] = ls_mul(grad, ls_scale(in[0], 2, 0));
}

static const ls_op square = {
    .name = "square", .shape = same, .compute = square_compute, .gradient = square_gradient
};
static const ls_op rounding = { .name = "rounding", .shape = same, .compute = square_compute };

static void transposed_gradient(ls_graph *g, ls_tensor *const *in, ls_tensor *out, ls_tensor *grad,
                                const void *attributes, ls_tensor **grads_in)
{
    (void)g, (void)in, (void)out, (void)attributes;
    grads_in[0] = ls_reshape(grad, 1, (int64_t[]) { -1 });
}

static const ls_op wrong = {
    .name = "wrong", .shape = same, .compute = square_compute, .gradient = transposed_gradient
};

static void own_op(ls_graph *g, void *user)
{
    const ls_op *op = user;
    ls_tensor *x = ls_linear(ls_input(g, "x"), "fc", 4);
    classify(g, ls_apply(op, NULL, 0, &x, 1));
}

static ls_status build(ls_step_fn *step, const void *user, ls_graph **out)
{
    ls__graph_options options = {
        .stage = LS_STAGE_TRAIN, .batch = 3, .fields = fields, .nfields = 5
    };
    return ls__graph_build(step, (void *)user, &options, out);
}

static void test_operations_of_users(void **state)
{
    (void)state;
    ls_graph *g;
    assert_ok(build(own_op, &square, &g));
    reference *r = differences_prepare(g);
    differences_objective(
        r); /* the kernel is f32, so its gradient rule is compared with the formula */
    const ls__graph_param *bias = reference_param(g, "fc.bias");
    assert_non_null(bias->grad);
    reference_destroy(r);
    ls__graph_destroy(g);
    assert_fails(build(own_op, &rounding, &g), LS_ERR_ARG, "rounding has no gradient");
    assert_fails(build(own_op, &wrong, &g), LS_ERR_SHAPE,
                 "wrong: its gradient for input 0 is (B*4), but the input is (B,4)");
}

/* --- what a backend may rely on --- */

static void test_gradients_have_their_own_place(void **state)
{
    (void)state;
    ls_graph *g;
    assert_ok(build(tied, NULL, &g));
    const ls__node *nodes;
    ls__graph_nodes(g, &nodes);
    const ls__graph_param *p = reference_param(g, "p"), *q = reference_param(g, "q");
    assert_ptr_not_equal(p->grad, q->grad); /* the sum hands one tensor to both */
    assert_true(nodes[p->grad->node].op == &ls__op_copy || nodes[q->grad->node].op == &ls__op_copy);
    const ls__graph_param *params;
    int n = ls__graph_params(g, &params);
    for (int i = 0; i < n; i++) {
        assert_non_null(params[i].grad);
        assert_int_equal(params[i].grad->role, LS__ROLE_VALUE);
        assert_ptr_not_equal(nodes[params[i].grad->node].op, &ls__op_reshape);
    }
    ls__graph_destroy(g);
}

static void unused(ls_graph *g, void *user)
{
    (void)user;
    ls_init one = { .kind = LS_INIT_CONSTANT, .scale = 1 };
    ls_param(g, "nobody", &one, 1, (int64_t[]) { 4 });
    mlp(g, NULL);
}

static void test_a_parameter_without_gradient(void **state)
{
    (void)state;
    ls_graph *g;
    assert_ok(build(unused, NULL, &g));
    assert_null(reference_param(g, "nobody")->grad);
    assert_non_null(reference_param(g, "fc1.weight")->grad);
    ls__graph_destroy(g);
}

static void test_no_gradient_of_inputs_unless_asked(void **state)
{
    (void)state;
    ls_graph *g;
    assert_ok(build(convolutions, NULL, &g));
    const ls__node *nodes;
    int n = ls__graph_nodes(g, &nodes), grad_x = 0;
    for (int i = 0; i < n; i++) grad_x += nodes[i].op == &ls__op_conv2d_grad_x;
    assert_int_equal(grad_x, 1); /* of the second convolution only */
    ls__graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mlp),
        cmocka_unit_test(test_convolutions),
        cmocka_unit_test(test_pools),
        cmocka_unit_test(test_batch_norm_by_groups),
        cmocka_unit_test(test_residual_block),
        cmocka_unit_test(test_elementwise_dropout_reshape_constant),
        cmocka_unit_test(test_tied_parameters),
        cmocka_unit_test(test_weights_and_ignored_targets),
        cmocka_unit_test(test_operations_of_users),
        cmocka_unit_test(test_gradients_have_their_own_place),
        cmocka_unit_test(test_a_parameter_without_gradient),
        cmocka_unit_test(test_no_gradient_of_inputs_unless_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
