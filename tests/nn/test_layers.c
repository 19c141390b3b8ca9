/* Layers in training and outside it: cutting a batch changes nothing, masks are functions of their
 * key, integers come in, labels out of range are named. On the plain executor and on the CPU's. */
#include "golden.h"

#include <math.h>

#include <lockstep/nn.h>

#include "graph/ops.h"
#include "testing.h"

enum { BATCH = 12, WIDTH = 7 };

static const ls_field fields[] = { { "x", LS_DTYPE_F32, 1, { WIDTH } },
                                   { "label", LS_DTYPE_I32, 0, { 0 } },
                                   { "image", LS_DTYPE_U8, 3, { 1, 40, 37 } } };

static float x[BATCH * WIDTH];
static int32_t labels[BATCH];
static uint8_t images[BATCH * 40 * 37];

static const ls__backend *const *backends(void)
{
    static const ls__backend *both[3] = { &reference_backend };
    if (!both[1]) both[1] = execution_backend(2);
    return both;
}

static int fill_data(void **state)
{
    (void)state;
    for (int i = 0; i < BATCH * WIDTH; i++) x[i] = sinf((float)(i * i)) + 0.1f;
    for (int i = 0; i < BATCH; i++) labels[i] = i % WIDTH;
    for (int i = 0; i < BATCH * 40 * 37; i++) images[i] = (uint8_t)(i * 31 / 7);
    return 0;
}

/* Opens samples [first, first + count) of the batch. */
static void open_part(execution *e, const ls__backend *backend, ls_step_fn *step, ls_stage stage,
                      int64_t first, int64_t count)
{
    ls__graph_options options = { .stage = stage,
                                  .batch = count,
                                  .fields = fields,
                                  .nfields = 3,
                                  .input_gradients = stage == LS_STAGE_TRAIN };
    execution_open(e, backend, step, NULL, &options);
    e->fields[0] = x + first * WIDTH;
    e->fields[1] = labels + first;
    e->fields[2] = images + first * 40 * 37;
    e->context.first = first;
    e->context.seed = 4;
    e->context.step = (1LL << 40) + 9;
}

/* --- dropout --- */

static void dropout_step(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *in = ls_input(g, "x"), *one = ls_dropout(in, "one", 0.3);
    ls_report(g, "one", one);
    ls_report(g, "two", ls_dropout(in, "two", 0.3));
    ls_report(g, "all", ls_dropout(in, "all", 1));
    ls_minimize(g, ls_linear(one, "fc", 1), NULL);
}

static void test_dropout(void **state)
{
    (void)state;
    for (const ls__backend *const *b = backends(); *b; b++) {
        execution whole, part;
        open_part(&whole, *b, dropout_step, LS_STAGE_TRAIN, 0, BATCH);
        assert_ok(execution_run(&whole));
        const float *one = execution_result(&whole, "one").data;
        const float *two = execution_result(&whole, "two").data;
        const float *all = execution_result(&whole, "all").data;
        const float *grad = execution_result(&whole, "gradient of x").data;
        int dropped = 0, different = 0;
        for (int i = 0; i < BATCH * WIDTH; i++) {
            assert_true(one[i] == 0 || fabsf(one[i] - x[i] / 0.7f) < 1e-6f);
            assert_true((one[i] == 0) == (grad[i] == 0)); /* the same mask on the way back */
            assert_true(all[i] == 0);
            dropped += one[i] == 0;
            different += (one[i] == 0) != (two[i] == 0);
        }
        assert_in_range(dropped, 13, 38); /* 84 * 0.3 = 25 +- 3 deviations */
        assert_in_range(different, 20, 52);
        open_part(&part, *b, dropout_step, LS_STAGE_TRAIN, 5, 4);
        assert_ok(execution_run(&part));
        assert_memory_equal(execution_result(&part, "one").data, one + 5 * WIDTH,
                            4 * WIDTH * sizeof(float));
        part.context.step++;
        assert_ok(execution_run(&part));
        assert_memory_not_equal(execution_result(&part, "one").data, one + 5 * WIDTH,
                                4 * WIDTH * sizeof(float));
        execution_close(&part);
        execution_close(&whole);
    }
}

static void test_no_dropout_outside_training(void **state)
{
    (void)state;
    for (const ls__backend *const *b = backends(); *b; b++) {
        execution e;
        open_part(&e, *b, dropout_step, LS_STAGE_EVALUATE, 0, 3);
        assert_ok(execution_run(&e));
        assert_memory_equal(execution_result(&e, "one").data, x, 3 * WIDTH * sizeof(float));
        execution_close(&e);
    }
}

/* --- batch norm --- */

static void norm_step(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *y =
        ls_batch_norm_with(ls_input(g, "x"), "norm", &(ls_batch_norm_options) { .group = 4 });
    ls_report(g, "y", y);
    ls_minimize(g, ls_cross_entropy(y, ls_input(g, "label")), NULL);
}

static void test_norm_does_not_see_how_the_batch_is_cut(void **state)
{
    (void)state;
    for (const ls__backend *const *b = backends(); *b; b++) {
        execution e[3];
        const int64_t first[] = { 0, 0, 4 }, count[] = { BATCH, 4, 8 };
        const float *sums[3], *y[3];
        for (int i = 0; i < 3; i++) {
            int64_t channels;
            open_part(&e[i], *b, norm_step, LS_STAGE_TRAIN, first[i], count[i]);
            assert_int_equal(ls__graph_group(e[i].graph), 4);
            assert_ok(execution_run(&e[i]));
            y[i] = execution_result(&e[i], "y").data;
            sums[i] = execution_grad(&e[i], "norm.running_var", &channels);
        }
        assert_memory_equal(y[1], y[0], 4 * WIDTH * sizeof(float));
        assert_memory_equal(y[2], y[0] + 4 * WIDTH, 8 * WIDTH * sizeof(float));
        for (int c = 0; c < WIDTH; c++)
            assert_true(fabsf(sums[1][c] + sums[2][c] - sums[0][c]) < 1e-5f * fabsf(sums[0][c]));
        for (int i = 0; i < 3; i++) execution_close(&e[i]);
    }
}

static void test_norm_evaluates_with_running_statistics(void **state)
{
    (void)state;
    for (const ls__backend *const *b = backends(); *b; b++) {
        execution e;
        int64_t channels;
        open_part(&e, *b, norm_step, LS_STAGE_EVALUATE, 0, 5);
        float *mean = execution_param(&e, "norm.running_mean", &channels);
        float *variance = execution_param(&e, "norm.running_var", &channels);
        assert_true(mean[2] == 0 && variance[2] == 1);
        mean[2] = 0.5f;
        variance[2] = 4;
        assert_ok(execution_run(&e));
        const float *y = execution_result(&e, "y").data;
        assert_true(fabsf(y[WIDTH + 2] - (x[WIDTH + 2] - 0.5f) / 2) < 1e-5f);
        assert_true(fabsf(y[WIDTH + 3] - x[WIDTH + 3]) < 1e-5f);
        execution_close(&e);
    }
}

/* --- integers, large windows --- */

static void image_step(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *image = ls_scale(ls_input(g, "image"), 1 / 127.5f, -1);
    ls_tensor *top = ls_max_pool2d(image, 18); /* (B,1,2,2): indices beyond a byte */
    ls_report(g, "top", top);
    ls_minimize(g, ls_cross_entropy(ls_linear(top, "fc", WIDTH), ls_input(g, "label")), NULL);
}

static void test_bytes_and_large_windows(void **state)
{
    (void)state;
    for (const ls__backend *const *b = backends(); *b; b++) {
        execution e;
        open_part(&e, *b, image_step, LS_STAGE_TRAIN, 0, 3);
        assert_ok(execution_run(&e));
        const float *top = execution_result(&e, "top").data;
        for (int n = 0; n < 12; n++) {
            const uint8_t *image = images + n / 4 * 40 * 37 + n / 2 % 2 * 18 * 37 + n % 2 * 18;
            int best = 0;
            for (int i = 0; i < 18 * 18; i++) {
                int value = image[i / 18 * 37 + i % 18];
                best = value > best ? value : best;
            }
            assert_true(fabs((double)top[n] - (best / 127.5 - 1)) < 1e-6);
        }
        execution_close(&e);
    }
}

/* --- labels --- */

static void test_a_label_out_of_range_is_named(void **state)
{
    (void)state;
    for (const ls__backend *const *b = backends(); *b; b++) {
        const int32_t bad[] = { WIDTH, -1, -101, INT32_MIN, INT32_MAX };
        execution e;
        open_part(&e, *b, norm_step, LS_STAGE_TRAIN, 0, BATCH);
        for (int i = 0; i < 5; i++) {
            labels[9] = bad[i];
            char text[32];
            snprintf(text, sizeof text, "label %d", bad[i]);
            assert_fails(execution_run(&e), LS_ERR_DATA, text);
            assert_non_null(strstr(ls_error_text(), "9"));
        }
        labels[9] = LS__LABEL_IGNORED;
        assert_ok(execution_run(&e));
        const float *weights = execution_weights(&e, "loss").data;
        for (int i = 0; i < BATCH; i++) assert_true(weights[i] == (i != 9));
        labels[9] = 9 % WIDTH;
        execution_close(&e);
    }
}

/* --- first values: PyTorch's distributions --- */

static void conv_step(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *y = ls_conv2d(ls_scale(ls_input(g, "image"), 1, 0), "conv",
                             &(ls_conv2d_options) { .channels = 64, .kernel = 5, .stride = 9 });
    y = ls_global_avg_pool2d(y);
    ls_minimize(g, ls_cross_entropy(ls_linear(y, "fc", WIDTH), ls_input(g, "label")), NULL);
}

static void check_uniform(execution *e, const char *name, double bound)
{
    int64_t count;
    const float *values = execution_param(e, name, &count);
    double squares = 0, top = 0;
    for (int64_t i = 0; i < count; i++) {
        squares += (double)values[i] * (double)values[i] / (double)count;
        top = fmax(top, fabs((double)values[i]));
    }
    assert_true(top <= bound && top > 0.7 * bound);
    assert_true(sqrt(squares) > 0.75 * bound / sqrt(3) && sqrt(squares) < 1.25 * bound / sqrt(3));
}

static void test_first_values(void **state)
{
    (void)state;
    execution e;
    open_part(&e, &reference_backend, conv_step, LS_STAGE_TRAIN, 0, 1);
    check_uniform(&e, "conv.weight", 1 / sqrt(25));
    check_uniform(&e, "conv.bias", 1 / sqrt(25));
    check_uniform(&e, "fc.weight", 1 / sqrt(64));
    execution_close(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_no_dropout_outside_training),
        cmocka_unit_test(test_norm_does_not_see_how_the_batch_is_cut),
        cmocka_unit_test(test_norm_evaluates_with_running_statistics),
        cmocka_unit_test(test_bytes_and_large_windows),
        cmocka_unit_test(test_a_label_out_of_range_is_named),
        cmocka_unit_test(test_first_values),
    };
    return cmocka_run_group_tests(tests, fill_data, NULL);
}
