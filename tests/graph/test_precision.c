/* bf16-mixed in graphs: which tensors are half, which nodes round what. Values:
 * tests/backend/test_half.c. */
#include "testing.h"

#include <lockstep/nn.h>

#include "graph/ops.h"
#include "reference.h"

static const ls_field text_fields[] = { { "x", LS_DTYPE_F32, 2, { 6, 8 } },
                                        { "label", LS_DTYPE_I32, 1, { 6 } } };
static const ls_field image_fields[] = { { "image", LS_DTYPE_F32, 3, { 1, 8, 8 } },
                                         { "label", LS_DTYPE_I32, 0, { 0 } } };

static ls_graph *build(ls_step_fn *step, const ls_field fields[2], ls_precision precision)
{
    ls__graph_options options = {
        .stage = LS_STAGE_TRAIN, .batch = 3, .fields = fields, .nfields = 2, .precision = precision
    };
    ls_graph *g;
    assert_ok(ls__graph_build(step, NULL, &options, &g));
    return g;
}

/* The n-th node of an operation, in the order in which they run. */
static const ls__node *node_of(const ls_graph *g, const ls_op *op, int n)
{
    const ls__node *nodes;
    int count = ls__graph_nodes(g, &nodes);
    for (int i = 0; i < count; i++)
        if (nodes[i].op == op && n-- == 0) return &nodes[i];
    fail_msg("there is no %s", op->name);
    return NULL;
}

static bool half(const ls_graph *g, const ls_op *op, int n)
{
    return node_of(g, op, n)->out[0]->half;
}

/* (B,T,C) -> (B,T,features) */
static ls_tensor *dense(ls_tensor *x, const char *name, int64_t features)
{
    return ls_linear_with(x, name, &(ls_linear_options) { .features = features, .rows = true });
}

static void transformer(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *x = dense(ls_input(g, "x"), "in", 8);          /* linear 0 */
    ls_tensor *h = dense(ls_layer_norm(x, "ln1"), "qkv", 24); /* linear 1 */
    h = ls_attention(h, "attention", &(ls_attention_options) { .heads = 2 });
    x = ls_add(x, dense(h, "proj", 8));                         /* linear 2 */
    h = ls_gelu_tanh(dense(ls_layer_norm(x, "ln2"), "fc", 16)); /* linear 3 */
    x = ls_add(x, ls_dropout(dense(h, "out", 8), "drop", 0.1)); /* linear 4 */
    ls_tensor *z = dense(ls_layer_norm(x, "ln"), "head", 5);    /* linear 5 */
    ls_output(g, "scores", z);
    ls_minimize(g, ls_cross_entropy(z, ls_input(g, "label")), NULL);
}

static void a_transformer(void **state)
{
    (void)state;
    ls_graph *g = build(transformer, text_fields, LS_PRECISION_BF16_MIXED);
    /* Forward: what goes into a product; not the residual stream, nor what is added to it. */
    for (int n = 0; n < 3; n++) assert_true(half(g, &ls__op_layer_norm, n));
    assert_false(node_of(g, &ls__op_layer_norm, 0)->out[1]->half); /* mean */
    assert_false(half(g, &ls__op_linear, 0));                      /* residual stream */
    assert_true(half(g, &ls__op_linear, 1));                       /* qkv */
    assert_true(half(g, &ls__op_attention, 0));
    assert_false(node_of(g, &ls__op_attention, 0)->out[1]->half); /* logsum */
    assert_false(half(g, &ls__op_linear, 2));                     /* added */
    assert_true(half(g, &ls__op_linear, 3));                      /* read by the activation */
    assert_true(half(g, &ls__op_activation, 0));
    assert_true(half(g, &ls__op_linear, 4));   /* read by dropout only */
    assert_false(half(g, &ls__op_dropout, 0)); /* added */
    assert_false(half(g, &ls__op_add, 0));
    assert_false(half(g, &ls__op_linear, 5)); /* scores */
    /* Backward, from the head on: dscores goes into products only. */
    assert_true(half(g, &ls__op_cross_entropy_grad, 0));
    assert_true(half(g, &ls__op_linear_grad_x, 0));    /* read by a norm's gradient */
    assert_false(half(g, &ls__op_layer_norm_grad, 0)); /* residual stream */
    assert_true(half(g, &ls__op_activation_grad, 0));
    assert_true(half(g, &ls__op_attention_grad, 0));
    ls__graph_destroy(g);
}

static void parameters_and_their_gradients_are_f32(void **state)
{
    (void)state;
    ls_graph *g = build(transformer, text_fields, LS_PRECISION_BF16_MIXED);
    const ls__graph_param *params;
    int n = ls__graph_params(g, &params);
    assert_int_equal(n, 18);
    for (int i = 0; i < n; i++) {
        assert_false(params[i].tensor->half);
        assert_non_null(params[i].grad);
        assert_false(params[i].grad->half);
    }
    ls__graph_destroy(g);
}

static void factors_are_rounded_and_biases_are_not(void **state)
{
    (void)state;
    ls_graph *g = build(transformer, text_fields, LS_PRECISION_BF16_MIXED);
    const ls__node *linear = node_of(g, &ls__op_linear, 0);
    assert_true(linear->half && ls__node_rounds(linear, 0) && ls__node_rounds(linear, 1));
    assert_false(ls__node_rounds(linear, 2));
    const ls__node *attention = node_of(g, &ls__op_attention_grad, 0);
    for (int i = 0; i < 3; i++) assert_true(ls__node_rounds(attention, i));
    assert_false(ls__node_rounds(attention, 3));
    const ls__node *norm = node_of(g, &ls__op_layer_norm, 0);
    assert_false(norm->half || ls__node_rounds(norm, 0));
    ls__graph_destroy(g);
}

static void cnn(ls_graph *g, void *user)
{
    (void)user;
    ls_conv2d_options conv = { .channels = 4, .kernel = 3, .padding = 1 };
    ls_tensor *x = ls_relu(ls_conv2d(ls_input(g, "image"), "conv", &conv));
    ls_tensor *h = ls_relu(ls_linear(ls_max_pool2d(x, 2), "fc1", 12));
    ls_tensor *z = ls_linear(h, "fc2", 5);
    ls_minimize(g, ls_cross_entropy(z, ls_input(g, "label")), NULL);
}

static void a_cnn(void **state)
{
    (void)state;
    ls_graph *g = build(cnn, image_fields, LS_PRECISION_BF16_MIXED);
    const ls__node *conv = node_of(g, &ls__op_conv2d, 0);
    assert_true(conv->half && ls__node_rounds(conv, 1) && !ls__node_rounds(conv, 2));
    assert_true(node_of(g, &ls__op_conv2d_grad_weight, 0)->half);
    assert_false(half(g, &ls__op_conv2d, 0)); /* f32 lies between convolutions */
    assert_true(half(g, &ls__op_max_pool2d, 0)); /* goes into a product, flattened */
    assert_true(half(g, &ls__op_reshape, 0));
    assert_true(half(g, &ls__op_linear, 0));
    assert_true(half(g, &ls__op_relu, 1)); /* of a half tensor */
    assert_false(half(g, &ls__op_relu, 0));
    assert_false(half(g, &ls__op_linear, 1));
    assert_true(half(g, &ls__op_relu_grad, 0));
    ls__graph_destroy(g);
}

static void nothing_is_half_in_32(void **state)
{
    (void)state;
    ls_graph *g = build(transformer, text_fields, LS_PRECISION_32);
    ls_tensor *const *tensors;
    const ls__node *nodes;
    for (int i = 0; i < ls__graph_tensors(g, &tensors); i++) assert_false(tensors[i]->half);
    for (int i = 0; i < ls__graph_nodes(g, &nodes); i++) assert_false(nodes[i].half);
    ls__graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_transformer),
        cmocka_unit_test(parameters_and_their_gradients_are_f32),
        cmocka_unit_test(factors_are_rounded_and_biases_are_not),
        cmocka_unit_test(a_cnn),
        cmocka_unit_test(nothing_is_half_in_32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
