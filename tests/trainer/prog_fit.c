/* A program with ls_fit on data of its own making, as tests need it: small, and with faults to
 * order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <lockstep/lockstep.h>

enum { SIDE = 10, CLASSES = 5 };

static struct config {
    const char *model;
    int64_t samples, val_samples;
    int64_t bad_label, bad_read; /* the sample with a fault; -1 = none */
    int64_t slow_ms;             /* of a step */
    int64_t stop_at;             /* asks for a stop at this step; 0 = no */
    int64_t diverge_at;          /* this sample is infinite; -1 = none */
    int64_t fail_rank, fail_at;  /* this rank exits with 7 at this step ... */
    int64_t stall_at;            /* ... or sleeps */
    bool test;
} config = { "mlp", 600, 143, -1, -1, 0, 0, -1, -1, 0, 0, false };

/* --- data: an image whose brightest corner says the class, under noise --- */

struct images {
    int64_t length, first;
};

static uint32_t mixed(uint64_t x)
{
    x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
    return (uint32_t)(x >> 32);
}

static int64_t images_length(void *self)
{
    return ((struct images *)self)->length;
}

static ls_status images_read(void *self, int64_t i, ls_rng *rng, void *const *out)
{
    const struct images *images = self;
    uint64_t id = (uint64_t)(images->first + i);
    float *image = out[0];
    int32_t *label = out[1];
    if (i == config.bad_read && rng) return ls_fail(LS_ERR_DATA, "the disk is broken");
    *label = (int32_t)(mixed(id + 1) % CLASSES);
    for (int p = 0; p < SIDE * SIDE; p++) {
        image[p] = (float)(mixed(id * 1000 + (uint64_t)p) % 1000) * 0.001f;
        if (p / (SIDE * SIDE / CLASSES) == *label) image[p] += 0.3f;
    }
    if (rng) image[0] += (float)ls_rng_uniform(rng);
    if (i == config.bad_label && rng) *label = CLASSES + 3;
    if (i == config.diverge_at && rng) image[5] = 1e38f * 1e30f;
    return LS_OK;
}

static ls_dataset *images_create(struct images *images)
{
    static const ls_dataset_ops ops = { .length = images_length, .read = images_read };
    static const ls_field fields[] = { { "image", LS_DTYPE_F32, 3, { 1, SIDE, SIDE } },
                                       { "label", LS_DTYPE_I32, 0, { 0 } } };
    ls_dataset *out;
    ls_check(ls_dataset_create(&ops, images, fields, 2, &out));
    return out;
}

/* --- models --- */

static ls_tensor *conv(ls_graph *g, ls_tensor *x, const char *name, int channels, bool norm)
{
    x = ls_conv2d(x, name,
                  &(ls_conv2d_options) { .channels = channels, .kernel = 3, .padding = 1 });
    return ls_relu(norm ? ls_batch_norm_with(x, ls_name(g, "%s.norm", name),
                                             &(ls_batch_norm_options) { .group = 4 })
                        : x);
}

static void step(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *x = ls_input(g, "image"), *y = ls_input(g, "label"), *h;
    if (strcmp(config.model, "mlp") == 0) {
        h = ls_relu(ls_linear(x, "fc1", 40));
    } else if (strcmp(config.model, "dropout") == 0) {
        h = ls_dropout(ls_relu(ls_linear(x, "fc1", 40)), "drop", 0.4);
    } else if (strcmp(config.model, "cnn") == 0) {
        h = ls_relu(ls_linear(ls_max_pool2d(conv(g, x, "conv1", 8, false), 2), "fc1", 24));
    } else {
        h = conv(g, x, "conv1", 8, true);
        h = ls_global_avg_pool2d(ls_add(h, conv(g, h, "conv2", 8, true)));
    }
    ls_tensor *z = ls_linear(h, "head", CLASSES);
    ls_output(g, "scores", z);
    ls_minimize(g, ls_cross_entropy(z, y), NULL);
    ls_report(g, "accuracy", ls_accuracy(z, y));
}

/* --- faults --- */

static ls_world *the_world;

static void step_end(ls_run *run, void *user)
{
    (void)user;
    if (config.slow_ms) usleep((useconds_t)config.slow_ms * 1000);
    if (config.stop_at && ls_run_step(run) == config.stop_at) ls_run_stop(run, "the test wants it");
    if (config.fail_at && ls_run_step(run) == config.fail_at &&
        ls_world_rank(the_world) == config.fail_rank)
        exit(7);
    if (config.stall_at && ls_run_step(run) == config.stall_at &&
        ls_world_rank(the_world) == config.fail_rank)
        sleep(1000);
}

int main(int argc, char **argv)
{
    const ls_flag flags[] = {
        { "model", 's', &config.model, "mlp, dropout, cnn, resnet" },
        { "samples", 'i', &config.samples, "of the training data" },
        { "val-samples", 'i', &config.val_samples, "of the validation data; 0 = none" },
        { "bad-label", 'i', &config.bad_label, "this sample's label is out of range" },
        { "bad-read", 'i', &config.bad_read, "this sample cannot be read" },
        { "slow-ms", 'i', &config.slow_ms, "each step takes so long" },
        { "stop-at", 'i', &config.stop_at, "ask for a stop at this step" },
        { "diverge-at", 'i', &config.diverge_at, "this sample is infinite" },
        { "fail-rank", 'i', &config.fail_rank, "this rank ..." },
        { "fail-at", 'i', &config.fail_at, "... exits at this step" },
        { "stall-at", 'i', &config.stall_at, "... or sleeps" },
        { "test", 'b', &config.test, "evaluate after the fit" },
        { 0 },
    };
    const ls_callback faults = { .name = "faults", .step_end = step_end };
    ls_model *model;
    ls_run_result result;
    ls_values values;

    ls_check(ls_world_init(&argc, &argv, &(ls_world_options) { .flags = flags }, &the_world));
    struct images train_images = { config.samples, 0 },
                  val_images = { config.val_samples, 1 << 20 };
    ls_dataset *train = images_create(&train_images), *val = images_create(&val_images);
    ls_check(ls_model_create(the_world, step, NULL, &model));
    ls_check(
        ls_fit(model, train, config.val_samples ? val : NULL,
               &(ls_run_options) { .batch_size = 48,
                                   .optimizer = { .lr = 0.01 },
                                   .log_every = LS_STEPS(5),
                                   .callbacks = (const ls_callback *const[]) { &faults, NULL } },
               &result));
    if (config.test) ls_check(ls_evaluate(model, val, &values));
    char *text = ls_run_result_text(the_world, &result, config.test ? &values : NULL);
    fputs(text, stdout);
    free(text);
    ls_model_destroy(model);
    ls_dataset_destroy(train);
    ls_dataset_destroy(val);
    return ls_world_finish(the_world);
}
