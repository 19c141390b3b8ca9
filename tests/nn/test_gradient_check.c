/* ls_gradient_check: right gradients pass, wrong ones are named, by an operation of the user's that
 * several threads compute. */
#include "testing.h"

#include <math.h>

#include <lockstep/dataset.h>
#include <lockstep/nn.h>
#include <lockstep/op.h>

#include "graph/backend.h"

/* --- data --- */

static const ls_field fields[] = { { "image", LS_DTYPE_U8, 3, { 2, 9, 8 } },
                                   { "x", LS_DTYPE_F32, 1, { 10 } },
                                   { "label", LS_DTYPE_I32, 0, { 0 } } };

static int64_t length(void *self)
{
    return *(int64_t *)self;
}

static ls_status read_sample(void *self, int64_t index, ls_rng *rng, void *const *out)
{
    (void)self;
    assert_null(rng);
    for (int i = 0; i < 144; i++) ((uint8_t *)out[0])[i] = (uint8_t)((index + 3) * (i + 7) * 29);
    for (int i = 0; i < 10; i++) ((float *)out[1])[i] = sinf((float)(index * 17 + i * i));
    *(int32_t *)out[2] = (int32_t)(index % 5);
    return index == 666 ? ls_fail(LS_ERR_DATA, "the number of the beast") : LS_OK;
}
static const ls_dataset_ops ops = { .length = length, .read = read_sample };

static ls_status check(ls_step_fn *step, const void *user, int64_t samples, double tolerance)
{
    ls_dataset *data;
    assert_ok(ls_dataset_create(&ops, &samples, fields, 3, &data));
    ls_status status = ls_gradient_check(step, (void *)user, data, tolerance);
    ls_dataset_destroy(data);
    return status;
}

/* --- an operation: snake, whose slope may be wrong in several ways --- */

typedef enum mistake { NONE, FACTOR, ONE_ELEMENT, MISSING } mistake;

static ls_status same_shape(const ls_op_call *c, ls_array *out)
{
    *out = c->in[0];
    return LS_OK;
}

static void snake_compute(const ls_op_call *c)
{
    int64_t n = ls_array_count(&c->in[0]) / c->in[0].shape[0];
    const float *x = c->in[0].data;
    float *y = c->out->data;
    for (int64_t i = c->begin * n; i < c->end * n; i++) y[i] = x[i] + sinf(x[i]) * sinf(x[i]);
}

static void slope_compute(const ls_op_call *c)
{
    int64_t n = ls_array_count(&c->in[0]) / c->in[0].shape[0];
    const float *x = c->in[0].data;
    float *y = c->out->data;
    mistake m = *(const mistake *)c->attributes;
    for (int64_t i = c->begin * n; i < c->end * n; i++) {
        y[i] = 1 + sinf(2 * x[i]);
        if (m == FACTOR || (m == ONE_ELEMENT && i % n == 3)) y[i] *= 1.05f;
    }
}
static const ls_op slope = { .name = "slope", .shape = same_shape, .compute = slope_compute };

static void snake_gradient(ls_graph *g, ls_tensor *const *in, ls_tensor *out, ls_tensor *grad,
                           const void *attributes, ls_tensor **grads_in)
{
    (void)g, (void)out;
    if (*(const mistake *)attributes == MISSING) return;
    grads_in[0] = ls_mul(grad, ls_apply(&slope, attributes, sizeof(mistake), in, 1));
}
static const ls_op snake = {
    .name = "snake", .shape = same_shape, .compute = snake_compute, .gradient = snake_gradient
};

static void own(ls_graph *g, void *user)
{
    ls_tensor *h = ls_linear(ls_input(g, "x"), "fc1", 24), *y = ls_input(g, "label");
    h = ls_apply(&snake, user, sizeof(mistake), &h, 1);
    ls_minimize(g, ls_cross_entropy(ls_linear(h, "fc2", 5), y), NULL);
}

/* Between operations that may keep images in layouts of their own. */
static void own_in_images(ls_graph *g, void *user)
{
    ls_tensor *x = ls_scale(ls_input(g, "image"), 1 / 127.5f, -1), *y = ls_input(g, "label");
    x = ls_conv2d(x, "a", &(ls_conv2d_options) { .channels = 17, .kernel = 3 });
    x = ls_apply(&snake, user, sizeof(mistake), &x, 1);
    x = ls_conv2d(x, "b", &(ls_conv2d_options) { .channels = 2, .kernel = 3 });
    x = ls_apply(&snake, user, sizeof(mistake), &x, 1);
    ls_minimize(g, ls_cross_entropy(ls_linear(x, "head", 5), y), NULL);
}

static void test_an_operation_by_several_threads(void **state)
{
    (void)state;
    const mistake right = NONE, factor = FACTOR;
    for (int threads = 1; threads <= 3; threads += 2) {
        const ls__backend *cpu;
        assert_ok(ls__backend_open("cpu", threads, &cpu));
        for (int64_t samples = 1; samples <= 3; samples += 2) {
            assert_ok(check(own, &right, samples, 1e-3));
            assert_ok(check(own_in_images, &right, samples, 1e-3));
        }
        assert_fails(check(own_in_images, &factor, 2, 1e-3), LS_ERR_ARG, "parameter a.");
    }
}

static void test_an_operation_of_ones_own(void **state)
{
    (void)state;
    const mistake right = NONE, factor = FACTOR, element = ONE_ELEMENT, missing = MISSING;
    assert_ok(check(own, &right, 100, 1e-3));
    assert_fails(check(own, &factor, 100, 1e-3), LS_ERR_ARG, "fc1.");
    assert_fails(check(own, &missing, 100, 1e-3), LS_ERR_ARG, "its gradient is 0, finite");
    /* column 3 of the hidden layer: row 3 of the weight, element 3 of the bias */
    assert_fails(check(own, &element, 100, 1e-3), LS_ERR_ARG, "fc1.");
    assert_true(strstr(ls_error_text(), "[3]") || strstr(ls_error_text(), "[3,"));
    assert_ok(check(own, &factor, 100, 0.2)); /* within that tolerance */
}

/* --- networks of the library's layers --- */

static void mlp(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *x = ls_scale(ls_input(g, "image"), 1 / 127.5f, -1), *y = ls_input(g, "label");
    for (int i = 0; i < 3; i++)
        x = ls_dropout(ls_relu(ls_linear(x, ls_name(g, "fc%d", i), 40)), ls_name(g, "drop%d", i),
                       0.2);
    ls_minimize(g, ls_cross_entropy(ls_linear(x, "head", 5), y), NULL);
}

static ls_tensor *block(ls_graph *g, ls_tensor *x, int i, int stride)
{
    ls_conv2d_options three = {
        .channels = 6, .kernel = 3, .stride = stride, .padding = 1, .no_bias = true
    };
    ls_conv2d_options one = { .channels = 6, .kernel = 1, .stride = stride, .no_bias = true };
    ls_tensor *h = ls_relu(
        ls_batch_norm(ls_conv2d(x, ls_name(g, "a%d", i), &three), ls_name(g, "norm_a%d", i)));
    three.stride = 1;
    h = ls_batch_norm(ls_conv2d(h, ls_name(g, "b%d", i), &three), ls_name(g, "norm_b%d", i));
    return ls_relu(ls_add(h, ls_conv2d(x, ls_name(g, "c%d", i), &one)));
}

static void resnet(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *x = ls_scale(ls_input(g, "image"), 1 / 127.5f, -1), *y = ls_input(g, "label");
    for (int i = 0; i < 3; i++) x = block(g, x, i, 1 + (i == 1));
    x = ls_global_avg_pool2d(x);
    ls_minimize(g, ls_cross_entropy(ls_linear(x, "head", 5), y), NULL);
}

static void cnn(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *x = ls_scale(ls_input(g, "image"), 1 / 127.5f, -1), *y = ls_input(g, "label");
    x = ls_conv2d(x, "conv", &(ls_conv2d_options) { .channels = 8, .kernel = 3, .padding = 1 });
    x = ls_avg_pool2d(ls_max_pool2d(ls_relu(x), 2), 2);
    ls_minimize(g, ls_cross_entropy(ls_linear(x, "head", 5), y), NULL);
}

/* Broadcasting, reductions, moves, and an input that is its own target. */
static void autoencoder(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *x = ls_input(g, "x");
    ls_tensor *h = ls_reshape(ls_linear(x, "down", 12), 3, (const int64_t[]) { -1, 3, 4 });
    ls_init init = { .kind = LS_INIT_UNIFORM, .scale = 1 };
    h = ls_mul(h, ls_param(g, "gain", &init, 2, (const int64_t[]) { 3, 1 }));
    h = ls_sub(ls_transpose(h, 1, 2), ls_param(g, "shift", &init, 1, (const int64_t[]) { 3 }));
    ls_tensor *parts[] = { ls_mean(h, 1), ls_max(h, 2), ls_sum(ls_narrow(h, 1, 1, 2), 2) };
    ls_tensor *y = ls_linear(ls_concat(parts, 3, 1), "up", 10);
    ls_minimize(g, ls_add(ls_mse(y, x), ls_smooth_l1(y, x, 0.5)), NULL);
}

static void test_networks(void **state)
{
    (void)state;
    for (int64_t samples = 1; samples < 10; samples += 8) {
        assert_ok(check(mlp, NULL, samples, 1e-3));
        assert_ok(check(cnn, NULL, samples, 1e-3));
        assert_ok(check(resnet, NULL, samples, 1e-3));
        assert_ok(check(autoencoder, NULL, samples, 1e-3));
    }
}

/* --- mistakes --- */

static void bad_labels(ls_graph *g, void *user)
{
    (void)user;
    ls_minimize(g, ls_cross_entropy(ls_linear(ls_input(g, "x"), "fc", 2), ls_input(g, "label")),
                NULL);
}

static void infinite(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *x = ls_scale(ls_linear(ls_input(g, "x"), "fc", 5), INFINITY, 0);
    ls_minimize(g, ls_cross_entropy(x, ls_input(g, "label")), NULL);
}

static void test_mistakes_are_told(void **state)
{
    (void)state;
    assert_fails(check(mlp, NULL, 0, 1e-3), LS_ERR_DATA, "no samples");
    assert_fails(check(mlp, NULL, 5, 0), LS_ERR_ARG, "tolerance");
    assert_fails(ls_gradient_check(mlp, NULL, NULL, 1e-3), LS_ERR_ARG, "needs data");
    assert_fails(check(mlp, NULL, 666 * 2, 1e-3), LS_ERR_DATA, "the number of the beast");
    assert_fails(check(bad_labels, NULL, 9, 1e-3), LS_ERR_DATA, "label");
    assert_fails(check(infinite, NULL, 9, 1e-3), LS_ERR_ARG, "not finite");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_an_operation_of_ones_own),
                                        cmocka_unit_test(test_an_operation_by_several_threads),
                                        cmocka_unit_test(test_networks),
                                        cmocka_unit_test(test_mistakes_are_told) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
