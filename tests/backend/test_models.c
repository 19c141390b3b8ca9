/* Whole models on the CPU backend: MLP, CNN and a small ResNet against the reference executor, with
 * odd channel counts, odd images, batches of one, tiles that do not divide the batch. */
#include "compare.h"
#include "testing.h"

#include <lockstep/nn.h>

typedef struct model {
    int64_t width; /* channels or features */
    int64_t classes;
} model;

static const ls_field flat_fields[] = { { "x", LS_DTYPE_F32, 1, { 21 } },
                                        { "label", LS_DTYPE_I32, 0, { 0 } } };
static const ls_field image_fields[] = { { "image", LS_DTYPE_U8, 3, { 1, 11, 11 } },
                                         { "label", LS_DTYPE_I32, 0, { 0 } } };
static const ls_field colour_fields[] = { { "image", LS_DTYPE_F32, 3, { 3, 12, 10 } },
                                          { "label", LS_DTYPE_I64, 0, { 0 } } };

static void minimize(ls_graph *g, ls_tensor *z, ls_tensor *label)
{
    ls_output(g, "scores", z);
    ls_minimize(g, ls_cross_entropy(z, label), NULL);
    ls_report(g, "accuracy", ls_accuracy(z, label));
}

static void mlp(ls_graph *g, void *user)
{
    const model *m = user;
    ls_tensor *h = ls_relu(ls_linear(ls_input(g, "x"), "fc1", m->width));
    h = ls_dropout(h, "drop", 0.25);
    h = ls_relu(ls_linear(h, "fc2", m->width + 3));
    minimize(g, ls_linear(h, "fc3", m->classes), ls_input(g, "label"));
}

static void cnn(ls_graph *g, void *user)
{
    const model *m = user;
    ls_tensor *x = ls_scale(ls_input(g, "image"), 1.0f / 128, -1);
    ls_conv2d_options conv = { .channels = m->width, .kernel = 3, .padding = 1 };
    x = ls_max_pool2d(ls_relu(ls_conv2d(x, "conv1", &conv)), 2);
    conv.channels = 2 * m->width;
    x = ls_max_pool2d(ls_relu(ls_conv2d(x, "conv2", &conv)), 2);
    x = ls_relu(ls_linear(ls_flatten(x), "fc1", 13));
    minimize(g, ls_linear(ls_dropout(x, "drop", 0.5), "fc2", m->classes), ls_input(g, "label"));
}

static ls_tensor *conv_norm(ls_graph *g, ls_tensor *x, const char *name, int64_t channels,
                            int kernel, int stride)
{
    ls_conv2d_options conv = { .channels = channels,
                               .kernel = kernel,
                               .stride = stride,
                               .padding = kernel / 2,
                               .no_bias = true };
    ls_batch_norm_options norm = { .group = 4 };
    return ls_batch_norm_with(ls_conv2d(x, ls_name(g, "%s.conv", name), &conv),
                              ls_name(g, "%s.norm", name), &norm);
}

static ls_tensor *block(ls_graph *g, ls_tensor *x, const char *name, int64_t channels, int stride)
{
    ls_tensor *y = ls_relu(conv_norm(g, x, ls_name(g, "%s.1", name), channels, 3, stride));
    y = conv_norm(g, y, ls_name(g, "%s.2", name), channels, 3, 1);
    if (stride > 1) x = conv_norm(g, x, ls_name(g, "%s.short", name), channels, 1, stride);
    return ls_relu(ls_add(y, x));
}

static void resnet(ls_graph *g, void *user)
{
    const model *m = user;
    ls_tensor *x = ls_relu(conv_norm(g, ls_input(g, "image"), "stem", m->width, 3, 1));
    x = block(g, x, "block1", m->width, 1);
    x = block(g, x, "block2", 2 * m->width, 2);
    minimize(g, ls_linear(ls_global_avg_pool2d(x), "fc", m->classes), ls_input(g, "label"));
}

static const int64_t batches[] = { 1, 5, 67 };
static const ls_stage stages[] = { LS_STAGE_TRAIN, LS_STAGE_EVALUATE, LS_STAGE_PREDICT };

static void check_all(ls_step_fn *step, const ls_field *fields, int64_t width, double tolerance)
{
    model m = { .width = width, .classes = 10 };
    for (size_t b = 0; b < compare_batches(sizeof batches / sizeof *batches); b++) {
        for (size_t s = 0; s < sizeof stages / sizeof *stages; s++) {
            compare_options o = { .step = step,
                                  .user = &m,
                                  .stage = stages[s],
                                  .batch = batches[b],
                                  .fields = fields,
                                  .nfields = 2,
                                  .run_step = 7,
                                  .first = 40,
                                  .ignored = 4,
                                  .tolerance = tolerance };
            compare_with_reference(&o);
        }
    }
}

static void test_mlp(void **state)
{
    (void)state;
    check_all(mlp, flat_fields, 1, 0);
    check_all(mlp, flat_fields, 37, 0);
}

static void test_cnn(void **state)
{
    (void)state;
    check_all(cnn, image_fields, 5, 0);
    check_all(cnn, image_fields, 16, 0);
    check_all(cnn, image_fields, 19, 0);
}

static void test_resnet(void **state)
{
    (void)state;
    check_all(resnet, colour_fields, 3, 1e-4);
    check_all(resnet, colour_fields, 17, 1e-4);
}

/* Weights too large for tiles, and of a size that no block divides. */
static void wide(ls_graph *g, void *user)
{
    const model *m = user;
    ls_tensor *h = ls_relu(ls_linear(ls_flatten(ls_input(g, "image")), "fc1", m->width + 87));
    h = ls_relu(ls_linear(h, "fc2", m->width));
    minimize(g, ls_linear(h, "fc3", 10), ls_input(g, "label"));
}

static void test_large_weights(void **state)
{
    (void)state;
    check_all(wide, colour_fields, compare_on_cpu() ? 1013 : 131,
              0); /* a GPU's are never too large */
}

/* So many parameters for so few rows that linear layers are whole steps: what lies between them is
 * still cut by samples. */
static void deep(ls_graph *g, void *user)
{
    const int64_t width = ((const model *)user)->width;
    enum { TOKENS = 3, LAYERS = 21 };
    ls_tensor *x =
        ls_reshape(ls_flatten(ls_input(g, "image")), 2, (int64_t[]) { -1, 360 / TOKENS });
    x = ls_linear(ls_scale(x, 1 / 128.0f, -1), "in", width);
    for (int i = 0; i < LAYERS; i++)
        x = ls_add(x, ls_relu(ls_linear(x, ls_name(g, "fc%d", i), width)));
    x = ls_reshape(x, 2, (int64_t[]) { -1, TOKENS * width });
    minimize(g, ls_linear(x, "out", 10), ls_input(g, "label"));
}

static void test_many_parameters(void **state)
{
    (void)state;
    model m = { .width = compare_on_cpu() ? 901 : 31 };
    compare_options o = {
        .step = deep, .user = &m, .fields = colour_fields, .nfields = 2, .ignored = 4
    };
    for (o.batch = compare_in_full() ? 1 : 5; o.batch < 6; o.batch += 4) compare_with_reference(&o);
}

static void test_bad_label(void **state)
{
    (void)state;
    model m = { .width = 8, .classes = 10 };
    compare_options o = {
        .step = mlp, .user = &m, .batch = 131, .fields = flat_fields, .nfields = 2
    };
    compare_run_fails(&o, 37, 100, LS_ERR_DATA, "label 37 of sample 100 is not in [0, 10)");
    compare_run_fails(&o, -1, 0, LS_ERR_DATA, "label -1 of sample 0 is not in [0, 10)");
}

static int open_backend(void **state)
{
    (void)state;
    compare_backend(1);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mlp),
        cmocka_unit_test(test_cnn),
        cmocka_unit_test(test_resnet),
        cmocka_unit_test(test_large_weights),
        cmocka_unit_test(test_many_parameters),
        cmocka_unit_test(test_bad_label),
    };
    return cmocka_run_group_tests(tests, open_backend, NULL);
}
