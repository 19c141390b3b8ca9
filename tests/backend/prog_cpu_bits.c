/* prog_cpu_bits THREADS [bf16-mixed]: checksums of models' gradients and results, one line each, for comparison
 * between numbers of threads, processes and alignments. Micro-batches that no tile divides. */
#include "compare.h"
#include "testing.h"

#include <lockstep/nn.h>

static void minimize(ls_graph *g, ls_tensor *z)
{
    ls_tensor *y = ls_input(g, "label");
    ls_minimize(g, ls_cross_entropy(z, y), NULL);
    ls_report(g, "accuracy", ls_accuracy(z, y));
}

static void mlp(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *h = ls_relu(
        ls_linear(ls_scale(ls_input(g, "image"), 1 / 255.0f, 0), "fc1", 1500)); /* large weights */
    h = ls_relu(ls_linear(h, "fc2", 100));
    minimize(g, ls_linear(ls_dropout(h, "drop", 0.2), "fc3", 10));
}

static ls_tensor *conv(ls_tensor *x, const char *name, int64_t channels, int stride, bool bias)
{
    ls_conv2d_options o = {
        .channels = channels, .kernel = 3, .stride = stride, .padding = 1, .no_bias = !bias
    };
    return ls_conv2d(x, name, &o);
}

static void cnn(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *x = ls_scale(ls_input(g, "image"), 1 / 128.0f, -1);
    x = ls_max_pool2d(ls_relu(conv(x, "conv1", 32, 1, true)), 2);
    x = ls_max_pool2d(ls_relu(conv(x, "conv2", 48, 1, true)), 2);
    minimize(g, ls_linear(ls_flatten(x), "fc", 10));
}

static void resnet(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *x = ls_scale(ls_input(g, "image"), 1 / 128.0f, -1);
    x = ls_relu(ls_batch_norm(conv(x, "stem", 16, 1, false), "stem.norm"));
    ls_tensor *y = ls_relu(ls_batch_norm(conv(x, "c1", 32, 2, false), "n1"));
    y = ls_batch_norm(conv(y, "c2", 32, 1, false), "n2");
    x = ls_relu(ls_add(y, ls_batch_norm(conv(x, "short", 32, 2, false), "n3")));
    minimize(g, ls_linear(ls_global_avg_pool2d(x), "fc", 10));
}

/* A head in blocks of rows: 250 rows of 201 KB at the largest batch. */
static void language_model(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *x = ls_scale(ls_input(g, "image"), 1 / 128.0f, -1);
    x = ls_reshape(x, 2, (int64_t[]) { -1, 28 * 28 });
    x = ls_relu(ls_linear(x, "fc", 24));
    ls_minimize(g, ls_cross_entropy(ls_linear(x, "head", 50263), ls_input(g, "label")), NULL);
}

static ls_tensor *param_of(ls_graph *g, const char *name, int rank, int64_t a, int64_t b)
{
    ls_init init = { .kind = LS_INIT_UNIFORM, .scale = 1 };
    return ls_param(g, name, &init, rank, (const int64_t[]) { a, b });
}

/* Parameters whose gradients are sums over samples, by broadcasting; reductions and moves. */
static void broadcasting(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *x = ls_reshape(ls_input(g, "image"), 3, (int64_t[]) { -1, 28, 28 });
    x = ls_mul(ls_scale(x, 1 / 128.0f, -1), param_of(g, "row", 1, 28, 0));
    x = ls_sub(ls_transpose(x, 1, 2), param_of(g, "column", 2, 28, 1));
    ls_tensor *all[] = { ls_max(x, 1), ls_mean(x, 2), ls_sum(ls_narrow(x, 1, 3, 9), 1) };
    x = ls_add(ls_concat(all, 3, 1), param_of(g, "scalar", 0, 0, 0));
    x = ls_div(x, ls_scale(param_of(g, "divisor", 2, 1, 84), 1, 2));
    minimize(g, ls_linear(x, "fc", 10));
}

/* What transformers do: rows, attention; a table that is read twice and tied to the head. */
static void transformer(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *tokens = ls_input(g, "tokens"), *x = ls_embedding(tokens, "wte", 300, 24, 0.5);
    x = ls_position_embedding(x, "wpe", 20, 0.5);
    ls_tensor *y = ls_layer_norm(ls_add(x, ls_embedding(tokens, "wte", 300, 24, 0.5)), "ln");
    ls_linear_options up = { .features = 60, .rows = true },
                      down = { .features = 24, .rows = true };
    ls_attention_options heads = { .heads = 3, .kv_heads = 1 };
    y = ls_attention(ls_linear_with(y, "up", &up), "attention", &heads);
    y = ls_silu(ls_linear_with(ls_gelu_tanh(y), "down", &down));
    ls_linear_options head = { .features = 300, .rows = true, .no_bias = true, .tied_to = "wte" };
    x = ls_rms_norm(ls_add(ls_gelu(x), ls_tanh(y)), "rms");
    minimize(g, ls_linear_with(x, "head", &head));
}

static void print_sums(int m, int64_t batch, ls_precision precision)
{
    static const ls_field fields[] = { { "image", LS_DTYPE_U8, 3, { 1, 28, 28 } },
                                       { "label", LS_DTYPE_I32, 0, { 0 } } };
    static const ls_field texts[] = { { "tokens", LS_DTYPE_I32, 1, { 17 } },
                                      { "label", LS_DTYPE_I64, 1, { 17 } } };
    static ls_step_fn *const models[] = { mlp,          cnn,        resnet, language_model,
                                          broadcasting, transformer };
    printf("model %d batch %lld", m, (long long)batch);
    for (int misaligned = 0; misaligned < 2; misaligned++) {
        compare_options o = { .step = models[m],
                              .batch = batch,
                              .fields = m == 5 ? texts : fields,
                              .nfields = 2,
                              .ignored = m == 5 ? 5 : 0,
                              .run_step = 3,
                              .first = 16,
                              .misaligned = 3 * misaligned,
                              .precision = precision };
        outcome left = compare_run_backend(&o);
        printf(" %016llx", (unsigned long long)compare_checksum(&left));
        compare_free(&left);
    }
    printf("\n");
}

int main(int argc, char **argv)
{
    static const int64_t batches[] = { 1, 16, 75, 250 };
    compare_backend(argc > 1 ? atoi(argv[1]) : 1);
    if (argc > 2) { /* bf16-mixed: in tiles, in whole layers, and the head in blocks */
        print_sums(0, 75, LS_PRECISION_BF16_MIXED);
        print_sums(3, 75, LS_PRECISION_BF16_MIXED);
        print_sums(5, 75, LS_PRECISION_BF16_MIXED);
        return 0;
    }
    for (int m = 0; m < 6; m++)
        for (int b = 0; b < 4; b++) print_sums(m, batches[b], LS_PRECISION_32);
    return 0;
}
