/* Trains an image classifier: a part of the images is kept for validation, and at the end there is one
 * look at the test set with the best weights. Whatever the number of devices: nothing here knows it. */
#include "recipe/image.h"

#include <stdio.h>
#include <stdlib.h>

static void print(ls_world *world, const ls_run_result *result, const ls_values *test)
{
    char *text = ls_run_result_text(world, result, test);
    if (text) fputs(text, stdout);
    free(text);
}

typedef struct saving {
    ls_world *world;
    const recipe_image *recipe;
} saving;

static void save_with_run(ls_run *run, void *user)
{
    const saving *s = user;
    if (ls_world_rank(s->world) == 0)
        ls_check(recipe_image_classes(s->recipe, ls_run_folder(run), true));
}

static void train(ls_world *world, recipe_image *recipe)
{
    recipe_image_data data = { 0 };
    ls_model *model;
    ls_run_result result;
    ls_values values;

    ls_check(recipe_image_check(recipe));
    ls_check(recipe_image_open(recipe, &data));
    ls_check(ls_model_create(world, recipe_image_step, recipe, &model));
    saving with_run = { world, recipe };
    const ls_callback save = { .name = "image", .user = &with_run, .fit_begin = save_with_run };
    const ls_callback *const callbacks[] = { &save, NULL };
    ls_check(
        ls_fit(model, data.train, data.val, &(ls_run_options) { .callbacks = callbacks }, &result));
    if (!data.test || result.reason == LS_STOP_SIGNAL) { /* who asked for a stop is waiting */
        print(world, &result, NULL);
    } else {
        if (result.best_checkpoint[0]) ls_check(ls_model_load(model, result.best_checkpoint));
        ls_check(ls_evaluate(model, data.test, &values));
        print(world, &result, &values);
    }
    ls_model_destroy(model);
    recipe_image_close(&data);
}

int recipe_image_train(int argc, char **argv)
{
    recipe_image recipe = RECIPE_IMAGE_DEFAULTS;
    const ls_flag flags[] = {
        { "data", 's', &recipe.data,
          "folder of the images: MNIST's files, .gz or not, or a sub-folder of PNG and JPEG files "
          "per class" },
        { "model", 's', &recipe.model, "mlp, cnn or resnet" },
        { "classes", 'i', &recipe.classes, "how many; 0: a folder's sub-folders, else 10" },
        { "image-size", 'i', &recipe.image_size,
          "a folder's images are scaled and cut to so many pixels a side; 0: 64" },
        { "channels", 'i', &recipe.channels, "of a folder's images: 1 (grey) or 3; 0: 3" },
        { "val-fraction", 'd', &recipe.val_fraction, "part of the images kept for validation" },
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
    ls_check(ls_world_init(&argc, &argv, &options, &world));
    train(world, &recipe);
    return ls_world_finish(world);
}
