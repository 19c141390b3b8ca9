/* Gradients by finite differences of the backend's own losses: MLP, CNN and a small ResNet through
 * the public ls_gradient_check. */
#include "testing.h"

#include <lockstep/lockstep.h>

static int64_t length(void *self)
{
    (void)self;
    return 8;
}

static ls_status read_sample(void *self, int64_t index, ls_rng *rng, void *const *out)
{
    (void)self, (void)rng;
    uint32_t word = (uint32_t)index * 2654435761u + 1;
    for (int i = 0; i < 2 * 8 * 8; i++) {
        word = word * 1664525u + 1013904223u;
        ((float *)out[0])[i] = (float)(word >> 8) / 8388608.0f - 1;
    }
    *(int32_t *)out[1] = (int32_t)(index % 3);
    return LS_OK;
}

static void minimize(ls_graph *g, ls_tensor *x)
{
    ls_minimize(g, ls_cross_entropy(ls_linear(x, "head", 3), ls_input(g, "label")), NULL);
}

static ls_tensor *conv(ls_tensor *x, const char *name, int64_t channels, int kernel, int stride)
{
    ls_conv2d_options o = {
        .channels = channels, .kernel = kernel, .stride = stride, .padding = kernel / 2
    };
    return ls_conv2d(x, name, &o);
}

static void mlp(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *h = ls_relu(ls_linear(ls_input(g, "image"), "fc1", 12));
    minimize(g, ls_relu(ls_linear(ls_dropout(h, "drop", 0.2), "fc2", 7)));
}

static void cnn(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *x = ls_max_pool2d(ls_relu(conv(ls_input(g, "image"), "conv1", 16, 3, 1)), 2);
    x = ls_avg_pool2d(ls_relu(conv(x, "conv2", 5, 3, 1)), 2);
    minimize(g, ls_flatten(x));
}

static void resnet(ls_graph *g, void *user)
{
    (void)user;
    ls_batch_norm_options norm = { .group = 4 };
    ls_tensor *x = conv(ls_input(g, "image"), "stem", 16, 3, 1);
    x = ls_relu(ls_batch_norm_with(x, "norm0", &norm));
    ls_tensor *y = ls_relu(ls_batch_norm_with(conv(x, "conv1", 24, 3, 2), "norm1", &norm));
    y = ls_batch_norm_with(conv(y, "conv2", 24, 3, 1), "norm2", &norm);
    x = ls_relu(ls_add(y, ls_batch_norm_with(conv(x, "short", 24, 1, 2), "norm3", &norm)));
    minimize(g, ls_global_avg_pool2d(x));
}

static void test_gradients(void **state)
{
    (void)state;
    static const ls_field fields[] = { { "image", LS_DTYPE_F32, 3, { 2, 8, 8 } },
                                       { "label", LS_DTYPE_I32, 0, { 0 } } };
    static const ls_dataset_ops ops = { .length = length, .read = read_sample };
    static ls_step_fn *const models[] = { mlp, cnn, resnet };
    ls_dataset *data;
    assert_ok(ls_dataset_create(&ops, NULL, fields, 2, &data));
    for (int i = 0; i < 3; i++) assert_ok(ls_gradient_check(models[i], NULL, data, 1e-3));
    ls_dataset_destroy(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_gradients) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
