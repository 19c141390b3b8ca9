/* Building graphs: what each stage keeps, the order of parameters, the first failure's text. */
#include "testing.h"

#include <math.h>

#include <lockstep/nn.h>

#include "base/memory.h"
#include "graph/ops.h"
#include "reference.h"

static const ls_field fields[] = { { "image", LS_DTYPE_U8, 3, { 1, 8, 8 } },
                                   { "x", LS_DTYPE_F32, 1, { 10 } },
                                   { "label", LS_DTYPE_I32, 0, { 0 } } };

static ls_status build_with(ls_step_fn *step, const void *user, ls_stage stage, int nfields,
                            ls_graph **out)
{
    ls__graph_options options = {
        .stage = stage, .batch = 4, .fields = fields, .nfields = nfields
    };
    return ls__graph_build(step, (void *)user, &options, out);
}

static ls_status build(ls_step_fn *step, ls_stage stage, ls_graph **out)
{
    return build_with(step, NULL, stage, 3, out);
}

/* A graph that must not be built. */
static ls_status refuse(ls_step_fn *step)
{
    ls_graph *g;
    ls_status status = build(step, LS_STAGE_TRAIN, &g);
    assert_null(g);
    return status;
}

static int count_ops(const ls_graph *g, const ls_op *op)
{
    const ls__node *nodes;
    int n = ls__graph_nodes(g, &nodes), count = 0;
    for (int i = 0; i < n; i++) count += nodes[i].op == op;
    return count;
}

static void cnn(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *x = ls_scale(ls_input(g, "image"), 1 / 255.0f, 0), *y = ls_input(g, "label");
    x = ls_conv2d(x, "conv", &(ls_conv2d_options) { .channels = 4, .kernel = 3, .no_bias = true });
    x = ls_max_pool2d(ls_relu(ls_batch_norm(x, "norm")), 2);
    ls_tensor *z = ls_linear(ls_dropout(x, "drop", 0.5), "head", 10);
    ls_output(g, "scores", z);
    ls_minimize(g, ls_cross_entropy(z, y), NULL);
    ls_report(g, "accuracy", ls_accuracy(z, y));
}

/* --- stages --- */

static void test_training(void **state)
{
    (void)state;
    ls_graph *g;
    assert_ok(build(cnn, LS_STAGE_TRAIN, &g));
    const ls__graph_result *results;
    assert_int_equal(ls__graph_results(g, &results), 2);
    assert_int_equal(results[0].kind, LS__RESULT_LOSS);
    assert_non_null(results[0].weights); /* labels may be ignored */
    assert_string_equal(results[1].name, "accuracy");
    assert_non_null(results[1].weights);
    assert_int_equal(count_ops(g, &ls__op_dropout), 2);
    assert_int_equal(count_ops(g, &ls__op_batch_norm), 1);
    assert_int_equal(count_ops(g, &ls__op_conv2d_grad_x), 0);
    assert_int_equal(ls__graph_group(g), 16);
    assert_non_null(reference_param(g, "norm.running_mean")->grad);
    assert_non_null(reference_param(g, "norm.running_var")->grad);
    ls__graph_destroy(g);
}

static void test_evaluation(void **state)
{
    (void)state;
    ls_graph *g;
    assert_ok(build(cnn, LS_STAGE_EVALUATE, &g));
    const ls__node *nodes;
    int n = ls__graph_nodes(g, &nodes);
    for (int i = 0; i < n; i++) assert_false(nodes[i].backward);
    assert_int_equal(count_ops(g, &ls__op_dropout), 0);
    assert_int_equal(count_ops(g, &ls__op_batch_norm_inference), 1);
    for (int i = 0; i < n; i++) /* nobody reads a pool's indices here */
        if (nodes[i].op == &ls__op_max_pool2d) assert_int_equal(nodes[i].nout, 1);
    assert_int_equal(ls__graph_results(g, NULL), 2);
    assert_int_equal(ls__graph_group(g), 1);
    ls__graph_destroy(g);
}

static void test_prediction_without_labels(void **state)
{
    (void)state;
    ls_graph *g;
    assert_ok(build_with(cnn, NULL, LS_STAGE_PREDICT, 2, &g)); /* no "label" */
    const ls__graph_result *results;
    assert_int_equal(ls__graph_results(g, &results), 1);
    assert_int_equal(results[0].kind, LS__RESULT_OUTPUT);
    assert_string_equal(results[0].name, "scores");
    assert_int_equal(count_ops(g, &ls__op_cross_entropy), 0);
    ls__graph_destroy(g);
    assert_ok(build(cnn, LS_STAGE_PREDICT, &g)); /* with labels nothing else is computed */
    assert_int_equal(count_ops(g, &ls__op_cross_entropy), 0);
    assert_int_equal(ls__graph_results(g, NULL), 1);
    ls__graph_destroy(g);
    assert_fails(build_with(cnn, NULL, LS_STAGE_PREDICT, 0, &g), LS_ERR_DATA,
                 "ls_output \"scores\": it depends on a field that the data lacks");
}

static void test_missing_field_when_training(void **state)
{
    (void)state;
    ls_graph *g;
    assert_fails(build_with(cnn, NULL, LS_STAGE_TRAIN, 2, &g), LS_ERR_DATA,
                 "input \"label\": the data has no such field (it has: image, x)");
    assert_fails(build_with(cnn, NULL, LS_STAGE_EVALUATE, 0, &g), LS_ERR_DATA, "it has: none");
}

static void nothing(ls_graph *g, void *user)
{
    (void)user;
    ls_linear(ls_input(g, "x"), "fc", 2);
}

static void test_purpose(void **state)
{
    (void)state;
    ls_graph *g;
    assert_fails(build(nothing, LS_STAGE_TRAIN, &g), LS_ERR_ARG, "nothing to train");
    assert_fails(build(nothing, LS_STAGE_EVALUATE, &g), LS_ERR_ARG, "nothing to evaluate");
    assert_fails(build(nothing, LS_STAGE_PREDICT, &g), LS_ERR_ARG, "nothing to predict");
    assert_fails(build(NULL, LS_STAGE_TRAIN, &g), LS_ERR_ARG, "step function is NULL");
}

/* --- parameters --- */

static void test_parameters(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool decays, statistic;
        int depth;
    } expected[] = {
        { "conv.weight", true, false, 0 },      { "norm.weight", false, false, 1 },
        { "norm.bias", false, false, 1 },       { "norm.running_mean", false, true, 1 },
        { "norm.running_var", false, true, 1 }, { "head.weight", true, false, 2 },
        { "head.bias", false, false, 2 },
    };
    for (int stage = LS_STAGE_TRAIN; stage <= LS_STAGE_PREDICT; stage++) {
        ls_graph *g;
        const ls__graph_param *params;
        assert_ok(build(cnn, (ls_stage)stage, &g));
        assert_int_equal(ls__graph_params(g, &params), 7);
        for (int i = 0; i < 7; i++) {
            assert_string_equal(params[i].name, expected[i].name);
            assert_int_equal(params[i].decays, expected[i].decays);
            assert_int_equal(params[i].role == LS__ROLE_STATISTIC, expected[i].statistic);
            assert_int_equal(params[i].depth, expected[i].depth);
            assert_int_equal(params[i].tensor->slot, i);
            if (expected[i].statistic) assert_true(params[i].momentum == 0.1);
        }
        ls__graph_destroy(g);
    }
}

static void test_first_values(void **state)
{
    (void)state;
    ls_graph *g;
    float a[360], b[360], other[360];
    assert_ok(build(cnn, LS_STAGE_TRAIN, &g));
    const ls__graph_param *weight = reference_param(g, "head.weight"); /* (10, 36) */
    ls__graph_init_param(weight, 5, a);
    ls__graph_init_param(weight, 5, b);
    ls__graph_init_param(weight, 6, other);
    assert_memory_equal(a, b, sizeof a);
    assert_memory_not_equal(a, other, sizeof a);
    double sum = 0, squares = 0, bound = 1 / sqrt(36), top = 0;
    for (int i = 0; i < 360; i++) {
        assert_true(a[i] >= -bound && a[i] < bound);
        sum += a[i];
        squares += a[i] * a[i];
        top = fmax(top, fabs(a[i]));
    }
    assert_true(fabs(sum / 360) < 0.02 && fabs(squares / 360 - bound * bound / 3) < 0.002);
    assert_true(top > 0.95 * bound);
    ls__graph_init_param(reference_param(g, "norm.running_var"), 5, a);
    assert_true(a[0] == 1 && a[3] == 1);
    ls__graph_init_param(reference_param(g, "norm.bias"), 5, a);
    assert_true(a[0] == 0 && a[3] == 0);
    ls__graph_destroy(g);
}

static void normal_param(ls_graph *g, void *user)
{
    ls_init init = { .kind = LS_INIT_NORMAL, .scale = 0.5 };
    ls_tensor *p = ls_param(g, "p", &init, 2, (int64_t[]) { 4, 10 });
    ls_tensor *wide = ls_param(g, "wide", &init, 1, (int64_t[]) { 4096 });
    *(ls_tensor **)user = ls_param(g, "p", NULL, 2, (int64_t[]) { 4, 10 });
    assert_ptr_equal(p, *(ls_tensor **)user); /* the same name is the same tensor */
    assert_ptr_equal(ls_input(g, "x"), ls_input(g, "x"));
    assert_non_null(wide);
    ls_minimize(g, ls_cross_entropy(ls_add(ls_input(g, "x"), p), ls_input(g, "label")), NULL);
}

static void test_normal_values_and_reuse(void **state)
{
    (void)state;
    ls_graph *g;
    ls_tensor *again = NULL;
    float values[4096];
    double squares = 0, sum = 0;
    assert_ok(build_with(normal_param, &again, LS_STAGE_TRAIN, 3, &g));
    ls__graph_init_param(reference_param(g, "wide"), 1, values);
    for (int i = 0; i < 4096; i++) {
        sum += values[i];
        squares += values[i] * values[i];
    }
    assert_true(fabs(sum / 4096) < 0.03 && fabs(sqrt(squares / 4096) - 0.5) < 0.02);
    ls__graph_destroy(g);
}

/* --- dead code, flops, groups --- */

static void wasteful(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *x = ls_input(g, "x");
    ls_tensor *unused = ls_relu(ls_linear(x, "unused", 1000));
    for (int i = 0; i < 5; i++) unused = ls_add(unused, unused);
    ls_minimize(g, ls_cross_entropy(ls_linear(x, "fc", 3), ls_input(g, "label")), NULL);
}

static void test_dead_code_goes(void **state)
{
    (void)state;
    ls_graph *g;
    assert_ok(build(wasteful, LS_STAGE_TRAIN, &g));
    const ls__node *nodes;
    ls_tensor *const *tensors;
    /* linear, cross-entropy, seed, its gradient, weight and bias */
    assert_int_equal(ls__graph_nodes(g, &nodes), 5);
    int n = ls__graph_tensors(g, &tensors);
    for (int i = 0; i < n; i++) {
        assert_int_equal(tensors[i]->id, i);
        if (tensors[i]->role != LS__ROLE_VALUE) continue;
        const ls__node *node = &nodes[tensors[i]->node];
        bool found = false;
        for (int k = 0; k < node->nout; k++) found |= node->out[k] == tensors[i];
        assert_true(found);
    }
    assert_int_equal(ls__graph_params(g, NULL), 4); /* parameters stay, whoever needs them */
    assert_null(reference_param(g, "unused.weight")->grad);
    double flops = 2.0 * 4 * 3 * 10 * 2 + 2 * 4.0 * 4 * 3 + 4;
    assert_true(ls__graph_flops(g) == flops);
    ls__graph_destroy(g);
}

static void two_groups(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *x = ls_batch_norm_with(ls_input(g, "x"), "a", &(ls_batch_norm_options) { 6 });
    x = ls_batch_norm_with(x, "b", &(ls_batch_norm_options) { 4 });
    ls_minimize(g, ls_cross_entropy(x, ls_input(g, "label")), NULL);
}

static void test_groups_have_a_common_multiple(void **state)
{
    (void)state;
    ls_graph *g;
    assert_ok(build(two_groups, LS_STAGE_TRAIN, &g));
    assert_int_equal(ls__graph_group(g), 12);
    ls__graph_destroy(g);
}

/* --- the first failure --- */

static void conv_too_large(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *x = ls_scale(ls_input(g, "image"), 1, 0);
    ls_conv2d_options sixteen = { .channels = 16, .kernel = 3, .stride = 3 };
    x = ls_conv2d(x, "conv0", &sixteen);
    x = ls_conv2d(x, "conv1", &(ls_conv2d_options) { .channels = 8, .kernel = 5 });
    ls_minimize(g, ls_relu(x), NULL); /* NULL: passes in silence */
    ls_report(g, "mistake", NULL);
}

static void raw_bytes(ls_graph *g, void *user)
{
    (void)user;
    ls_linear(ls_input(g, "image"), "fc1", 10);
}

static void two_shapes(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *x = ls_linear(ls_input(g, "x"), "fc", 4);
    ls_linear(x, "fc", 4);
}

static void unequal(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *x = ls_input(g, "x");
    ls_add(x, ls_linear(x, "fc", 4));
}

static void null_tensor(ls_graph *g, void *user)
{
    (void)user;
    ls_add(ls_input(g, "x"), NULL);
}

static void null_report(ls_graph *g, void *user)
{
    (void)user;
    ls_report(g, "accuracy", NULL);
}

static void labels_of_another_shape(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *x = ls_input(g, "x");
    ls_cross_entropy(ls_reshape(x, 3, (int64_t[]) { -1, 2, 5 }), ls_input(g, "label"));
}

static void bad_reshape(ls_graph *g, void *user)
{
    (void)user;
    ls_reshape(ls_input(g, "x"), 2, (int64_t[]) { 7, -1 });
}

static void bad_dropout(ls_graph *g, void *user)
{
    (void)user;
    ls_dropout(ls_input(g, "x"), "drop", 1.5);
}

static void nameless(ls_graph *g, void *user)
{
    (void)user;
    ls_linear(ls_input(g, "x"), NULL, 3);
}

static void flat_image(ls_graph *g, void *user)
{
    (void)user;
    ls_conv2d(ls_input(g, "x"), "conv", &(ls_conv2d_options) { .channels = 1, .kernel = 1 });
}

static void big_pool(ls_graph *g, void *user)
{
    (void)user;
    ls_max_pool2d(ls_scale(ls_input(g, "image"), 1, 0), 9);
}

static void bad_dim(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor_dim(ls_input(g, "x"), 2);
}

static void shared_norm(ls_graph *g, void *user)
{
    (void)user;
    ls_batch_norm(ls_batch_norm(ls_input(g, "x"), "norm"), "norm");
}

static void test_failures_are_readable(void **state)
{
    (void)state;
    assert_fails(refuse(conv_too_large), LS_ERR_SHAPE,
                 "conv2d \"conv1\": kernel 5 does not fit input (B,16,2,2) with padding 0");
    assert_fails(refuse(raw_bytes), LS_ERR_ARG,
                 "linear \"fc1\": input (B,1,8,8) u8 must be f32; ls_scale converts it");
    assert_fails(refuse(two_shapes), LS_ERR_SHAPE,
                 "parameter fc.weight (4,10) exists and is asked for again as (4,4)");
    assert_fails(refuse(unequal), LS_ERR_SHAPE,
                 "add: the inputs must be of one shape, or broadcast to one: from the last "
                 "dimension on, equal or 1; inputs (B,10), (B,4)");
    assert_fails(refuse(null_tensor), LS_ERR_ARG, "add: an input is NULL; inputs (B,10), NULL");
    assert_fails(refuse(null_report), LS_ERR_ARG, "ls_report \"accuracy\": the tensor is NULL");
    assert_fails(refuse(labels_of_another_shape), LS_ERR_SHAPE,
                 "cross_entropy: scores (...,K) need one label for each row, (...); inputs "
                 "(B,2,5), (B) i32");
    assert_fails(refuse(bad_reshape), LS_ERR_SHAPE, "reshape: (B,10) cannot become (7,-1)");
    assert_fails(refuse(bad_dropout), LS_ERR_ARG, "dropout \"drop\": probability 1.5");
    assert_fails(refuse(nameless), LS_ERR_ARG, "linear: a layer needs a name");
    assert_fails(refuse(flat_image), LS_ERR_SHAPE,
                 "conv2d \"conv\": input (B,10) must be (B, C, H, W)");
    assert_fails(refuse(big_pool), LS_ERR_SHAPE,
                 "max_pool2d: a window of 9 x 9 does not fit input (B,1,8,8)");
    assert_fails(refuse(bad_dim), LS_ERR_SHAPE, "ls_tensor_dim: (B,10) has no dimension 2");
    assert_fails(refuse(shared_norm), LS_ERR_UNSUPPORTED, "give each its own name");
}

/* --- sinks --- */

static ls_status mean_shape(const ls_op_call *c, ls_array *out)
{
    (void)c;
    *out = (ls_array) { .type = LS_DTYPE_F32 };
    return LS_OK;
}
static void mean_compute(const ls_op_call *c)
{
    (void)c;
}
static const ls_op mean = { .name = "mean", .shape = mean_shape, .compute = mean_compute };

static void scalar_loss(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *losses =
        ls_cross_entropy(ls_linear(ls_input(g, "x"), "fc", 3), ls_input(g, "label"));
    ls_minimize(g, ls_apply(&mean, NULL, 0, &losses, 1), NULL);
}

static void two_objectives(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *losses =
        ls_cross_entropy(ls_linear(ls_input(g, "x"), "fc", 3), ls_input(g, "label"));
    ls_minimize(g, losses, NULL);
    ls_minimize(g, losses, NULL);
}

static void twice(ls_graph *g, void *user)
{
    ls_tensor *losses =
        ls_cross_entropy(ls_linear(ls_input(g, "x"), "fc", 3), ls_input(g, "label"));
    ls_minimize(g, losses, NULL);
    ls_report(g, user, losses);
    ls_report(g, user, losses);
}

static void learned_weights(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *losses =
        ls_cross_entropy(ls_linear(ls_input(g, "x"), "fc", 3), ls_input(g, "label"));
    ls_tensor *weights = ls_reshape(ls_linear(ls_input(g, "x"), "w", 1), 1, (int64_t[]) { -1 });
    ls_minimize(g, losses, weights);
}

static void no_parameters(ls_graph *g, void *user)
{
    (void)user;
    ls_minimize(g, ls_cross_entropy(ls_input(g, "x"), ls_input(g, "label")), NULL);
}

static void output_of_a_parameter(ls_graph *g, void *user)
{
    ls_output(g, "p", ls_param(g, "p", NULL, 1, (int64_t[]) { 4 }));
    cnn(g, user);
}

static void test_sinks(void **state)
{
    (void)state;
    ls_graph *g;
    assert_fails(refuse(scalar_loss), LS_ERR_SHAPE, "the loss is a scalar");
    assert_fails(refuse(two_objectives), LS_ERR_UNSUPPORTED, "a second objective");
    assert_fails(build_with(twice, "error", LS_STAGE_TRAIN, 3, &g), LS_ERR_ARG,
                 "\"error\" is reported twice");
    assert_fails(build_with(twice, "loss", LS_STAGE_TRAIN, 3, &g), LS_ERR_ARG,
                 "\"loss\" is reported twice");
    assert_fails(refuse(learned_weights), LS_ERR_ARG, "may depend on inputs only");
    assert_fails(refuse(no_parameters), LS_ERR_ARG, "depend on no parameter");
    /* what is only predicted is checked in training already; 4 is the batch by chance */
    assert_fails(refuse(output_of_a_parameter), LS_ERR_SHAPE, "one row per sample");
}

/* --- memory --- */

static void test_any_allocation_may_fail(void **state)
{
    (void)state;
    for (long n = 1;; n++) {
        ls_graph *g;
        ls__alloc_fail_at(n);
        ls_status status = build(cnn, LS_STAGE_TRAIN, &g);
        ls__alloc_fail_at(0);
        if (status == LS_OK) {
            ls__graph_destroy(g);
            assert_true(n > 50);
            return;
        }
        assert_int_equal(status, LS_ERR_MEMORY);
        assert_null(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_training),
        cmocka_unit_test(test_evaluation),
        cmocka_unit_test(test_prediction_without_labels),
        cmocka_unit_test(test_missing_field_when_training),
        cmocka_unit_test(test_purpose),
        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_first_values),
        cmocka_unit_test(test_normal_values_and_reuse),
        cmocka_unit_test(test_dead_code_goes),
        cmocka_unit_test(test_groups_have_a_common_multiple),
        cmocka_unit_test(test_failures_are_readable),
        cmocka_unit_test(test_sinks),
        cmocka_unit_test(test_any_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
