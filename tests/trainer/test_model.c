/* Models in one process: what fit computes against a plain reference, and everything else people do
 * with a model, in any order. */
#include "trainer/helper_single.h"

#include <math.h>
#include <unistd.h>

#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "data/loader.h"

enum { FEATURES = 6, CLASSES = 3, SAMPLES = 64 };

/* --- data --- */

typedef struct table {
    int64_t length;
    bool ignores;   /* two of three labels are ignored, all in the first half of 16 */
    bool no_labels; /* the field is called something else */
} table;

static float value_of(int64_t i, int j)
{
    return sinf((float)(i * 13 + j * 5 + 1) * 0.71f);
}

static int32_t label_of(const table *t, int64_t i)
{
    if (t->ignores && i % 16 < 12) return -100;
    return (int32_t)((value_of(i, 0) > 0.2f) + (value_of(i, 1) > 0));
}

static int64_t table_length(void *self)
{
    return ((table *)self)->length;
}

static ls_status table_read(void *self, int64_t i, ls_rng *rng, void *const *out)
{
    (void)rng;
    for (int j = 0; j < FEATURES; j++) ((float *)out[0])[j] = value_of(i, j);
    *(int32_t *)out[1] = label_of(self, i);
    return LS_OK;
}

static ls_dataset *table_create(table *t)
{
    static const ls_dataset_ops ops = { .length = table_length, .read = table_read };
    const ls_field fields[] = { { "x", LS_DTYPE_F32, 1, { FEATURES } },
                                { t->no_labels ? "other" : "label", LS_DTYPE_I32, 0, { 0 } } };
    ls_dataset *out;
    assert_ok(ls_dataset_create(&ops, t, fields, 2, &out));
    return out;
}

/* --- models --- */

static void linear(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *y = ls_input(g, "label");
    ls_tensor *z = ls_linear(ls_input(g, "x"), "fc", CLASSES);
    ls_output(g, "scores", z);
    ls_minimize(g, ls_cross_entropy(z, y), NULL);
    ls_report(g, "accuracy", ls_accuracy(z, y));
}

static void normed(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *x =
        ls_batch_norm_with(ls_input(g, "x"), "norm", &(ls_batch_norm_options) { .group = 4 });
    ls_minimize(g, ls_cross_entropy(ls_linear(x, "fc", CLASSES), ls_input(g, "label")), NULL);
}

typedef struct largest {
    double value;
    int64_t seen;
} largest;

static void largest_update(void *state, const ls_array *values, int nvalues)
{
    largest *s = state;
    const float *v = values[0].data;
    assert_int_equal(nvalues, 1);
    for (int64_t i = 0; i < values[0].shape[0]; i++)
        if (!s->seen++ || (double)v[i] > s->value) s->value = (double)v[i];
}

static void largest_merge(void *state, const void *next)
{
    largest *a = state;
    const largest *b = next;
    if (b->seen && (!a->seen || b->value > a->value)) a->value = b->value;
    a->seen += b->seen;
}

static double largest_result(const void *state)
{
    return ((const largest *)state)->value;
}

static const ls_metric largest_metric = { "largest_loss", sizeof(largest), LS_MODE_MIN,
                                          largest_update, largest_merge,   largest_result };

static void with_metric(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *z = ls_linear(ls_input(g, "x"), "fc", CLASSES);
    ls_tensor *losses = ls_cross_entropy(z, ls_input(g, "label"));
    ls_minimize(g, losses, NULL);
    ls_report_metric(g, &largest_metric, &losses, 1);
}

/* --- reading a model's weights --- */

static char *in_folder(const char *name)
{
    static char path[LS_PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void read_weights(ls_model *model, const char *name, float *out, int64_t count)
{
    ls__safetensors file;
    char *data;
    size_t nbytes;
    char *path = in_folder("weights.safetensors");
    assert_ok(ls_model_save(model, path));
    assert_ok(ls__safetensors_open(path, &file));
    const ls__safetensor *t = ls__safetensors_find(&file, name);
    assert_non_null(t);
    assert_int_equal(t->end - t->begin, count * (int64_t)sizeof(float));
    assert_ok(ls__file_read(path, 1 << 20, &data, &nbytes));
    memcpy(out, data + t->begin, (size_t)(t->end - t->begin));
    free(data);
    ls__safetensors_free(&file);
}

static ls_run_options usual(const char *name)
{
    return (ls_run_options) { .batch_size = 16,
                              .max_steps = 5,
                              .name = name,
                              .runs_dir = folder,
                              .seed = 3,
                              .optimizer = { .kind = &ls_sgd, .lr = 0.1 } };
}

/* --- a plain reference of the linear model under SGD --- */

typedef struct reference {
    double w[CLASSES][FEATURES], b[CLASSES], vw[CLASSES][FEATURES], vb[CLASSES];
    double loss; /* of the last step */
} reference;

static void reference_step(reference *r, const table *t, int64_t position, int64_t batch, double lr,
                           double clip)
{
    double gw[CLASSES][FEATURES] = { 0 }, gb[CLASSES] = { 0 }, weight = 0, norm = 0;
    r->loss = 0;
    for (int64_t k = 0; k < batch; k++) {
        int64_t i = ls__sampler_index(3, t->length, position + k);
        int32_t label = label_of(t, i);
        double z[CLASSES], sum = 0;
        if (label < 0) continue;
        for (int c = 0; c < CLASSES; c++) {
            z[c] = r->b[c];
            for (int j = 0; j < FEATURES; j++) z[c] += r->w[c][j] * (double)value_of(i, j);
            sum += exp(z[c]);
        }
        weight++;
        r->loss += log(sum) - z[label];
        for (int c = 0; c < CLASSES; c++) {
            double d = exp(z[c]) / sum - (c == label);
            gb[c] += d;
            for (int j = 0; j < FEATURES; j++) gw[c][j] += d * (double)value_of(i, j);
        }
    }
    r->loss /= weight;
    for (int c = 0; c < CLASSES; c++) {
        norm += gb[c] * gb[c] / (weight * weight);
        for (int j = 0; j < FEATURES; j++) norm += gw[c][j] * gw[c][j] / (weight * weight);
    }
    norm = sqrt(norm);
    double scale = (clip > 0 && norm > clip ? clip / norm : 1) / weight;
    for (int c = 0; c < CLASSES; c++) {
        r->vb[c] = 0.9 * r->vb[c] + scale * gb[c];
        r->b[c] -= lr * r->vb[c];
        for (int j = 0; j < FEATURES; j++) {
            r->vw[c][j] = 0.9 * r->vw[c][j] + scale * gw[c][j];
            r->w[c][j] -= lr * r->vw[c][j];
        }
    }
}

static void check_against_reference(table *t, const char *name, int micro_batches, double clip)
{
    reference r = { 0 };
    float w[CLASSES * FEATURES], b[CLASSES];
    char first[64];
    ls_model *model;
    ls_run_result result;
    ls_dataset *data = table_create(t);
    ls_run_options o = usual(name);
    o.micro_batches = micro_batches;
    o.clip_norm = clip;
    o.log_every = LS_STEPS(1);
    /* The first weights: those of a run whose learning rate is too small to move them. */
    snprintf(first, sizeof first, "%s-first", name);
    ls_run_options still = o;
    still.name = first;
    still.max_steps = 1;
    still.optimizer.lr = 1e-30;
    assert_ok(ls_model_create(world, linear, NULL, &model));
    assert_ok(ls_fit(model, data, NULL, &still, NULL));
    read_weights(model, "fc.weight", w, CLASSES * FEATURES);
    read_weights(model, "fc.bias", b, CLASSES);
    ls_model_destroy(model);
    for (int c = 0; c < CLASSES; c++) {
        r.b[c] = (double)b[c];
        for (int j = 0; j < FEATURES; j++) r.w[c][j] = (double)w[c * FEATURES + j];
    }
    assert_ok(ls_model_create(world, linear, NULL, &model));
    assert_ok(ls_fit(model, data, NULL, &o, &result));
    for (int step = 0; step < 5; step++) reference_step(&r, t, step * 16, 16, 0.1, clip);
    read_weights(model, "fc.weight", w, CLASSES * FEATURES);
    read_weights(model, "fc.bias", b, CLASSES);
    for (int c = 0; c < CLASSES; c++) {
        if (fabs((double)b[c] - r.b[c]) > 2e-6)
            fail_msg("%s: bias %d: %g, not %g", name, c, (double)b[c], r.b[c]);
        for (int j = 0; j < FEATURES; j++)
            if (fabs((double)w[c * FEATURES + j] - r.w[c][j]) > 2e-6)
                fail_msg("%s: weight %d %d: %g, not %g", name, c, j, (double)w[c * FEATURES + j],
                         r.w[c][j]);
    }
    assert_true(fabs(ls_values_get(&result.train, "loss") - r.loss) < 1e-6);
    ls_model_destroy(model);
    ls_dataset_destroy(data);
}

static void fit_computes_what_a_plain_loop_computes(void **state)
{
    (void)state;
    table t = { .length = SAMPLES };
    check_against_reference(&t, "plain1", 1, 0);
    check_against_reference(&t, "plain3", 3, 0);
    check_against_reference(&t, "clipped", 3, 0.05);
}

/* A mean of means would weigh micro-batches alike, however few of their targets count. */
static void gradients_are_weighted_by_targets(void **state)
{
    (void)state;
    table t = { .length = SAMPLES, .ignores = true };
    check_against_reference(&t, "ignored1", 1, 0);
    check_against_reference(&t, "ignored5", 5, 0);
}

static void running_statistics_are_moving_averages_over_groups(void **state)
{
    (void)state;
    table t = { .length = 18 }; /* a batch of 18: groups of 4, 4, 4, 4, 2 */
    ls_dataset *data = table_create(&t);
    for (int micro_batches = 1; micro_batches <= 3; micro_batches += 2) {
        float mean[FEATURES], variance[FEATURES];
        char name[32];
        ls_model *model;
        snprintf(name, sizeof name, "norm%d", micro_batches);
        ls_run_options o = usual(name);
        o.batch_size = 18;
        o.max_steps = 1;
        o.micro_batches = micro_batches;
        assert_ok(ls_model_create(world, normed, NULL, &model));
        assert_ok(ls_fit(model, data, NULL, &o, NULL));
        read_weights(model, "norm.running_mean", mean, FEATURES);
        read_weights(model, "norm.running_var", variance, FEATURES);
        for (int j = 0; j < FEATURES; j++) {
            double means = 0, variances = 0;
            for (int64_t g = 0; g < 18; g += 4) {
                int64_t n = g + 4 <= 18 ? 4 : 2;
                double m = 0, v = 0;
                for (int64_t k = g; k < g + n; k++)
                    m += (double)value_of(ls__sampler_index(3, 18, k), j) / (double)n;
                for (int64_t k = g; k < g + n; k++)
                    v += pow((double)value_of(ls__sampler_index(3, 18, k), j) - m, 2) /
                         (double)(n - 1);
                means += (double)n * m / 18;
                variances += (double)n * v / 18;
            }
            assert_true(fabs((double)mean[j] - 0.1 * means) < 1e-6);
            assert_true(fabs((double)variance[j] - (0.9 + 0.1 * variances)) < 1e-6);
        }
        ls_model_destroy(model);
    }
    ls_dataset_destroy(data);
}

/* --- evaluate, predict, load, save --- */

typedef struct predictions {
    int64_t next, right;
    const table *t;
} predictions;

static void take(void *user, int64_t index, const ls_outputs *outputs)
{
    predictions *p = user;
    const ls_array *scores = ls_outputs_get(outputs, "scores");
    assert_int_equal(index, p->next);
    p->next++;
    assert_non_null(scores);
    assert_null(ls_outputs_get(outputs, "nothing"));
    assert_int_equal(scores->rank, 1);
    assert_int_equal(scores->shape[0], CLASSES);
    const float *s = scores->data;
    int best = 0;
    for (int c = 1; c < CLASSES; c++)
        if (s[c] > s[best]) best = c;
    p->right += best == label_of(p->t, index);
}

static void a_model_outlives_its_runs(void **state)
{
    (void)state;
    table t = { .length = SAMPLES }, more = { .length = 600 },
          bare = { .length = 600, .no_labels = true };
    ls_dataset *data = table_create(&t), *val = table_create(&more),
               *unlabelled = table_create(&bare);
    ls_model *model, *other;
    ls_values before, after;
    ls_run_options o = usual("outlives");
    o.max_steps = 60;
    assert_ok(ls_model_create(world, linear, NULL, &model));
    assert_fails(ls_evaluate(model, val, &before), LS_ERR_ARG, "no weights yet");
    assert_ok(ls_fit(model, data, val, &o, NULL));
    assert_ok(ls_evaluate(model, val, &before));
    assert_true(ls_values_get(&before, "accuracy") > 0.7);

    predictions p = { .t = &more };
    assert_ok(ls_predict(model, unlabelled, take, &p));
    assert_int_equal(p.next, 600);
    assert_true(fabs((double)p.right / 600 - ls_values_get(&before, "accuracy")) < 1e-12);

    assert_ok(ls_model_save(model, in_folder("saved.safetensors")));
    assert_ok(ls_model_create(world, linear, NULL, &other));
    assert_ok(
        ls_model_load(other, in_folder("saved.safetensors"))); /* before it has met any data */
    assert_ok(ls_evaluate(other, val, &after));
    assert_memory_equal(&after, &before, sizeof after);
    assert_ok(ls_model_load(other, in_folder("outlives")));
    assert_ok(ls_evaluate(other, val, &after));
    assert_memory_equal(&after, &before, sizeof after);

    o.name = "goes-further"; /* from the weights it has */
    o.max_steps = 30;
    assert_ok(ls_fit(other, data, NULL, &o, NULL));
    assert_ok(ls_evaluate(other, val, &after));
    assert_true(ls_values_get(&after, "loss") < ls_values_get(&before, "loss"));
    assert_fails(ls_model_load(other, in_folder("nowhere")), LS_ERR_CONFIG, "nowhere");
    ls_model_destroy(model);
    ls_model_destroy(other);
    assert_ok(ls_model_create(world, normed, NULL, &other));
    assert_ok(ls_model_load(other, in_folder("saved.safetensors")));
    for (int i = 0; i < 2; i++) /* and it does not forget that */
        assert_fails(ls_evaluate(other, val, &after), LS_ERR_CONFIG, "there is no norm.");
    o.name = "wrong-weights";
    assert_fails(ls_fit(other, data, NULL, &o, NULL), LS_ERR_CONFIG, "there is no norm.");
    ls_model_destroy(other);

    o.name = "has-weights"; /* which a file of another model's leaves alone */
    assert_ok(ls_model_create(world, normed, NULL, &other));
    assert_ok(ls_fit(other, data, NULL, &o, NULL));
    assert_ok(ls_evaluate(other, val, &before));
    assert_fails(ls_model_load(other, in_folder("saved.safetensors")), LS_ERR_CONFIG, "norm.");
    assert_ok(ls_evaluate(other, val, &after));
    assert_memory_equal(&after, &before, sizeof after);
    ls_model_destroy(other);
    ls_dataset_destroy(data);
    ls_dataset_destroy(val);
    ls_dataset_destroy(unlabelled);
}

static void a_metric_with_its_own_state(void **state)
{
    (void)state;
    table t = { .length = 700 };
    ls_dataset *data = table_create(&t);
    ls_model *model;
    ls_values values;
    ls_run_result result;
    ls_run_options o = usual("metric");
    o.checkpoint.monitor = "val/largest_loss";
    assert_ok(ls_model_create(world, with_metric, NULL, &model));
    assert_ok(ls_fit(model, data, data, &o, &result));
    assert_ok(ls_evaluate(model, data, &values));
    assert_true(ls_values_get(&values, "largest_loss") > ls_values_get(&values, "loss"));
    assert_true(result.best == ls_values_get(&values, "largest_loss"));
    ls_model_destroy(model);
    ls_dataset_destroy(data);
}

/* The loop of ls_fit, written by hand. */
static void a_graph_model_in_a_loop_of_ones_own(void **state)
{
    (void)state;
    table t = { .length = SAMPLES };
    ls_dataset *data = table_create(&t);
    ls_model *model;
    ls_run *run;
    ls_space *space;
    ls_batch batch;
    ls_run_result fitted, looped;
    ls_run_options o = usual("fitted");
    o.norm_group = 4;
    assert_ok(ls_model_create(world, normed, NULL, &model));
    assert_ok(ls_fit(model, data, NULL, &o, &fitted));
    ls_model_destroy(model);
    o.name = "looped";
    assert_ok(ls_model_create(world, normed, NULL, &model));
    assert_ok(ls_run_create(world, data, &o, &run));
    assert_ok(ls_space_create(run, &(ls_space_options) { .model = model }, &space));
    assert_null(ls_space_grads(space));
    while (ls_run_next(run)) {
        while (ls_run_micro_batch(run, &batch)) ls_model_gradients(model, space, &batch);
        ls_space_step(space);
    }
    assert_ok(ls_run_finish(run, &looped));
    assert_int_equal(looped.weights_xxh3, fitted.weights_xxh3);
    o.name = "unit";
    o.norm_group = 3;
    assert_ok(ls_run_create(world, data, &o, &run));
    assert_fails(ls_space_create(run, &(ls_space_options) { .model = model }, &space), LS_ERR_ARG,
                 "norm_group");
    assert_int_equal(ls_run_finish(run, NULL), LS_OK);
    ls_model_destroy(model);
    ls_dataset_destroy(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fit_computes_what_a_plain_loop_computes),
        cmocka_unit_test(gradients_are_weighted_by_targets),
        cmocka_unit_test(running_statistics_are_moving_averages_over_groups),
        cmocka_unit_test(a_model_outlives_its_runs),
        cmocka_unit_test(a_metric_with_its_own_state),
        cmocka_unit_test(a_graph_model_in_a_loop_of_ones_own),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
