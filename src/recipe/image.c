/* Trains an image classifier: three models to choose from, data in MNIST's format, a tenth of the
 * training files kept for validation, and at the end one look at the test set with the best weights.
 * Whatever the number of devices: nothing here knows it. */
#include "recipe/image.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- models --- */

/* (B,C,H,W) -> (B,128) */
static ls_tensor *mlp(ls_tensor *x)
{
    ls_tensor *h = ls_relu(ls_linear(x, "fc1", 256));
    return ls_relu(ls_linear(h, "fc2", 128));
}

/* (B,C,H,W) -> (B,128) */
static ls_tensor *cnn(ls_tensor *x)
{
    x = ls_conv2d(x, "conv1", &(ls_conv2d_options) { .channels = 32, .kernel = 3, .padding = 1 });
    x = ls_max_pool2d(ls_relu(x), 2); /* (B,32,H/2,W/2) */
    x = ls_conv2d(x, "conv2", &(ls_conv2d_options) { .channels = 64, .kernel = 3, .padding = 1 });
    x = ls_max_pool2d(ls_relu(x), 2); /* (B,64,H/4,W/4) */
    x = ls_relu(ls_linear(x, "fc1", 128));
    return ls_dropout(x, "drop1", 0.3);
}

static ls_tensor *conv_norm(ls_graph *g, ls_tensor *x, const char *name, int64_t channels,
                            int kernel, int stride)
{
    ls_conv2d_options options = {
        .channels = channels, .kernel = kernel, .stride = stride, .no_bias = true
    };
    options.padding = kernel / 2;
    return ls_batch_norm(ls_conv2d(x, name, &options), ls_name(g, "%s.norm", name));
}

/* He et al., "Deep residual learning for image recognition" (CVPR 2016), with one block a stage.
 * (B,C,H,W) -> (B,64) */
static ls_tensor *resnet(ls_graph *g, ls_tensor *x)
{
    x = ls_relu(conv_norm(g, x, "stem", 16, 3, 1));
    for (int stage = 0; stage < 3; stage++) {
        int64_t channels = 16 << stage;
        int stride = stage ? 2 : 1;
        const char *name = ls_name(g, "stage%d", stage + 1);
        ls_tensor *h = ls_relu(conv_norm(g, x, ls_name(g, "%s.conv1", name), channels, 3, stride));
        h = conv_norm(g, h, ls_name(g, "%s.conv2", name), channels, 3, 1);
        if (stage) x = conv_norm(g, x, ls_name(g, "%s.shortcut", name), channels, 1, stride);
        x = ls_relu(ls_add(x, h));
    }
    return ls_global_avg_pool2d(x);
}

void recipe_image_step(ls_graph *g, void *user)
{
    const recipe_image *recipe = user;
    ls_tensor *x = ls_scale(ls_input(g, "image"), 1 / 127.5f, -1); /* (B,C,H,W) in [-1, 1] */
    ls_tensor *y = ls_input(g, "label");                           /* (B) */
    ls_tensor *h = strcmp(recipe->model, "mlp") == 0   ? mlp(x)
                   : strcmp(recipe->model, "cnn") == 0 ? cnn(x)
                                                       : resnet(g, x);
    ls_tensor *scores = ls_linear(h, "head", recipe->classes); /* (B,classes) */
    ls_output(g, "scores", scores);
    ls_minimize(g, ls_cross_entropy(scores, y), NULL);
    ls_report(g, "accuracy", ls_accuracy(scores, y));
}

/* --- data --- */

ls_status recipe_image_check(const recipe_image *recipe)
{
    const char *m = recipe->model;
    if (!recipe->data)
        return ls_fail(LS_ERR_CONFIG,
                       "--data DIR: where are the images? Debian's package dataset-fashion-mnist "
                       "puts some in /usr/share/datasets/fashion-mnist");
    if (strcmp(m, "mlp") != 0 && strcmp(m, "cnn") != 0 && strcmp(m, "resnet") != 0)
        return ls_fail(LS_ERR_CONFIG, "--model %s: there are mlp, cnn and resnet", m);
    if (recipe->classes < 2)
        return ls_fail(LS_ERR_CONFIG, "--classes %lld: at least 2", (long long)recipe->classes);
    if (recipe->crop < 0 || recipe->crop > 64)
        return ls_fail(LS_ERR_CONFIG, "--crop %lld: 0 to 64 pixels", (long long)recipe->crop);
    return LS_OK;
}

ls_status recipe_image_open(const recipe_image *recipe, const char *part, ls_dataset **out)
{
    char images[LS_PATH_MAX], labels[LS_PATH_MAX]; /* or .gz of them, where only that is there */
    int n = snprintf(images, sizeof images, "%s/%s-images-idx3-ubyte", recipe->data, part);
    snprintf(labels, sizeof labels, "%s/%s-labels-idx1-ubyte", recipe->data, part);
    if (n >= LS_PATH_MAX) return ls_fail(LS_ERR_CONFIG, "--data: too long a path");
    ls_image_options options = { .crop_padding = (int)recipe->crop,
                                 .flip_horizontal = recipe->flip };
    return ls_dataset_idx(images, labels, &options, out);
}

/* Found here, not by a graph that fails at the test behind hours of training. */
static ls_status check_same_size(const ls_dataset *train, const ls_dataset *test)
{
    int n;
    const int64_t *a = ls_dataset_fields(train, &n)->shape, *b = ls_dataset_fields(test, &n)->shape;
    if (a[0] == b[0] && a[1] == b[1] && a[2] == b[2]) return LS_OK;
    return ls_fail(LS_ERR_DATA, "the training images are %lldx%lld, the test images %lldx%lld",
                   (long long)a[1], (long long)a[2], (long long)b[1], (long long)b[2]);
}

/* --- the command --- */

static void print(ls_world *world, const ls_run_result *result, const ls_values *test)
{
    char *text = ls_run_result_text(world, result, test);
    if (text) fputs(text, stdout);
    free(text);
}

int recipe_image_train(int argc, char **argv)
{
    recipe_image recipe = RECIPE_IMAGE_DEFAULTS;
    const ls_flag flags[] = {
        { "data", 's', &recipe.data, "folder of the images, in MNIST's format, .gz or not" },
        { "model", 's', &recipe.model, "mlp, cnn or resnet" },
        { "classes", 'i', &recipe.classes, "number of classes" },
        { "crop", 'i', &recipe.crop, "augment: random crops after padding by so many pixels" },
        { "flip", 'b', &recipe.flip, "augment: mirror images at random" },
        { 0 },
    };
    const char *const defaults[] = {
        "batch-size=256",   "max-epochs=10",        "lr=0.002", "schedule=cosine",
        "warmup-steps=100", "monitor=val/accuracy", NULL
    };
    const ls_world_options options = { .summary = "Trains an image classifier on every device.",
                                       .flags = flags,
                                       .defaults = defaults };
    ls_world *world;
    ls_dataset *all, *train, *val, *test;
    ls_model *model;
    ls_run_result result;
    ls_values values;

    ls_check(ls_world_init(&argc, &argv, &options, &world));
    ls_check(recipe_image_check(&recipe));
    ls_check(recipe_image_open(&recipe, "train", &all));
    ls_check(recipe_image_open(&recipe, "t10k", &test));
    ls_check(check_same_size(all, test));
    ls_check(ls_dataset_split(all, 0.1, 0, &train, &val));
    ls_check(ls_model_create(world, recipe_image_step, &recipe, &model));
    ls_check(ls_fit(model, train, val, NULL, &result));
    if (result.reason == LS_STOP_SIGNAL) { /* whoever asked for a stop is waiting */
        print(world, &result, NULL);
    } else {
        if (result.best_checkpoint[0]) ls_check(ls_model_load(model, result.best_checkpoint));
        ls_check(ls_evaluate(model, test, &values));
        print(world, &result, &values);
    }
    ls_model_destroy(model);
    ls_dataset_destroy(train);
    ls_dataset_destroy(val);
    ls_dataset_destroy(test);
    ls_dataset_destroy(all);
    return ls_world_finish(world);
}
