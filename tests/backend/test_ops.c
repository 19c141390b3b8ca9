/* Every operation at odd shapes: ones, primes, what is no multiple of 16, batches of one and tiles
 * that do not divide the batch; values and gradients against the reference executor. */
#include "compare.h"
#include "testing.h"

#include <math.h>

#include <lockstep/nn.h>

enum kind {
    LINEAR,
    CONV,
    MAX_POOL,
    AVG_POOL,
    GLOBAL_POOL,
    NORM,
    RELU,
    ADD,
    MUL,
    SCALE,
    DROPOUT,
    RESHAPE,
    TIED,
    PARAM_IMAGE,
};

typedef struct op_case {
    enum kind kind;
    int64_t features; /* linear; channels of a convolution before the operation, 0 = none */
    int kernel, stride, padding;
    int group;
    bool relu;
    float offset;
} op_case;

static ls_tensor *convolved(ls_tensor *x, const char *name, int64_t channels, int kernel,
                            int stride, int padding)
{
    ls_conv2d_options o = {
        .channels = channels,
        .kernel = kernel,
        .stride = stride,
        .padding = padding,
        .no_bias = strcmp(name, "first") == 0, /* its gradient before a norm: rounding only */
    };
    return ls_conv2d(x, name, &o);
}

static ls_tensor *norm(ls_tensor *x, const op_case *c)
{
    ls_batch_norm_options o = { .group = c->group };
    return ls_batch_norm_with(x, "norm", &o);
}

/* One layer's weights in two places, and a parameter added to itself. */
static ls_tensor *tied(ls_tensor *x, const op_case *c)
{
    (void)c;
    ls_tensor *flat = ls_flatten(x);
    int64_t n = ls_tensor_dim(flat, 1);
    ls_tensor *h = ls_linear(flat, "same", n);
    return ls_add(ls_linear(ls_relu(h), "same", n), h);
}

/* A convolution and a pool of parameters only, which no tile can cut. */
static ls_tensor *param_image(ls_graph *g, ls_tensor *x, const op_case *c)
{
    ls_init init = { .kind = LS_INIT_UNIFORM, .scale = 1 };
    int64_t batch = ls_tensor_dim(x, 0), channels = ls_tensor_dim(x, 1);
    const int64_t shape[] = { batch, channels, 6, 4 };
    ls_tensor *image = ls_param(g, "image", &init, 4, shape);
    ls_tensor *y = ls_relu(convolved(image, "conv", c->features, 3, 1, 1));
    y = ls_max_pool2d(ls_add(y, convolved(image, "conv2", c->features, 3, 1, 1)), 2);
    return ls_add(ls_linear(y, "from_param", 3), ls_linear(x, "from_input", 3));
}

static ls_tensor *apply(ls_graph *g, ls_tensor *x, const op_case *c)
{
    bool first = c->features && c->kind != LINEAR && c->kind != CONV && c->kind != PARAM_IMAGE;
    if (first) x = convolved(x, "first", c->features, 3, 1, 1);
    switch (c->kind) {
    case LINEAR:
        return ls_linear(x, "op", c->features);
    case CONV:
        return convolved(x, "op", c->features, c->kernel, c->stride, c->padding);
    case MAX_POOL:
        return ls_max_pool2d(x, c->kernel);
    case AVG_POOL:
        return ls_avg_pool2d(x, c->kernel);
    case GLOBAL_POOL:
        return ls_global_avg_pool2d(x);
    case NORM:
        return norm(x, c);
    case RELU:
        return ls_relu(ls_scale(x, 1, 0));
    case ADD:
        return ls_add(ls_scale(x, 2, c->offset), ls_add(x, x));
    case MUL:
        return ls_mul(ls_relu(x), ls_mul(x, x));
    case SCALE:
        return ls_scale(x, -3, c->offset);
    case DROPOUT:
        return ls_dropout(x, "op", 0.3);
    case RESHAPE:
        return ls_reshape(x, 2, (const int64_t[]) { ls_tensor_dim(x, 0), -1 });
    case TIED:
        return tied(x, c);
    case PARAM_IMAGE:
        return param_image(g, x, c);
    }
    return NULL;
}

static void one_op(ls_graph *g, void *user)
{
    const op_case *c = user;
    ls_tensor *y = apply(g, ls_input(g, "x"), c);
    if (c->relu) y = ls_relu(y);
    if (ls_tensor_rank(y) == 4 && c->kind != GLOBAL_POOL) { /* a second reader, in another layout */
        ls_tensor *again = convolved(y, "behind", 5, 1, 1, 0);
        ls_output(g, "again", again);
        y = ls_add(ls_linear(y, "scores", 4), ls_linear(again, "more_scores", 4));
    } else {
        ls_output(g, "y", y);
        y = ls_linear(y, "scores", 4);
    }
    ls_minimize(g, ls_cross_entropy(y, ls_input(g, "label")), NULL);
}

/* x of (B, shape), label of four classes. */
static void check_on(const op_case *c, int64_t batch, int rank, const int64_t *shape,
                     double tolerance)
{
    ls_field fields[] = { { "x", LS_DTYPE_F32, rank, { 0 } }, { "label", LS_DTYPE_U8, 0, { 0 } } };
    memcpy(fields[0].shape, shape, (size_t)rank * sizeof *shape);
    compare_options o = { .step = one_op,
                          .user = (void *)c,
                          .batch = batch,
                          .fields = fields,
                          .nfields = 2,
                          .classes = 4,
                          .input_gradients = true,
                          .tolerance = tolerance };
    o.misaligned = batch == 3;
    compare_with_reference(&o);
    o.stage = LS_STAGE_EVALUATE;
    compare_with_reference(&o);
}

static const int64_t batches[] = { 1, 3, 67 };
#define FOR_BATCHES(b)                                                                             \
    for (size_t b = 0; b < compare_batches(sizeof batches / sizeof *batches); b++)

static void test_linear(void **state)
{
    (void)state;
    static const int64_t sizes[] = { 1, 3, 16, 31, 130 };
    FOR_BATCHES(b)
    for (size_t i = 0; i < 5; i++)
        for (size_t k = 0; k < 5; k++) {
            op_case c = { .kind = LINEAR, .features = sizes[i], .relu = i % 2 };
            check_on(&c, batches[b], 1, &sizes[k], 0);
        }
}

static void test_conv2d(void **state)
{
    (void)state;
    static const struct {
        int64_t in, out, height, width;
        int kernel, stride, padding;
    } cases[] = {
        { 1, 1, 5, 7, 3, 1, 1 },    { 1, 32, 9, 9, 3, 1, 1 },  { 3, 16, 8, 11, 5, 2, 2 },
        { 16, 16, 7, 7, 3, 1, 1 },  { 17, 31, 6, 5, 3, 1, 0 }, { 32, 48, 5, 5, 1, 1, 0 },
        { 2, 19, 13, 4, 4, 3, 1 },  { 33, 5, 4, 4, 3, 2, 1 },  { 8, 8, 10, 10, 7, 1, 3 },
        { 16, 32, 8, 8, 1, 2, 0 },  { 20, 20, 3, 3, 3, 1, 2 }, { 5, 64, 1, 1, 1, 1, 0 },
        { 1, 7, 12, 12, 11, 4, 5 }, { 64, 64, 3, 2, 3, 1, 1 },
    };
    FOR_BATCHES(b)
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        op_case c = { .kind = CONV,
                      .features = cases[i].out,
                      .kernel = cases[i].kernel,
                      .stride = cases[i].stride,
                      .padding = cases[i].padding,
                      .relu = i % 2 };
        const int64_t shape[] = { cases[i].in, cases[i].height, cases[i].width };
        check_on(&c, batches[b], 3, shape, 0);
    }
}

static void test_pools(void **state)
{
    (void)state;
    static const enum kind kinds[] = { MAX_POOL, AVG_POOL, GLOBAL_POOL };
    static const int64_t channels[] = { 0, 5, 16, 35 };
    static const int64_t shape[] = { 3, 19, 17 };
    static const int sizes[] = { 1, 2, 3, 5, 17 };
    FOR_BATCHES(b)
    for (size_t k = 0; k < 3; k++)
        for (size_t i = 0; i < 4; i++)
            for (size_t s = 0; s < 5; s++) {
                if (batches[b] > 3 && s > 1) continue;
                op_case c = {
                    .kind = kinds[k], .features = channels[i], .kernel = sizes[s], .relu = s == 2
                };
                check_on(&c, batches[b], 3, shape, 1e-4);
            }
}

static void test_batch_norm(void **state)
{
    (void)state;
    static const int64_t shapes[][4] = { { 1 },       { 5 },       { 16 },         { 37 },
                                         { 3, 5, 4 }, { 6, 3 },    { 2, 3, 2, 5 }, { 18, 1, 1 },
                                         { 1, 8, 8 }, { 4, 7, 1 }, { 16, 6, 6 } };
    static const int ranks[] = { 1, 1, 1, 1, 3, 2, 4, 3, 3, 3, 3 };
    static const int groups[] = { 4, 7, 16, 100 };
    FOR_BATCHES(b)
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
        for (size_t k = 0; k < 4; k++) {
            op_case c = { .kind = NORM, .group = groups[k], .relu = k == 1 };
            if (batches[b] < 3 && ranks[i] == 1) continue; /* variance 0: differences of rounding */
            check_on(&c, batches[b], ranks[i], shapes[i], 3e-4);
            if (ranks[i] != 3) continue;
            c.features = 18;
            check_on(&c, batches[b], ranks[i], shapes[i], 3e-4);
        }
}

static void test_elementwise(void **state)
{
    (void)state;
    static const enum kind kinds[] = { RELU, ADD, MUL, SCALE, DROPOUT, RESHAPE, TIED };
    static const int64_t shape[] = { 3, 5, 4 };
    static const int64_t channels[] = { 0, 5, 16, 33 };
    FOR_BATCHES(b)
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t i = 0; i < 4; i++) {
            op_case c = {
                .kind = kinds[k], .features = channels[i], .offset = 0.5f, .relu = i == 2
            };
            if (kinds[k] == TIED && i) continue;
            check_on(&c, batches[b], 3, shape, 0);
            c.offset = 0;
            check_on(&c, batches[b], 3, shape, 0);
        }
}

static void test_whole_steps(void **state)
{
    (void)state;
    static const int64_t shape[] = { 3, 5, 4 };
    for (int64_t channels = 3; channels < 40; channels += 13) FOR_BATCHES(b)
        {
            op_case c = { .kind = PARAM_IMAGE, .features = channels };
            check_on(&c, batches[b], 3, shape, 0);
        }
}

/* --- types of inputs, labels of several targets --- */

static void many_targets(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *x = ls_input(g, "x"), *rows = ls_reshape(x, 2, (const int64_t[]) { -1, 6 });
    ls_tensor *z = ls_linear(ls_relu(ls_linear(rows, "fc1", 9)), "fc2", 11);
    z = ls_reshape(z, 3, (const int64_t[]) { ls_tensor_dim(x, 0), 7, 11 });
    ls_minimize(g, ls_cross_entropy(z, ls_input(g, "label")), NULL);
    ls_report(g, "accuracy", ls_accuracy(z, ls_input(g, "label")));
}

static void test_many_targets(void **state)
{
    (void)state;
    static const ls_dtype types[] = { LS_DTYPE_I32, LS_DTYPE_I64, LS_DTYPE_U8 };
    for (size_t t = 0; t < 3; t++) FOR_BATCHES(b)
        {
            const ls_field fields[] = { { "x", LS_DTYPE_F32, 2, { 7, 6 } },
                                        { "label", types[t], 1, { 7 } } };
            compare_options o = { .step = many_targets,
                                  .batch = batches[b],
                                  .fields = fields,
                                  .nfields = 2,
                                  .ignored = 3,
                                  .input_gradients = true };
            compare_with_reference(&o);
            if (types[t] != LS_DTYPE_I32) continue;
            compare_run_fails(&o, 11, 7 * batches[b] - 1, LS_ERR_DATA, "label 11 of sample");
        }
}

/* Scores far apart: the exponentials of most underflow. */
static void many_classes(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *z = ls_scale(ls_input(g, "x"), 90, 0);
    ls_output(g, "scores", z);
    ls_tensor *w = ls_linear(ls_scale(ls_input(g, "x"), 1, 0), "fc", 301);
    ls_minimize(g, ls_cross_entropy(ls_add(z, w), ls_input(g, "label")), NULL);
}

static void test_many_classes(void **state)
{
    (void)state;
    const ls_field fields[] = { { "x", LS_DTYPE_F32, 1, { 301 } },
                                { "label", LS_DTYPE_I32, 0, { 0 } } };
    compare_options o = { .step = many_classes,
                          .batch = 67,
                          .fields = fields,
                          .nfields = 2,
                          .classes = 301,
                          .input_gradients = true,
                          .tolerance = 1e-5 };
    compare_with_reference(&o);
}

static void integers(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *x = ls_scale(ls_input(g, "x"), 0.25f, -1);
    ls_minimize(g, ls_cross_entropy(ls_linear(x, "fc", 4), ls_input(g, "label")), NULL);
}

static void test_integer_inputs(void **state)
{
    (void)state;
    static const ls_dtype types[] = { LS_DTYPE_U8, LS_DTYPE_I32, LS_DTYPE_I64, LS_DTYPE_F32 };
    for (size_t t = 0; t < 4; t++) {
        const ls_field fields[] = { { "x", types[t], 1, { 13 } },
                                    { "label", LS_DTYPE_I32, 0, { 0 } } };
        compare_options o = {
            .step = integers, .batch = 67, .fields = fields, .nfields = 2, .classes = 4
        };
        compare_with_reference(&o);
    }
}

/* --- NaN goes through everything: divergence must show --- */

static void with_nan(ls_graph *g, void *user)
{
    const op_case *c = user;
    float *values = malloc(16 * sizeof *values);
    for (int i = 0; i < 16; i++) values[i] = i == 5 ? NAN : (float)i - 8;
    ls_tensor *bad = ls_constant(g, values, 2, (const int64_t[]) { 1, 16 });
    free(values);
    ls_tensor *x = ls_linear(ls_input(g, "x"), "fc", 16);
    x = ls_mul(x, bad); /* one sample: NaN in one feature */
    if (c->kind != LINEAR) x = ls_reshape(x, 4, (const int64_t[]) { 1, 1, 4, 4 });
    ls_output(g, "y", apply(g, x, c)), ls_output(g, "relu", ls_relu(apply(g, x, c)));
    ls_minimize(g, ls_cross_entropy(ls_linear(x, "scores", 4), ls_input(g, "label")), NULL);
}

static void test_nan(void **state)
{
    (void)state;
    static const ls_field fields[] = { { "x", LS_DTYPE_F32, 1, { 3 } },
                                       { "label", LS_DTYPE_I32, 0, { 0 } } };
    static const enum kind kinds[] = { LINEAR, CONV, MAX_POOL, AVG_POOL, GLOBAL_POOL, ADD };
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        op_case c = { .kind = kinds[k], .features = kinds[k] <= CONV ? 16 : 0, .kernel = 2 };
        compare_options o = {
            .step = with_nan, .user = &c, .batch = 1, .fields = fields, .nfields = 2, .classes = 4
        };
        compare_with_reference(&o);
        c.features = kinds[k] == MAX_POOL || kinds[k] == AVG_POOL ? 16 : c.features;
        compare_with_reference(&o);
    }
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
        cmocka_unit_test(test_linear),         cmocka_unit_test(test_conv2d),
        cmocka_unit_test(test_pools),          cmocka_unit_test(test_batch_norm),
        cmocka_unit_test(test_elementwise),    cmocka_unit_test(test_whole_steps),
        cmocka_unit_test(test_many_targets),   cmocka_unit_test(test_many_classes),
        cmocka_unit_test(test_integer_inputs), cmocka_unit_test(test_nan),
    };
    return cmocka_run_group_tests(tests, open_backend, NULL);
}
