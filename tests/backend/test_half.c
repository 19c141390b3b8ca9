/* bf16-mixed on the CPU, against a reference that rounds where the graph says so.
 *
 * The reference adds in fp64, the backend in f32. A sum that lies between two bf16 numbers may
 * therefore be stored as the other one: one unit, 2^-8 of an element, which products carry on. Two
 * units of a tensor's largest element are allowed, and every test sees that rounding is not left
 * out: f32 results lie outside of what rounding in f32 itself explains. */
#include "compare.h"
#include "testing.h"

#include <math.h>

#include <lockstep/nn.h>

static const double two_units = 2.0 / 256;

static const ls_field rows_fields[] = { { "x", LS_DTYPE_F32, 1, { 37 } },
                                        { "label", LS_DTYPE_I32, 0, { 0 } } };
static const ls_field text_fields[] = { { "x", LS_DTYPE_F32, 2, { 19, 16 } },
                                        { "label", LS_DTYPE_I32, 1, { 19 } } };
static const ls_field image_fields[] = { { "image", LS_DTYPE_U8, 3, { 1, 12, 12 } },
                                         { "label", LS_DTYPE_I32, 0, { 0 } } };

static void mlp(ls_graph *g, void *user)
{
    int64_t width = *(const int64_t *)user;
    ls_tensor *h = ls_relu(ls_linear(ls_input(g, "x"), "fc1", width));
    h = ls_relu(ls_linear(ls_dropout(h, "drop", 0.25), "fc2", width));
    ls_tensor *z = ls_linear(h, "fc3", 10);
    ls_output(g, "scores", z);
    ls_minimize(g, ls_cross_entropy(z, ls_input(g, "label")), NULL);
}

/* (B,T,C) -> (B,T,features) */
static ls_tensor *dense(ls_tensor *x, const char *name, int64_t features)
{
    int64_t batch = ls_tensor_dim(x, 0), tokens = ls_tensor_dim(x, 1);
    ls_tensor *flat = ls_reshape(x, 2, (const int64_t[]) { -1, ls_tensor_dim(x, 2) });
    return ls_reshape(ls_linear(flat, name, features), 3,
                      (const int64_t[]) { batch, tokens, features });
}

static void transformer(ls_graph *g, void *user)
{
    bool recompute = user != NULL;
    const ls_attention_options heads = { .heads = 4, .kv_heads = 2 };
    ls_tensor *x = dense(ls_input(g, "x"), "in", 32);
    if (recompute) ls_recompute_begin(g);
    ls_tensor *h = ls_attention(ls_rotary(dense(ls_layer_norm(x, "ln1"), "qkv", 64), &heads, 100),
                                "attention", &heads);
    x = ls_add(x, dense(h, "proj", 32));
    h = dense(ls_gelu_tanh(dense(ls_rms_norm(x, "ln2"), "fc", 72)), "out", 32);
    x = ls_add(x, ls_dropout(h, "drop", 0.1));
    if (recompute) x = ls_recompute_end(x);
    ls_tensor *z = dense(x, "head", 10);
    ls_output(g, "scores", z);
    ls_minimize(g, ls_cross_entropy(z, ls_input(g, "label")), NULL);
}

typedef struct attention_case {
    int64_t tokens, width;
    ls_attention_options heads;
    bool kept; /* queries, keys and values are read by others too: stored as f32, read as bf16 */
} attention_case;

static void attention_of(ls_graph *g, void *user)
{
    const attention_case *c = user;
    int64_t kv_heads = c->heads.kv_heads ? c->heads.kv_heads : c->heads.heads;
    ls_tensor *qkv = dense(ls_input(g, "x"), "qkv", (c->heads.heads + 2 * kv_heads) * c->width);
    if (c->kept) ls_output(g, "qkv", qkv);
    ls_tensor *z = dense(ls_attention(qkv, "attention", &c->heads), "scores", 4);
    ls_output(g, "scores", z);
    ls_minimize(g, ls_cross_entropy(z, ls_input(g, "label")), NULL);
}

static void cnn(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *x = ls_scale(ls_input(g, "image"), 1.0f / 128, -1);
    ls_conv2d_options conv = { .channels = 24, .kernel = 3, .padding = 1 };
    x = ls_max_pool2d(ls_relu(ls_conv2d(x, "conv1", &conv)), 2);
    x = ls_relu(ls_linear(ls_flatten(x), "fc1", 40));
    ls_tensor *z = ls_linear(x, "fc2", 10);
    ls_output(g, "scores", z);
    ls_minimize(g, ls_cross_entropy(z, ls_input(g, "label")), NULL);
}

/* Convolutions alone: blocks that are full and that are not, few channels, strides, several kernels. */
static void convolutions(ls_graph *g, void *user)
{
    int64_t channels = *(const int64_t *)user;
    ls_tensor *x = ls_scale(ls_input(g, "image"), 1.0f / 128, -1);
    ls_conv2d_options first = { .channels = channels, .kernel = 3, .padding = 1 };
    ls_conv2d_options second = { .channels = 40, .kernel = 5, .padding = 2, .stride = 2 };
    ls_conv2d_options third = { .channels = 10, .kernel = 1 };
    x = ls_max_pool2d(ls_relu(ls_conv2d(x, "conv1", &first)), 2);
    x = ls_relu(ls_conv2d(x, "conv2", &second));
    ls_tensor *z = ls_global_avg_pool2d(ls_conv2d(x, "conv3", &third));
    ls_output(g, "scores", z);
    ls_minimize(g, ls_cross_entropy(z, ls_input(g, "label")), NULL);
}

/* A head whose scores are computed in blocks of rows. */
static void language_model(ls_graph *g, void *user)
{
    int64_t classes = *(const int64_t *)user;
    ls_tensor *h = dense(ls_relu(dense(ls_input(g, "x"), "in", 96)), "up", 520);
    ls_tensor *z = dense(h, "head", classes);
    ls_minimize(g, ls_cross_entropy(z, ls_input(g, "label")), NULL);
}

static compare_options mixed(ls_step_fn *step, const void *user, const ls_field fields[2],
                             int64_t batch)
{
    return (compare_options) { .step = step,
                               .user = (void *)(uintptr_t)user,
                               .batch = batch,
                               .fields = fields,
                               .nfields = 2,
                               .tolerance = two_units,
                               .run_step = 2,
                               .misaligned = batch == 3,
                               .precision = LS_PRECISION_BF16_MIXED };
}

/* The largest difference between gradients in both precisions, of the largest gradient. */
static double difference(compare_options o)
{
    outcome half = compare_run_backend(&o);
    o.precision = LS_PRECISION_32;
    outcome full = compare_run_backend(&o);
    double most = 0, largest = 0;
    assert_int_equal(half.count, full.count);
    for (int64_t i = 0; i < full.count; i++) {
        most = fmax(most, fabs((double)half.grads[i] - (double)full.grads[i]));
        largest = fmax(largest, fabs((double)full.grads[i]));
    }
    compare_free(&half);
    compare_free(&full);
    return most / largest;
}

static void check(ls_step_fn *step, const void *user, const ls_field fields[2], int64_t batch)
{
    compare_options o = mixed(step, user, fields, batch);
    compare_with_reference(&o);
    double d = difference(o);
    /* A relu whose input is near 0 may open on one side only. */
    if (d < 1e-4 || d > 0.3)
        fail_msg("batch %lld: gradients are %g from f32's", (long long)batch, d);
    o.stage = LS_STAGE_PREDICT;
    compare_with_reference(&o);
}

static const int64_t batches[] = { 1, 3, 16, 65 };

static void an_mlp_rounds_as_the_graph_says(void **state)
{
    (void)state;
    static const int64_t widths[] = { 32, 45 };
    for (int w = 0; w < 2; w++)
        for (size_t b = 0; b < compare_batches(4); b++)
            check(mlp, &widths[w], rows_fields, batches[b]);
}

static void one_product(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *z = ls_linear(ls_input(g, "x"), "fc", 64);
    ls_output(g, "scores", z);
    ls_minimize(g, ls_cross_entropy(z, ls_input(g, "label")), NULL);
}

/* The product of two bf16 numbers is an f32 number: with nothing to add up but a bias, the factors'
 * rounding must be that of the reference in every bit. */
static void factors_are_rounded_to_nearest_even(void **state)
{
    (void)state;
    static const ls_field fields[] = { { "x", LS_DTYPE_F32, 1, { 1 } },
                                       { "label", LS_DTYPE_I32, 0, { 0 } } };
    compare_options o = mixed(one_product, NULL, fields, 200);
    o.stage = LS_STAGE_PREDICT;
    o.tolerance = 2e-7;
    compare_with_reference(&o);
}

/* On a GPU tf32 keeps 10 bits of the factors of linear layers; a CPU computes as in f32. */
static void tf32_rounds_where_it_is(void **state)
{
    (void)state;
    static const int64_t width = 45;
    compare_options o = mixed(mlp, &width, rows_fields, 16);
    o.precision = LS_PRECISION_TF32;
    o.tolerance = 4e-3;
    compare_with_reference(&o);
    double d = difference(o);
    if (compare_on_cpu() ? d != 0 : d < 1e-6 || d > 0.1) fail_msg("gradients are %g from f32's", d);
}

static void large_weights_too(void **state)
{
    (void)state;
    if (!compare_on_cpu()) skip();
    static const int64_t width = 1100; /* 1100 x 1100: whole steps over blocks */
    check(mlp, &width, rows_fields, 20);
}

static void a_transformer_rounds_as_the_graph_says(void **state)
{
    (void)state;
    for (size_t b = 0; b < compare_batches(3); b++)
        check(transformer, NULL, text_fields, batches[b]);
}

/* Heads that fill what multiplies bf16 numbers, that do not, and that are wider; one tile of tokens
 * and several; keys shared, seen by all, and stored as f32. */
static void heads_of_any_width_round(void **state)
{
    (void)state;
    static const attention_case cases[] = {
        { .tokens = 19, .width = 1, .heads = { .heads = 2 } },
        { .tokens = 70, .width = 7, .heads = { .heads = 4, .kv_heads = 2 } },
        { .tokens = 64, .width = 64, .heads = { .heads = 2, .kv_heads = 1 } },
        { .tokens = 130, .width = 64, .heads = { .heads = 1 }, .kept = true },
        { .tokens = 65, .width = 80, .heads = { .heads = 2, .kv_heads = 1, .full = true } },
        { .tokens = 67, .width = 128, .heads = { .heads = 2 } },
        { .tokens = 70, .width = 200, .heads = { .heads = 2, .kv_heads = 1 } },
        { .tokens = 65, .width = 256, .heads = { .heads = 1, .full = true } },
        { .tokens = 70, .width = 300, .heads = { .heads = 2, .kv_heads = 1 } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const ls_field fields[] = { { "x", LS_DTYPE_F32, 2, { cases[i].tokens, 5 } },
                                    { "label", LS_DTYPE_I32, 1, { cases[i].tokens } } };
        compare_options o = mixed(attention_of, &cases[i], fields, i < 3 ? 2 : 1);
        o.classes = 4;
        compare_with_reference(&o);
        double d = difference(o);
        if (d < 1e-4 || d > 0.3) fail_msg("case %zu: gradients are %g from f32's", i, d);
    }
}

static void a_head_in_blocks_rounds_too(void **state)
{
    (void)state;
    const int64_t classes = compare_on_cpu() ? 10007 : 1009; /* a GPU has no blocks */
    compare_options o = mixed(language_model, &classes, text_fields, 3);
    compare_with_reference(&o);
    double d = difference(o);
    if (d < 1e-4 || d > 0.3) fail_msg("gradients are %g from f32's", d);
}

static void the_linear_layers_of_a_cnn_round(void **state)
{
    (void)state;
    check(cnn, NULL, image_fields, 9);
}

static void convolutions_round(void **state)
{
    (void)state;
    if (!compare_on_cpu()) skip();
    static const int64_t channels[] = { 32, 24, 6 };
    for (int c = 0; c < 3; c++)
        for (size_t b = 0; b < compare_batches(3); b++)
            check(convolutions, &channels[c], image_fields, batches[b]);
}

static void recomputation_has_the_same_bits(void **state)
{
    (void)state;
    static const int yes;
    compare_options o = mixed(transformer, NULL, text_fields, 6), again = o;
    again.user = (void *)(uintptr_t)&yes;
    outcome once = compare_run_backend(&o), twice = compare_run_backend(&again);
    assert_int_equal(compare_checksum(&once), compare_checksum(&twice));
    compare_free(&once);
    compare_free(&twice);
}

static void wide(ls_graph *g, void *user)
{
    (void)user;
    ls_output(g, "scores", ls_linear(ls_linear(ls_input(g, "x"), "wide", 2048), "fc", 10));
}

/* A product with a bias that is stored as bf16 is nowhere stored as f32. */
static void a_bias_takes_no_second_product(void **state)
{
    (void)state;
    enum { BATCH = 256 };
    ls__graph_options options = { .stage = LS_STAGE_PREDICT,
                                  .batch = BATCH,
                                  .fields = rows_fields,
                                  .nfields = 2,
                                  .precision = LS_PRECISION_BF16_MIXED };
    ls_graph *g;
    ls__executable *e;
    assert_ok(ls__graph_build(wide, NULL, &options, &g));
    assert_ok(compare_backend(2)->compile(g, &e));
    assert_in_range(compare_memory(e), 1, BATCH * 2048 * sizeof(float) - 1);
    compare_backend(2)->destroy(e);
    ls__graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_mlp_rounds_as_the_graph_says),
        cmocka_unit_test(factors_are_rounded_to_nearest_even),
        cmocka_unit_test(tf32_rounds_where_it_is),
        cmocka_unit_test(large_weights_too),
        cmocka_unit_test(a_transformer_rounds_as_the_graph_says),
        cmocka_unit_test(heads_of_any_width_round),
        cmocka_unit_test(a_head_in_blocks_rounds_too),
        cmocka_unit_test(the_linear_layers_of_a_cnn_round),
        cmocka_unit_test(convolutions_round),
        cmocka_unit_test(recomputation_has_the_same_bits),
        cmocka_unit_test(a_bias_takes_no_second_product),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
