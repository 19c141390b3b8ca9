/* Layers against PyTorch's numbers (golden/, by make_golden.py): outputs, losses, gradients and
 * statistics, on the plain executor and on the CPU backend. */
#include "golden.h"

#include <dirent.h>
#include <math.h>

#include <lockstep/nn.h>

#include "testing.h"

static const double tolerance = 2e-5; /* of an array's largest value */

/* --- the operations of the files --- */

static ls_attention_options attention_options(const golden *file)
{
    return (ls_attention_options) { .heads = golden_int(file, "heads"),
                                    .kv_heads = golden_int(file, "kv_heads"),
                                    .full = golden_int(file, "full"),
                                    .scale = golden_text(file, "scale")
                                                 ? strtod(golden_text(file, "scale"), NULL)
                                                 : 0 };
}

static ls_tensor *rotary(ls_tensor *x, const golden *file)
{
    ls_attention_options o = attention_options(file);
    return ls_rotary(x, &o, (double)golden_int(file, "theta"));
}

static ls_tensor *attention(ls_tensor *x, const golden *file)
{
    ls_attention_options o = attention_options(file);
    if (golden_int(file, "theta")) x = rotary(x, file);
    return ls_attention(x, "layer", &o);
}

static ls_tensor *with_param(ls_graph *g, const golden *file, ls_tensor *x)
{
    static const struct {
        const char *op;
        ls_tensor *(*layer)(ls_tensor *a, ls_tensor *b);
    } layers[] = { { "add", ls_add }, { "sub", ls_sub }, { "mul", ls_mul }, { "div", ls_div } };
    const ls_array *shape = golden_find(file, "param", "p");
    ls_tensor *p = ls_param(g, "p", NULL, shape->rank, shape->shape);
    for (size_t i = 0; i < 4; i++)
        if (!strcmp(golden_text(file, "op"), layers[i].op))
            return golden_int(file, "swapped") ? layers[i].layer(p, x) : layers[i].layer(x, p);
    fail_msg("operation %s", golden_text(file, "op"));
    return NULL;
}

static ls_tensor *moved(ls_tensor *x)
{
    x = ls_transpose(x, 1, 2);
    ls_tensor *parts[] = { ls_narrow(x, 3, 1, ls_tensor_dim(x, 3) - 1), ls_narrow(x, -1, 0, 2), x };
    return ls_transpose(ls_concat(parts, 3, 3), -1, -2);
}

static ls_tensor *general(ls_graph *g, const golden *file, ls_tensor *x)
{
    const char *op = golden_text(file, "op");
    int dim = (int)golden_int(file, "dim");
    if (!strcmp(op, "sum")) return ls_sum(x, dim);
    if (!strcmp(op, "mean")) return ls_mean(x, dim);
    if (!strcmp(op, "max")) return ls_max(x, dim);
    if (!strcmp(op, "moves")) return moved(x);
    return with_param(g, file, x);
}

static ls_tensor *elementwise_loss(const golden *file, ls_tensor *x, ls_tensor *target)
{
    const char *op = golden_text(file, "op");
    double beta = (double)golden_int(file, "beta_thousandths") / 1000;
    if (!strcmp(op, "mse")) return ls_mse(x, target);
    if (!strcmp(op, "bce")) return ls_bce_with_logits(x, target);
    return ls_smooth_l1(x, target, beta);
}

static ls_tensor *for_rows(ls_tensor *x, const char *name, int64_t features)
{
    return ls_linear_with(x, name, &(ls_linear_options) { .features = features, .rows = true });
}

static ls_tensor *rows(const golden *file, ls_tensor *x)
{
    static const struct {
        const char *op;
        ls_tensor *(*layer)(ls_tensor *x);
    } activations[] = { { "gelu", ls_gelu },
                        { "gelu_tanh", ls_gelu_tanh },
                        { "silu", ls_silu },
                        { "tanh", ls_tanh },
                        { "sigmoid", ls_sigmoid } };
    const char *op = golden_text(file, "op");
    if (!strcmp(op, "layer_norm")) return ls_layer_norm(x, "layer");
    if (!strcmp(op, "rms_norm")) return ls_rms_norm(x, "layer");
    if (!strcmp(op, "linear_rows")) return for_rows(x, "layer", 11);
    for (size_t i = 0; i < 5; i++)
        if (!strcmp(op, activations[i].op)) return activations[i].layer(x);
    return NULL;
}

/* The scores of GPT-2 with one block, or what tokens are before it. */
static ls_tensor *text(const golden *file, ls_tensor *tokens)
{
    bool gpt = !strcmp(golden_text(file, "op"), "gpt");
    int64_t width = golden_int(file, "width"), vocabulary = golden_int(file, "vocabulary");
    ls_tensor *x = ls_embedding(tokens, gpt ? "wte" : "layer", vocabulary, width, 0);
    if (golden_int(file, "context"))
        x = ls_position_embedding(x, "wpe", golden_int(file, "context"), 0);
    if (!gpt) return x;
    ls_attention_options o = attention_options(file);
    ls_tensor *y = for_rows(ls_layer_norm(x, "ln1"), "qkv", 3 * width);
    x = ls_add(x, for_rows(ls_attention(y, "attention", &o), "proj", width));
    y = ls_gelu_tanh(for_rows(ls_layer_norm(x, "ln2"), "fc", 4 * width));
    x = ls_layer_norm(ls_add(x, for_rows(y, "out", width)), "lnf");
    return ls_linear_with(
        x, "head",
        &(ls_linear_options) {
            .features = vocabulary, .rows = true, .no_bias = true, .tied_to = "wte" });
}

static ls_tensor *layer(ls_graph *g, const golden *file, ls_tensor *x)
{
    ls_tensor *y = rows(file, x);
    if (y) return y;
    const char *op = golden_text(file, "op");
    int size = (int)golden_int(file, "size");
    if (!strcmp(op, "linear")) return ls_linear(x, "layer", golden_int(file, "features"));
    if (!strcmp(op, "max_pool2d")) return ls_max_pool2d(x, size);
    if (!strcmp(op, "avg_pool2d")) return ls_avg_pool2d(x, size);
    if (!strcmp(op, "global_avg_pool2d")) return ls_global_avg_pool2d(x);
    if (!strcmp(op, "conv2d"))
        return ls_conv2d(x, "layer",
                         &(ls_conv2d_options) { .channels = golden_int(file, "channels"),
                                                .kernel = (int)golden_int(file, "kernel"),
                                                .stride = (int)golden_int(file, "stride"),
                                                .padding = (int)golden_int(file, "padding"),
                                                .no_bias = !golden_int(file, "bias") });
    if (!strcmp(op, "batch_norm"))
        return ls_batch_norm_with(
            x, "layer", &(ls_batch_norm_options) { .group = (int)golden_int(file, "group") });
    if (!strcmp(op, "softmax")) return ls_softmax(x);
    if (!strcmp(op, "rotary")) return rotary(x, file);
    if (!strcmp(op, "attention")) return attention(x, file);
    return general(g, file, x);
}

static ls_tensor *conv_norm(ls_tensor *x, const golden *file, const char *name, int kernel,
                            int stride, int padding)
{
    char norm[64];
    snprintf(norm, sizeof norm, "%s_norm", name);
    x = ls_conv2d(x, name,
                  &(ls_conv2d_options) { .channels = golden_int(file, "channels"),
                                         .kernel = kernel,
                                         .stride = stride,
                                         .padding = padding,
                                         .no_bias = true });
    return ls_batch_norm_with(x, norm,
                              &(ls_batch_norm_options) { .group = (int)golden_int(file, "group") });
}

static ls_tensor *residual_block(ls_tensor *x, const golden *file)
{
    ls_tensor *h = conv_norm(x, file, "conv1", 3, 2, 1);
    h = conv_norm(ls_relu(h), file, "conv2", 3, 1, 1);
    h = ls_relu(ls_add(h, conv_norm(x, file, "shortcut", 1, 2, 0)));
    return ls_linear(ls_global_avg_pool2d(h), "head", golden_int(file, "classes"));
}

static void step(ls_graph *g, void *user)
{
    const golden *file = user;
    const char *op = golden_text(file, "op");
    bool of_tokens = golden_find(file, "input", "tokens") != NULL;
    ls_tensor *x = of_tokens ? text(file, ls_input(g, "tokens")) : ls_input(g, "x");
    if (golden_find(file, "input", "label")) {
        ls_tensor *y = ls_input(g, "label");
        if (!strcmp(op, "residual_block")) x = residual_block(x, file);
        ls_minimize(g, ls_cross_entropy(x, y), NULL);
        if (golden_find(file, "out", "accuracy")) ls_report(g, "accuracy", ls_accuracy(x, y));
        return;
    }
    if (golden_find(file, "input", "target")) {
        ls_minimize(g, elementwise_loss(file, x, ls_input(g, "target")), NULL);
        return;
    }
    ls_tensor *y = of_tokens ? x : layer(g, file, x);
    if (ls_graph_stage(g) == LS_STAGE_PREDICT) {
        ls_output(g, "y", y);
        return;
    }
    ls_minimize(g, ls_mul(y, ls_input(g, "g")), NULL);
    ls_report(g, "y", y);
}

/* --- comparing --- */

static void compare(const char *what, const float *values, const ls_array *expected)
{
    const float *wanted = expected->data;
    int64_t count = ls_array_count(expected);
    double largest = 1e-3;
    for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs((double)wanted[i]));
    for (int64_t i = 0; i < count; i++) {
        double off = fabs((double)values[i] - (double)wanted[i]);
        if (!(off <= tolerance * largest))
            fail_msg("%s[%lld] is %.8g, PyTorch says %.8g", what, (long long)i, (double)values[i],
                     (double)wanted[i]);
    }
}

static void compare_result(const char *what, const ls_array *values, const ls_array *expected)
{
    assert_int_equal(values->type, LS_DTYPE_F32);
    assert_int_equal(values->rank, expected->rank);
    for (int i = 0; i < values->rank; i++) assert_int_equal(values->shape[i], expected->shape[i]);
    compare(what, values->data, expected);
}

static void compare_array(execution *e, const golden_array *a)
{
    const char *name = strchr(a->name, '.') + 1;
    char gradient[96];
    int64_t count;
    ls_array values;
    snprintf(gradient, sizeof gradient, "gradient of %s", name);
    if (!strncmp(a->name, "out.", 4)) {
        values = strcmp(name, "weights") ? execution_result(e, name) : execution_weights(e, "loss");
        compare_result(a->name, &values, &a->array);
    } else if (!strncmp(a->name, "grad.", 5) && !execution_grad(e, name, &count)) {
        values = execution_result(e, gradient);
        compare_result(a->name, &values, &a->array);
    } else if (!strncmp(a->name, "grad.", 5) || !strncmp(a->name, "sum.", 4)) {
        const float *grad = execution_grad(e, name, &count);
        assert_int_equal(count, ls_array_count(&a->array));
        compare(a->name, grad, &a->array);
    }
}

/* Every parameter of the graph has to be in the file, except the head's statistics of a block. */
static void set_values(execution *e, const golden *file, const ls_field *fields, int nfields)
{
    for (int i = 0; i < nfields; i++)
        e->fields[i] = golden_find(file, "input", fields[i].name)->data;
    for (int i = 0; i < file->count; i++) {
        const golden_array *a = &file->arrays[i];
        int64_t count = 0;
        if (strncmp(a->name, "param.", 6) != 0) continue;
        float *param = execution_param(e, a->name + 6, &count);
        assert_non_null(param);
        assert_int_equal(count, ls_array_count(&a->array));
        memcpy(param, a->array.data, (size_t)count * sizeof *param);
    }
}

static int list_fields(const golden *file, ls_field *fields, int64_t *batch)
{
    int n = 0;
    for (int i = 0; i < file->count; i++) {
        const golden_array *a = &file->arrays[i];
        if (strncmp(a->name, "input.", 6) != 0) continue;
        fields[n] = (ls_field) { a->name + 6, a->array.type, a->array.rank - 1, { 0 } };
        memcpy(fields[n].shape, a->array.shape + 1, 5 * sizeof(int64_t));
        *batch = a->array.shape[0];
        n++;
    }
    return n;
}

static void check_file(const ls__backend *backend, const char *path)
{
    golden file;
    ls_field fields[4];
    execution e;
    golden_load(&file, path);
    bool predict = golden_text(&file, "stage") != NULL;
    ls__graph_options options = { .stage = predict ? LS_STAGE_PREDICT : LS_STAGE_TRAIN,
                                  .input_gradients = true,
                                  .fields = fields };
    options.nfields = list_fields(&file, fields, &options.batch);
    execution_open(&e, backend, step, &file, &options);
    set_values(&e, &file, fields, options.nfields);
    for (int run = 0; run < 2; run++) { /* what the first leaves behind changes nothing */
        assert_ok(execution_run(&e));
        for (int i = 0; i < file.count; i++) compare_array(&e, &file.arrays[i]);
    }
    execution_close(&e);
    golden_free(&file);
}

static void check_folder(const ls__backend *backend)
{
    char folder[512], path[1024];
    int files = 0;
    snprintf(folder, sizeof folder, "%s/tests/nn/golden", getenv("LS_SOURCE_DIR"));
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (!strstr(entry->d_name, ".safetensors")) continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        print_message("%s: %s\n", backend->name, entry->d_name);
        check_file(backend, path);
        files++;
    }
    closedir(dir);
    assert_true(files >= 98);
}

static void test_plain_executor(void **state)
{
    (void)state;
    check_folder(&reference_backend);
}

static void test_backend(void **state)
{
    (void)state;
    int most = getenv("LS_TEST_BACKEND") ? 1 : 3;
    for (int threads = 1; threads <= most; threads++) check_folder(execution_backend(threads));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_plain_executor),
                                        cmocka_unit_test(test_backend) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
