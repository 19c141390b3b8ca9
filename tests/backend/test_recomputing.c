/* Computing again in the backward pass: the same bits as without, in an arena that is smaller. */
#include "compare.h"
#include "testing.h"

#include <lockstep/nn.h>

typedef struct net {
    int blocks;
    bool recompute;
} net;

/* --- a block of a transformer, but for attention --- */

static const ls_field token_fields[] = { { "x", LS_DTYPE_F32, 2, { 24, 32 } },
                                         { "label", LS_DTYPE_I32, 1, { 24 } } };

static ls_tensor *token_block(ls_graph *g, ls_tensor *x, int i)
{
    int64_t b = ls_tensor_dim(x, 0), t = ls_tensor_dim(x, 1), c = ls_tensor_dim(x, 2);
    ls_tensor *rows = ls_reshape(x, 2, (const int64_t[]) { b * t, c });
    ls_tensor *h = ls_linear(rows, ls_name(g, "%d.fc1", i), 4 * c);
    ls_tensor *gate = ls_param(g, ls_name(g, "%d.gate", i), &(ls_init) { LS_INIT_UNIFORM, 1 }, 1,
                               (const int64_t[]) { 4 * c });
    h = ls_mul(ls_relu(h), ls_add(h, gate));
    h = ls_reshape(ls_linear(h, ls_name(g, "%d.fc2", i), c), 3, (const int64_t[]) { b, t, c });
    h = ls_dropout(h, ls_name(g, "%d.drop", i), 0.3);
    h = ls_transpose(ls_batch_norm(ls_transpose(h, 1, 2), ls_name(g, "%d.norm", i)), 1, 2);
    return ls_add(
        x, ls_concat((ls_tensor *[]) { ls_narrow(h, 2, 0, 16), ls_narrow(h, 2, 16, 16) }, 2, 2));
}

static void token_net(ls_graph *g, void *user)
{
    const net *n = user;
    ls_tensor *x = ls_input(g, "x");
    for (int i = 0; i < n->blocks; i++) {
        if (n->recompute) ls_recompute_begin(g);
        x = token_block(g, x, i);
        if (n->recompute) x = ls_recompute_end(x);
    }
    int64_t rows = ls_tensor_dim(x, 0) * ls_tensor_dim(x, 1);
    ls_tensor *z = ls_linear(ls_reshape(x, 2, (const int64_t[]) { rows, 32 }), "head", 10);
    z = ls_reshape(z, 3, (const int64_t[]) { -1, 24, 10 });
    ls_minimize(g, ls_cross_entropy(z, ls_input(g, "label")), NULL);
    ls_report(g, "accuracy", ls_accuracy(z, ls_input(g, "label")));
}

/* --- a transformer --- */

static ls_tensor *transformer_block(ls_graph *g, ls_tensor *x, int i)
{
    static const ls_attention_options heads = { .heads = 4, .kv_heads = 2 };
    int64_t c = ls_tensor_dim(x, 2);
    ls_linear_options o = { .features = 2 * c, .rows = true };
    ls_tensor *h = ls_layer_norm(x, ls_name(g, "%d.norm1", i));
    h = ls_rotary(ls_linear_with(h, ls_name(g, "%d.qkv", i), &o), &heads, 0);
    h = ls_attention(h, ls_name(g, "%d.attention", i), &heads);
    o.features = c;
    h = ls_linear_with(h, ls_name(g, "%d.out", i), &o);
    x = ls_add(x, ls_dropout(h, ls_name(g, "%d.drop1", i), 0.2));
    h = ls_rms_norm(x, ls_name(g, "%d.norm2", i));
    o.features = 4 * c;
    ls_tensor *gate = ls_silu(ls_linear_with(h, ls_name(g, "%d.gate", i), &o));
    h = ls_mul(ls_gelu_tanh(ls_linear_with(h, ls_name(g, "%d.fc1", i), &o)), gate);
    o.features = c;
    h = ls_linear_with(h, ls_name(g, "%d.fc2", i), &o);
    return ls_add(x, ls_dropout(h, ls_name(g, "%d.drop2", i), 0.2));
}

static void transformer(ls_graph *g, void *user)
{
    const net *n = user;
    ls_tensor *x = ls_position_embedding(ls_input(g, "x"), "position", 24, 0.1);
    for (int i = 0; i < n->blocks; i++) {
        if (n->recompute) ls_recompute_begin(g);
        x = transformer_block(g, x, i);
        if (n->recompute) x = ls_recompute_end(x);
    }
    ls_tensor *z = ls_linear_with(x, "head", &(ls_linear_options) { .features = 10, .rows = true });
    ls_minimize(g, ls_cross_entropy(z, ls_input(g, "label")), NULL);
    ls_report(g, "accuracy", ls_accuracy(z, ls_input(g, "label")));
}

/* --- residual blocks of convolutions: layouts and fused steps --- */

static const ls_field image_fields[] = { { "image", LS_DTYPE_F32, 3, { 3, 12, 10 } },
                                         { "label", LS_DTYPE_I32, 0, { 0 } } };

static ls_tensor *conv_norm(ls_tensor *x, const char *name, const char *norm, int64_t channels)
{
    ls_conv2d_options o = { .channels = channels, .kernel = 3, .padding = 1, .no_bias = true };
    return ls_batch_norm_with(ls_conv2d(x, name, &o), norm,
                              &(ls_batch_norm_options) { .group = 4 });
}

static void image_net(ls_graph *g, void *user)
{
    const net *n = user;
    ls_tensor *x = ls_input(g, "image");
    for (int i = 0; i < n->blocks; i++) {
        if (n->recompute) ls_recompute_begin(g);
        ls_tensor *y = ls_relu(conv_norm(x, ls_name(g, "%d.a", i), ls_name(g, "%d.na", i), 19));
        ls_tensor *z = conv_norm(y, ls_name(g, "%d.b", i), ls_name(g, "%d.nb", i), 19);
        x = ls_relu(ls_add(z, y));
        if (n->recompute) x = ls_recompute_end(x);
    }
    ls_tensor *z = ls_linear(ls_max_pool2d(x, 2), "head", 10);
    ls_minimize(g, ls_cross_entropy(z, ls_input(g, "label")), NULL);
    ls_report(g, "accuracy", ls_accuracy(z, ls_input(g, "label")));
}

/* --- comparing --- */

static void check(ls_step_fn *step, const ls_field *fields, int blocks, int64_t batch,
                  ls_precision precision, double factor)
{
    net n = { .blocks = blocks };
    compare_options o = { .step = step,
                          .user = &n,
                          .batch = batch,
                          .precision = precision,
                          .fields = fields,
                          .nfields = 2,
                          .ignored = 5,
                          .run_step = 9,
                          .first = 64,
                          .input_gradients = true };
    outcome without = compare_run_backend(&o);
    n.recompute = true;
    outcome with = compare_run_backend(&o);
    assert_int_equal(with.count, without.count);
    assert_memory_equal(with.grads, without.grads, (size_t)with.count * sizeof(float));
    assert_int_equal(compare_checksum(&with), compare_checksum(&without));
    print_message("batch %d: arena %zu bytes, %zu without\n", (int)batch, with.memory,
                  without.memory);
    /* On a GPU the workspaces of NVIDIA's libraries are larger than these small nets. */
    bool libraries = strcmp(compare_backend(1)->name, "cuda") == 0;
    assert_true(libraries || (double)with.memory < factor * (double)without.memory);
    compare_free(&with);
    compare_free(&without);
    o.stage = LS_STAGE_EVALUATE;
    n.recompute = false;
    without = compare_run_backend(&o);
    n.recompute = true;
    with = compare_run_backend(&o);
    assert_int_equal(compare_checksum(&with), compare_checksum(&without));
    assert_int_equal(with.memory, without.memory);
    compare_free(&with);
    compare_free(&without);
}

static const int64_t batches[] = { 1, 5, 67 };

static void test_tokens(void **state)
{
    (void)state;
    for (size_t b = 0; b < compare_batches(3); b++)
        check(token_net, token_fields, 5, batches[b], LS_PRECISION_32, 0.6);
}

static void test_transformer(void **state)
{
    (void)state;
    for (size_t b = 0; b < compare_batches(3); b++) {
        check(transformer, token_fields, 5, batches[b], LS_PRECISION_32, 0.7);
        check(transformer, token_fields, 5, batches[b], LS_PRECISION_BF16_MIXED, 0.9);
    }
}

static void test_images(void **state)
{
    (void)state;
    for (size_t b = 0; b < compare_batches(3); b++)
        check(image_net, image_fields, 4, batches[b], LS_PRECISION_32, 0.9);
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
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_transformer),
        cmocka_unit_test(test_images),
    };
    return cmocka_run_group_tests(tests, open_backend, NULL);
}
