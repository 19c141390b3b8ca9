/* Times the training step of the default models on the CPU backend, without data or optimizer:
 * prog_train_step MODEL BATCH THREADS STEPS prints the median and the fastest step. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <lockstep/nn.h>

#include "base/clock.h"
#include "base/memory.h"
#include "graph/backend.h"

static void minimize(ls_graph *g, ls_tensor *z)
{
    ls_tensor *y = ls_input(g, "label");
    ls_minimize(g, ls_cross_entropy(z, y), NULL);
    ls_report(g, "accuracy", ls_accuracy(z, y));
}

static void mlp(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *h = ls_relu(ls_linear(ls_scale(ls_input(g, "image"), 1 / 255.0f, 0), "fc1", 256));
    minimize(g, ls_linear(ls_relu(ls_linear(h, "fc2", 128)), "fc3", 10));
}

static void cnn(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *x = ls_scale(ls_input(g, "image"), 1 / 128.0f, -1);
    ls_conv2d_options conv = { .channels = 32, .kernel = 3, .padding = 1 };
    x = ls_max_pool2d(ls_relu(ls_conv2d(x, "conv1", &conv)), 2);
    conv.channels = 64;
    x = ls_max_pool2d(ls_relu(ls_conv2d(x, "conv2", &conv)), 2);
    x = ls_relu(ls_linear(ls_flatten(x), "fc1", 128));
    minimize(g, ls_linear(ls_dropout(x, "drop", 0.25), "fc2", 10));
}

static ls_tensor *conv_norm(ls_tensor *x, const char *name, int64_t channels, int kernel,
                            int stride)
{
    static char text[64];
    ls_conv2d_options conv = { .channels = channels,
                               .kernel = kernel,
                               .stride = stride,
                               .padding = kernel / 2,
                               .no_bias = true };
    snprintf(text, sizeof text, "%s.norm", name);
    return ls_batch_norm(ls_conv2d(x, name, &conv), text);
}

static ls_tensor *block(ls_graph *g, ls_tensor *x, int i, int64_t channels, int stride)
{
    ls_tensor *y = ls_relu(conv_norm(x, ls_name(g, "b%d.1", i), channels, 3, stride));
    y = conv_norm(y, ls_name(g, "b%d.2", i), channels, 3, 1);
    if (stride > 1) x = conv_norm(x, ls_name(g, "b%d.s", i), channels, 1, stride);
    return ls_relu(ls_add(y, x));
}

static void resnet(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *x = ls_scale(ls_input(g, "image"), 1 / 128.0f, -1);
    x = ls_relu(conv_norm(x, "stem", 16, 3, 1));
    for (int i = 0; i < 6; i++) x = block(g, x, i, 16 << (i / 2), i % 2 == 0 && i > 0 ? 2 : 1);
    minimize(g, ls_linear(ls_global_avg_pool2d(x), "fc", 10));
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double cpu_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "cnn";
    int64_t batch = argc > 2 ? atol(argv[2]) : 256;
    int threads = argc > 3 ? atoi(argv[3]) : 1, steps = argc > 4 ? atoi(argv[4]) : 30;
    ls_step_fn *step = !strcmp(name, "mlp") ? mlp : !strcmp(name, "cnn") ? cnn : resnet;
    const ls_field fields[] = { { "image", LS_DTYPE_U8, 3, { 1, 28, 28 } },
                                { "label", LS_DTYPE_I32, 0, { 0 } } };
    ls__graph_options options = { .batch = batch, .fields = fields, .nfields = 2 };
    const ls__backend *backend;
    ls_graph *graph;
    ls__executable *e;
    ls_check(ls__backend_open("cpu", threads, &backend));
    ls_check(ls__graph_build(step, NULL, &options, &graph));
    ls_check(backend->compile(graph, &e));
    const ls__graph_param *params;
    int n = ls__graph_params(graph, &params);
    int64_t *offsets = calloc((size_t)n, sizeof *offsets), count = 0;
    for (int i = 0; i < n; i++) {
        int64_t size = 1;
        offsets[i] = count;
        for (int k = 0; k < params[i].tensor->rank; k++) size *= params[i].tensor->shape[k];
        count += (size + 15) / 16 * 16;
    }
    float *space = ls__map((size_t)count * 4), *grads = ls__map((size_t)count * 4);
    uint8_t *images = malloc((size_t)batch * 784);
    int32_t *labels = malloc((size_t)batch * 4);
    for (int i = 0; i < n; i++) ls__graph_init_param(&params[i], 1, space + offsets[i]);
    for (int64_t i = 0; i < batch * 784; i++) images[i] = (uint8_t)(i * 2654435761u >> 24);
    for (int64_t i = 0; i < batch; i++) labels[i] = (int32_t)(i % 10);
    void *const data[] = { images, labels };
    ls__run_context context = { .params = space,
                                .grads = grads,
                                .offsets = offsets,
                                .fields = data,
                                .arena = ls__map(backend->arena_bytes(e)),
                                .seed = 1,
                                .grad_seed = 1 };
    double fastest_cpu = 0, *times = calloc((size_t)steps, sizeof *times);
    for (int i = -3; i < steps; i++) {
        double start = ls__now(), cpu_start = cpu_now();
        ls_check(backend->run(e, &context));
        if (i >= 0) times[i] = ls__now() - start;
        double cpu = cpu_now() - cpu_start;
        if (i >= 0 && (i == 0 || cpu < fastest_cpu)) fastest_cpu = cpu;
    }
    qsort(times, (size_t)steps, sizeof *times, by_value);
    double median = times[steps / 2];
    printf("%s batch %lld threads %d: median %.2f ms, fastest %.2f ms (CPU time %.2f), %.0f "
           "samples/s, arena %.1f "
           "MB, %.0f GFLOP/s\n",
           name, (long long)batch, threads, median * 1e3, times[0] * 1e3, fastest_cpu * 1e3,
           (double)batch / median, (double)backend->arena_bytes(e) / 1e6,
           ls__graph_flops(graph) / median * 1e-9);
    return 0;
}
