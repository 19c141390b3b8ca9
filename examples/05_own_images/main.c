/* A small CNN on your own image files: a dataset of your own, validation, early stopping, the best
 * checkpoint, and the test with its weights. */
#include <lockstep/lockstep.h>
#include <stdio.h>

#include "images.h"

struct config {
    const char *data;
    int64_t width, classes;
};

static int64_t files_length(void *self)
{
    return ((struct files *)self)->n;
}

/* Called by several threads at once; rng depends on (seed, epoch, sample) only. */
static ls_status files_read(void *self, int64_t i, ls_rng *rng, void *const *out)
{
    const struct files *f = self;
    uint8_t *image = out[0]; /* (3,SIDE,SIDE) */
    ls_status status = decode_image(f->paths[i], image);
    if (status != LS_OK) return status;
    if (rng && ls_rng_uniform(rng) < 0.5) /* mirror, in training only */
        for (int row = 0; row < 3 * SIDE; row++)
            for (uint8_t *a = image + row * SIDE, *b = a + SIDE - 1; a < b; a++, b--) {
                uint8_t t = *a;
                *a = *b;
                *b = t;
            }
    *(int32_t *)out[1] = f->labels[i];
    return LS_OK;
}

static const ls_dataset_ops files_ops = { .length = files_length, .read = files_read };
static const ls_field files_fields[] = {
    { "image", LS_DTYPE_U8, 3, { 3, SIDE, SIDE } },
    { "label", LS_DTYPE_I32, 0, { 0 } },
};

static void cnn(ls_graph *g, void *user)
{
    const struct config *c = user;
    ls_tensor *x = ls_scale(ls_input(g, "image"), 1 / 127.5F, -1); /* (B,3,32,32) */
    ls_tensor *y = ls_input(g, "label");                           /* (B) */
    for (int i = 0; i < 3; i++) {
        ls_conv2d_options conv = { .channels = c->width << i, .kernel = 3, .padding = 1 };
        x = ls_conv2d(x, ls_name(g, "conv%d", i), &conv);
        x = ls_max_pool2d(ls_relu(ls_batch_norm(x, ls_name(g, "norm%d", i))), 2);
    }
    ls_tensor *z = ls_linear(ls_global_avg_pool2d(x), "head", c->classes); /* (B,classes) */
    ls_output(g, "scores", z);
    ls_minimize(g, ls_cross_entropy(z, y), NULL);
    ls_report(g, "accuracy", ls_accuracy(z, y));
}

static ls_status prepare(void *user)
{
    return draw_images(((struct config *)user)->data);
}

int main(int argc, char **argv)
{
    struct config c = { .data = "images", .width = 16 };
    const ls_flag flags[] = {
        { "data", 's', &c.data, "folder of images, one sub-folder per class; drawn if missing" },
        { "width", 'i', &c.width, "channels of the first layer" },
        { 0 },
    };
    const ls_run_options options = {
        .batch_size = 32,
        .max_epochs = 20,
        .optimizer = { .kind = &ls_adamw, .lr = 3e-3 },
        .schedule = { .kind = LS_SCHEDULE_COSINE, .warmup_steps = 10 },
        .checkpoint = { .monitor = "val/accuracy", .keep_best = 1 },
        .early_stop = { .monitor = "val/loss", .patience = 5 },
    };
    ls_world *world;
    ls_dataset *all, *rest, *train, *val, *test;
    ls_model *model;
    ls_run_result run;
    ls_values v;
    struct files files;

    ls_check(ls_world_init(
        &argc, &argv,
        &(ls_world_options) { .summary = "Train a CNN on your images.", .flags = flags }, &world));
    ls_check(ls_world_once(world, prepare, &c));
    ls_check(scan_folder(c.data, &files));
    c.classes = files.classes;
    ls_check(ls_dataset_create(&files_ops, &files, files_fields, 2, &all));
    ls_check(ls_dataset_split(all, 0.2, 1, &rest, &test));
    ls_check(ls_dataset_split(rest, 0.2, 2, &train, &val));
    ls_check(ls_model_create(world, cnn, &c, &model));
    ls_check(ls_fit(model, train, val, &options, &run));
    ls_check(ls_model_load(model, run.best_checkpoint));
    ls_check(ls_evaluate(model, test, &v));
    if (ls_world_rank(world) == 0)
        printf("test accuracy %.4f with %s\n", ls_values_get(&v, "accuracy"), run.best_checkpoint);

    ls_model_destroy(model);
    ls_dataset *const datasets[] = { test, val, train, rest, all };
    for (int i = 0; i < 5; i++) ls_dataset_destroy(datasets[i]);
    free_files(&files);
    return ls_world_finish(world);
}
