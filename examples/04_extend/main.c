/* An operation, an optimizer and a metric of one's own, in one program: nothing else changes. */
#include <lockstep/lockstep.h>
#include <math.h>
#include <stdio.h>

/* --- an operation: snake(x) = x + sin(a x)^2 / a, its slope 1 + sin(2 a x) a second one --- */
static ls_status same_shape(const ls_op_call *c, ls_array *out)
{
    *out = c->in[0];
    return LS_OK;
}
static void snake_compute(const ls_op_call *c) /* by several threads: rows [begin, end) of (B, n) */
{
    const float a = *(const float *)c->attributes, *x = c->in[0].data;
    float *y = c->out->data;
    for (int64_t n = c->in[0].shape[1], i = c->begin * n; i < c->end * n; i++)
        y[i] = x[i] + sinf(a * x[i]) * sinf(a * x[i]) / a;
}
static void slope_compute(const ls_op_call *c)
{
    const float a = *(const float *)c->attributes, *x = c->in[0].data;
    float *y = c->out->data;
    for (int64_t n = c->in[0].shape[1], i = c->begin * n; i < c->end * n; i++)
        y[i] = 1 + sinf(2 * a * x[i]);
}
static const ls_op slope = { .name = "slope", .shape = same_shape, .compute = slope_compute };
static void snake_gradient(ls_graph *g, ls_tensor *const *in, ls_tensor *out, ls_tensor *grad,
                           const void *attributes, ls_tensor **grads_in)
{
    (void)g, (void)out;
    grads_in[0] = ls_mul(grad, ls_apply(&slope, attributes, sizeof(float), in, 1));
}
static const ls_op snake = { "snake", same_shape, snake_compute, snake_gradient, NULL };

/* --- an optimizer: Lion (Chen et al., 2023), element by element with one state --- */
static void lion_update(const ls_slice *s)
{
    float lr = (float)s->lr, decay = (float)s->weight_decay, *m = s->state[0];
    for (int64_t i = 0; i < s->count; i++) {
        float u = 0.9f * m[i] + 0.1f * s->grad[i];
        s->param[i] -= lr * ((float)((u > 0) - (u < 0)) + decay * s->param[i]);
        m[i] = 0.99f * m[i] + 0.01f * s->grad[i];
    }
}
static const char *const lion_states[] = { "momentum", NULL };
static const ls_optimizer lion = { .name = "lion", .states = lion_states, .update = lion_update };

/* --- a metric that is no mean: the worst loss; exact on any number of devices --- */
static void worst_update(void *state, const ls_array *values, int n) /* losses (B), none below 0 */
{
    const float *loss = values[0].data;
    for (int64_t i = 0; n && i < values[0].shape[0]; i++)
        *(double *)state = fmax(*(double *)state, (double)loss[i]);
}
static void worst_merge(void *state, const void *next)
{
    *(double *)state = fmax(*(double *)state, *(const double *)next);
}
static double worst_result(const void *state)
{
    return *(const double *)state;
}
static const ls_metric worst = { "worst_loss", sizeof(double), LS_MODE_MIN,
                                 worst_update, worst_merge,    worst_result };

static void net(ls_graph *g, void *user) /* user: snake's a */
{
    ls_tensor *x = ls_scale(ls_input(g, "image"), 1 / 255.0f, 0); /* (B,1,28,28) */
    ls_tensor *h = ls_linear(x, "fc1", 128), *y = ls_input(g, "label");
    h = ls_apply(&snake, user, sizeof(float), &h, 1);
    ls_tensor *z = ls_linear(h, "fc2", 10), *loss = ls_cross_entropy(z, y); /* (B,10), (B) */
    ls_minimize(g, loss, NULL);
    ls_report(g, "accuracy", ls_accuracy(z, y));
    ls_report_metric(g, &worst, &loss, 1);
}

int main(int argc, char **argv)
{
    const char *data = "/usr/share/datasets/fashion-mnist";
    const ls_flag flags[] = { { "data", 's', &data, "folder of the IDX files" }, { 0 } };
    ls_world *world;
    ls_dataset *sets[2];
    ls_model *model;
    ls_run_result run;
    ls_check(ls_world_init(&argc, &argv, &(ls_world_options) { .flags = flags }, &world));
    for (int i = 0; i < 2; i++) {
        char images[LS_PATH_MAX], labels[LS_PATH_MAX];
        snprintf(images, sizeof images, "%s/%s-images-idx3-ubyte.gz", data, i ? "t10k" : "train");
        snprintf(labels, sizeof labels, "%s/%s-labels-idx1-ubyte.gz", data, i ? "t10k" : "train");
        ls_check(ls_dataset_idx(images, labels, NULL, &sets[i]));
    }
    ls_check(ls_gradient_check(net, &(float) { 1 }, sets[1], 1e-3)); /* or says what is off */
    ls_check(ls_model_create(world, net, &(float) { 1 }, &model));
    ls_run_options options = { .batch_size = 256, .optimizer = { .kind = &lion, .lr = 3e-4 } };
    ls_check(ls_fit(model, sets[0], sets[1], &options, &run));
    printf("accuracy %.4f, worst loss %.2f\n", ls_values_get(&run.val, "accuracy"),
           ls_values_get(&run.val, "worst_loss")); /* rank 0's output is the job's */
    return ls_world_finish(world);
}
